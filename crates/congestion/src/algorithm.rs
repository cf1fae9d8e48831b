//! The choice of a congestion controller.

use std::time::Instant;

use crate::{Auto, Fixed, LossBased, Member, Model, Resume};

/// The controller that decides what may be sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Algorithm {
    /// [`Auto`]: fills a lossy path, and shares a path on which loss means congestion.
    #[default]
    Auto,
    /// CUBIC (RFC 9438) with `HyStart++`.
    Cubic,
    /// `NewReno` (RFC 9002 section 7) with `HyStart++`.
    NewReno,
    /// [`Fixed`]: sends this many bytes per second regardless of loss, until that does harm.
    Fixed(u64),
    /// [`Auto`] that yields to all other flows.
    Background,
}

impl Algorithm {
    /// Creates a controller of this kind.
    ///
    /// `resume` is what an earlier connection learned about the path, and `member` is this connection's membership in
    /// the ensemble of its peer. Only [`Auto`] and its background variant use them; the other controllers ignore
    /// both.
    pub fn build(
        self,
        now: Instant,
        mtu: u16,
        resume: Option<Resume>,
        member: Option<Member>,
    ) -> Box<dyn Model> {
        match self {
            Self::Auto => Box::new(Auto::new(now, mtu).resuming(resume).with_member(member)),
            Self::Cubic => Box::new(LossBased::cubic(mtu)),
            Self::NewReno => Box::new(LossBased::newreno(mtu)),
            Self::Fixed(rate) => Box::new(Fixed::new(now, mtu, rate)),
            Self::Background => {
                let auto = Auto::background(now, mtu);
                Box::new(auto.resuming(resume).with_member(member))
            }
        }
    }
}
