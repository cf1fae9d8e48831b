//! Received data that a flow holds, and whether its peer should pause because of it.

use std::time::{Duration, Instant};

use crate::holding::{Holding, RATE_INTERVAL_MIN, ReadRate};

/// Overhead of pieces that every flow may have, in bytes.
pub const OVERHEAD_MIN: usize = 256;

/// A flow that holds less than this is never asked to pause, however small its share is.
const HOLD_MIN: usize = 4 * 1024;

/// The memory that a flow held when it was last counted, and how fast its application reads.
#[derive(Debug)]
pub struct Backlog {
    /// Bytes taken off the flow's stream, as noted in its connection.
    noted: u64,
    /// The memory that the flow holds, as last counted in its connection.
    pub holding: Holding,
    /// Set while the peer is asked to pause the flow (HOLD). The value is the total of stream bytes that the peer may
    /// send before it counts as ignoring HOLD.
    hold_limit: Option<u64>,
    /// Time since which the flow has held more than its limit.
    over_since: Option<Instant>,
    read_rate: ReadRate,
}

/// State of a flow's receiving part.
#[derive(Clone, Copy, Debug)]
pub struct ReceiveState {
    /// Memory of the received data, in bytes.
    pub held: usize,
    /// The part of `held` that is not data: the overhead of pieces.
    pub overhead: usize,
    /// Total of bytes taken off the stream.
    pub taken: u64,
    /// The application does not read.
    pub parked: bool,
    /// The application may not have more bytes yet, because its client's rate is used up.
    pub shaped: bool,
    /// Total of bytes that the application has taken.
    pub delivered: u64,
}

impl Backlog {
    /// Creates a backlog that holds nothing.
    pub fn new(now: Instant) -> Self {
        Self {
            noted: 0,
            holding: Holding::default(),
            hold_limit: None,
            over_since: None,
            read_rate: ReadRate::new(now),
        }
    }

    /// Starts counting for another connection, whose peer has not been asked to pause the flow yet. It is asked at once
    /// if the application has not read for long.
    pub fn restart(&mut self) {
        self.holding = Holding::default();
        self.withdraw_hold();
    }

    /// Withdraws the request to pause, because the connection can carry no further ones.
    pub fn withdraw_hold(&mut self) {
        self.hold_limit = None;
    }

    /// Notes that `taken` bytes were taken off the stream in total. Returns how many of them are new.
    pub fn note_taken(&mut self, taken: u64) -> u64 {
        let new = taken.saturating_sub(self.noted);
        self.noted += new;
        new
    }

    /// Returns whether the peer is asked to pause the flow.
    pub fn is_on_hold(&self) -> bool {
        self.hold_limit.is_some()
    }

    /// Returns whether the peer keeps sending although it was asked to pause the flow.
    pub fn ignores_hold(&self) -> bool {
        self.hold_limit.is_some_and(|most| self.noted > most)
    }

    /// Decides whether the peer should pause because the application does not read. Returns `Some(true)` to send HOLD,
    /// `Some(false)` to send GO, and `None` if nothing changes.
    ///
    /// `share` is what the flow may hold besides its connection's window, in bytes. `urgent` says that nothing is left
    /// of that window. `allowance` is how many bytes the peer may still send after it is asked to pause.
    pub fn judge(
        &mut self,
        now: Instant,
        rtt: Duration,
        received: ReceiveState,
        share: usize,
        urgent: bool,
        allowance: u64,
    ) -> Option<bool> {
        let ReceiveState { held, parked, .. } = received;
        let per_round_trip = self.read_rate.update(now, rtt, received.delivered);
        // An application that reads steadily needs more buffered data, however slowly it reads: new data arrives only a
        // round trip after GO.
        let hold_at = (share / 2)
            .max(HOLD_MIN)
            .max(per_round_trip.saturating_mul(4));
        let go_at = (hold_at / 4).max(per_round_trip.saturating_mul(2));
        // Data released by a filled gap is large for a moment and says nothing about the application, so the limit must
        // be exceeded for some time.
        self.over_since = (held >= hold_at).then(|| self.over_since.unwrap_or(now));
        let lasts =
            |since: Instant| now.saturating_duration_since(since) >= rtt.max(RATE_INTERVAL_MIN);
        let held_back = self.is_on_hold();
        let hold = if held_back {
            held > go_at
        } else {
            parked && self.over_since.is_some_and(|since| urgent || lasts(since))
        };
        if hold == held_back {
            return None;
        }
        self.hold_limit = hold.then(|| self.noted + allowance);
        Some(hold)
    }

    /// Returns whether the flow holds more overhead than data, and more overhead than every flow may have.
    pub fn is_tiny_pieces(&self) -> bool {
        let Holding { held, overhead, .. } = self.holding;
        overhead > (held / 2).max(OVERHEAD_MIN)
    }
}
