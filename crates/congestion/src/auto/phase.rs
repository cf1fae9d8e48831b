//! The phases of the sender.

mod change;

use super::rest::Rest;
use super::rival::Trial;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Phase {
    /// Grows until a queue, loss or a lack of growth shows the limit.
    Startup,
    /// Lets the queue of the startup phase drain.
    Drain,
    /// Sends slightly less, so that the queue left by a probe drains, and measures the loss meanwhile. `ended` is
    /// true once the outcome of the probe is known.
    Down { ended: bool },
    /// Sends at the delivered rate, for `left` more measurements.
    Cruise { left: u32 },
    /// Probes: sends more, to see whether more arrives.
    Up,
    /// Keeps three quarters or half of the usual bytes in flight, to see the round-trip time without this sender's
    /// queue.
    Rest(Rest),
    /// Sends nearly as much as before a rival was met, to see whether the rival exists.
    Trial(Trial),
}

/// Mean values of the latest cruise.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cruising {
    /// Sums of round-trip times in seconds and of bytes in flight, and the number of acknowledgements that they
    /// cover.
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

    /// Returns the mean round-trip time in seconds and the mean of the bytes in flight.
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
            Self::Trial(_) => "trial",
        }
    }
}

/// Factor on the rate during a probe. It is BBR's value, large enough to stand out from the noise of one round trip.
pub(super) const UP: f64 = 1.25;

/// Number of measurements from one probe to the next. It doubles after each probe that did harm, up to
/// `CRUISE_EPOCHS_MAX`.
pub(super) const CRUISE_EPOCHS: u32 = 6;
pub(super) const CRUISE_EPOCHS_MAX: u32 = 48;
