//! What it does at the moment.

mod change;

use super::rest::Rest;

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
    /// Sends three quarters, or half, to see what round trips take without our queue.
    Rest(Rest),
}

/// How things were in the latest cruise.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cruising {
    /// Sums of round-trip times, in seconds, and of bytes in flight, at so many acknowledgements.
    sum: f64,
    in_flight: f64,
    acks: f64,
}

impl Cruising {
    pub(super) fn add(&mut self, rtt_s: f64, in_flight: f64) {
        self.sum += rtt_s;
        self.in_flight += in_flight;
        self.acks += 1.0;
    }

    /// The mean round-trip time in seconds, and that of bytes in flight.
    pub(super) fn means(self) -> (f64, f64) {
        let acks = self.acks.max(1.0);
        (self.sum / acks, self.in_flight / acks)
    }
}

impl Phase {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Startup => "startup",
            Self::Drain => "drain",
            Self::Down { .. } => "down",
            Self::Cruise { .. } => "cruise",
            Self::Up => "up",
            Self::Rest(_) => "rest",
        }
    }
}

/// A probe sends this much more: BBR's, enough to be seen through the noise of a round trip.
pub(super) const UP: f64 = 1.25;

/// Measurements from one probe to the next; twice as many, up to the latter, after one that did harm.
pub(super) const CRUISE_EPOCHS: u32 = 6;
pub(super) const CRUISE_EPOCHS_MAX: u32 = 48;
