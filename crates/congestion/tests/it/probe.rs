//! The probe timer of a sender, and persistent congestion, as in QUIC (RFC 9002 sections 6.2 and 7.6).

use std::time::{Duration, Instant};

use quictun_congestion::{Liveness, TimeoutAction};

/// Allowance for late acknowledgements and for threads. It is added to one and a half round trips, which stand for
/// the smoothed round-trip time and four deviations.
const LATE: Duration = Duration::from_millis(5);

/// Number of unanswered probe timeouts that make loss persistent (RFC 9002 section 7.6.1).
const PERSISTENT: u32 = 3;

/// The engine's default keep-alive time.
const KEEP_ALIVE: Duration = Duration::from_secs(2);

/// Maximum number of doublings of the probe timeout, as in quinn-proto.
const BACKOFF_MOST: u32 = 16;

/// Decides when to send although the window is full: after a timeout that doubles with each unanswered probe, or when
/// the engine sends a keep-alive.
#[derive(Debug)]
pub(crate) struct ProbeTimer {
    rtt: Duration,
    period: Duration,
    unanswered: u32,
    liveness: Liveness,
}

impl ProbeTimer {
    pub(crate) fn new(now: Instant, rtt: Duration) -> Self {
        Self {
            rtt,
            period: rtt * 3 / 2 + LATE,
            unanswered: 0,
            liveness: Liveness::new(now, KEEP_ALIVE),
        }
    }

    pub(crate) fn on_sent(&mut self) {
        self.unanswered = (self.unanswered + 1).min(BACKOFF_MOST);
    }

    pub(crate) fn on_ack(&mut self, now: Instant) {
        self.unanswered = 0;
        self.liveness.handle_heard(now);
    }

    /// Returns whether the engine sends a keep-alive now.
    pub(crate) fn asks(&mut self, now: Instant) -> bool {
        self.liveness.handle_timeout(now) != TimeoutAction::Fine
    }

    /// Returns when to send next, if nothing is heard from now on.
    pub(crate) fn next(&mut self, now: Instant, asking: bool) -> Instant {
        let probe = now + self.period * (1 << self.unanswered);
        if !asking {
            return probe;
        }
        self.liveness.handle_sent(now, self.rtt);
        probe.min(self.liveness.next_timeout())
    }
}

/// Detects persistent congestion: packets declared lost together, with no arrival between them, that were sent over
/// too long a time for chance.
#[derive(Debug)]
pub(crate) struct Persistence {
    least: Duration,
    first: Option<Instant>,
    shown: bool,
}

impl Persistence {
    pub(crate) fn of(probe: &ProbeTimer) -> Self {
        Self {
            least: PERSISTENT * probe.period,
            first: None,
            shown: false,
        }
    }

    pub(crate) fn on_lost(&mut self, sent: Instant) {
        let first = *self.first.get_or_insert(sent);
        self.shown |= sent.saturating_duration_since(first) > self.least;
    }

    pub(crate) fn on_arrived(&mut self) {
        self.first = None;
    }

    pub(crate) fn shown(&self) -> bool {
        self.shown
    }
}
