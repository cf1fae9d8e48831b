//! The controllers there are.

use std::time::Instant;

use crate::{Auto, Fixed, LossBased, Member, Model, Resume};

/// Which controller decides what is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Algorithm {
    /// [`Auto`]: fills a lossy path, shares one where loss is congestion.
    #[default]
    Auto,
    /// CUBIC (RFC 9438) with `HyStart++`.
    Cubic,
    /// `NewReno` (RFC 9002 section 7) with `HyStart++`.
    NewReno,
    /// [`Fixed`]: so many bytes per second, whatever is lost, until it does harm.
    Fixed(u64),
    /// [`Auto`], giving way to all other flows.
    Background,
}

impl Algorithm {
    /// A controller of this kind. Of the path nothing is known, or what an earlier connection knew; only
    /// [`Auto`] begins with that, and only it does as the others of an ensemble do.
    pub fn build(
        self,
        now: Instant,
        mtu: u16,
        resume: Option<Resume>,
        member: Option<Member>,
    ) -> Box<dyn Model> {
        match self {
            Self::Auto => Box::new(Auto::new(now, mtu).resuming(resume).among(member)),
            Self::Cubic => Box::new(LossBased::cubic(mtu)),
            Self::NewReno => Box::new(LossBased::newreno(mtu)),
            Self::Fixed(rate) => Box::new(Fixed::new(now, mtu, rate)),
            Self::Background => {
                let auto = Auto::background(now, mtu);
                Box::new(auto.resuming(resume).among(member))
            }
        }
    }
}
