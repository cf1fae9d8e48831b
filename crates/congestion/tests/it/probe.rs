//! The probe timer of a sender, and persistent loss, as QUIC has them (RFC 9002 sections 6.2 and 7.6).

use std::time::{Duration, Instant};

use quictun_congestion::{Liveness, Verdict};

/// Beside one and a half round trips, which stand for the smoothed one and four deviations: what acknowledgements are
/// late, and threads.
const LATE: Duration = Duration::from_millis(5);

/// Waits without an answer that make loss persistent (RFC 9002 section 7.6.1).
const PERSISTENT: u32 = 3;

/// As the engine has it where nothing else is said.
const KEEP_ALIVE: Duration = Duration::from_secs(2);

/// As quinn-proto limits it.
const BACKOFF_MOST: u32 = 16;

/// When to send although the window is full: twice as late each time that nothing was heard since, or where the engine asks
/// for a sign of life.
#[derive(Debug)]
pub(crate) struct Probe {
    rtt: Duration,
    period: Duration,
    unanswered: u32,
    liveness: Liveness,
}

impl Probe {
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

    /// Whether a sign of life is due.
    pub(crate) fn asks(&mut self, now: Instant) -> bool {
        self.liveness.handle_timeout(now) != Verdict::Fine
    }

    /// When to send next, if nothing is heard from now on.
    pub(crate) fn next(&mut self, now: Instant, asking: bool) -> Instant {
        let probe = now + self.period * (1 << self.unanswered);
        if !asking {
            return probe;
        }
        self.liveness.handle_sent(now, self.rtt);
        probe.min(self.liveness.next_timeout())
    }
}

/// Whether packets given up at once, of which none between arrived, left over too long a time for it to be chance.
#[derive(Debug)]
pub(crate) struct Persistence {
    least: Duration,
    first: Option<Instant>,
    shown: bool,
}

impl Persistence {
    pub(crate) fn of(probe: &Probe) -> Self {
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
