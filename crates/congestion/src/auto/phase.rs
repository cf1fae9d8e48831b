//! What it does at the moment.

mod change;

use std::time::{Duration, Instant};

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Phase {
    /// Grows until something shows the limit.
    Startup,
    /// Lets the queue of the start drain.
    Drain,
    /// Sends a little less, so that what a probe left behind drains, and sees what is lost then.
    /// `ended`: the probe's outcome is known.
    Down { ended: bool },
    /// Sends what arrives, for so many measurements more.
    Cruise { left: u32 },
    /// Sends more, to see whether more arrives.
    Up,
    /// Sends three quarters, to see the round-trip time without queue: until then, the least so far.
    Rest {
        until: Option<Instant>,
        least: Duration,
    },
}

impl Phase {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Startup => "startup",
            Self::Drain => "drain",
            Self::Down { .. } => "down",
            Self::Cruise { .. } => "cruise",
            Self::Up => "up",
            Self::Rest { .. } => "rest",
        }
    }
}

/// A probe sends this much more: BBR's, enough to be seen through the noise of a round trip.
pub(super) const UP: f64 = 1.25;

/// Measurements from one probe to the next; twice as many, up to the latter, after one that did harm.
pub(super) const CRUISE_EPOCHS: u32 = 6;
pub(super) const CRUISE_EPOCHS_MAX: u32 = 48;
