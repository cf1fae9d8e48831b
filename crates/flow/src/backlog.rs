//! Received data that a flow holds, and whether its peer should rest meanwhile.

use std::time::{Duration, Instant};

use crate::holding::{Holding, PACE_MIN, Pace};

/// Overhead of pieces that every flow may have, bytes.
pub const OVERHEAD_MIN: usize = 256;

/// Whatever the share, a flow is not stopped for less.
const HOLD_MIN: usize = 4 * 1024;

/// What a flow holds, as it was counted last, and how its application reads.
#[derive(Debug)]
pub struct Backlog {
    /// Bytes taken off its stream, as noted in its connection.
    noted: u64,
    /// What the flow holds, as it was counted last in its connection.
    pub holding: Holding,
    /// Set while the peer is asked to hold the flow: the total of stream bytes that it may send before it is taken to
    /// ignore HOLD.
    told_to_rest: Option<u64>,
    /// Since when it has held more than it should.
    over_since: Option<Instant>,
    pace: Pace,
}

/// How a flow's receiving part stands.
#[derive(Clone, Copy, Debug)]
pub struct Stand {
    /// Memory of what it has received, bytes.
    pub held: usize,
    /// The part of it that is not data: the overhead of pieces.
    pub overhead: usize,
    /// Bytes taken off its stream in all.
    pub taken: u64,
    /// The application does not read.
    pub parked: bool,
    /// The application may not have more yet: its client's rate is used up.
    pub shaped: bool,
    /// Bytes that the application has taken.
    pub delivered: u64,
}

impl Backlog {
    /// Nothing is held yet.
    pub fn new(now: Instant) -> Self {
        Self {
            noted: 0,
            holding: Holding::default(),
            told_to_rest: None,
            over_since: None,
            pace: Pace::new(now),
        }
    }

    /// The flow continues on another connection, which has asked its peer for nothing yet.
    pub fn begin_lane(&mut self, now: Instant) {
        *self = Self {
            noted: self.noted,
            ..Self::new(now)
        };
    }

    /// So many bytes were taken off the stream in all. Returns how many are new.
    pub fn note_taken(&mut self, taken: u64) -> u64 {
        let new = taken.saturating_sub(self.noted);
        self.noted += new;
        new
    }

    /// Whether the peer is asked to send nothing for now.
    pub fn is_told_to_rest(&self) -> bool {
        self.told_to_rest.is_some()
    }

    /// Whether the peer, asked to rest, sends all the same.
    pub fn is_disobeyed(&self) -> bool {
        self.told_to_rest.is_some_and(|most| self.noted > most)
    }

    /// Judges whether the peer should send no more for now, as the application does not read. Returns what the peer is to
    /// be told, if that is new. `share` is what the flow may hold besides its connection's window, bytes; `urgent`:
    /// nothing is left of that window; `allowance`: bytes that the peer may send after it is told to rest.
    pub fn judge(
        &mut self,
        now: Instant,
        rtt: Duration,
        stand: Stand,
        share: usize,
        urgent: bool,
        allowance: u64,
    ) -> Option<bool> {
        let Stand { held, parked, .. } = stand;
        let pace = self.pace.update(now, rtt, stand.delivered);
        // One that reads steadily, however slowly, needs more of it: what comes in the round trip after GO is late.
        let hold_at = (share / 2).max(HOLD_MIN).max(pace.saturating_mul(4));
        let go_at = (hold_at / 4).max(pace.saturating_mul(2));
        // What came at once behind a gap is a lot for a moment, and says nothing of the application.
        self.over_since = (held >= hold_at).then(|| self.over_since.unwrap_or(now));
        let lasts = |since: Instant| now.saturating_duration_since(since) >= rtt.max(PACE_MIN);
        let told = self.is_told_to_rest();
        let rest = if told {
            held > go_at
        } else {
            parked && self.over_since.is_some_and(|since| urgent || lasts(since))
        };
        if rest == told {
            return None;
        }
        self.told_to_rest = rest.then(|| self.noted + allowance);
        Some(rest)
    }

    /// Whether what it holds is more cost than bytes, and not next to nothing.
    pub fn is_tiny_pieces(&self) -> bool {
        let Holding { held, overhead, .. } = self.holding;
        overhead > (held / 2).max(OVERHEAD_MIN)
    }
}
