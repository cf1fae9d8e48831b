//! Detection of changes in how a connection sends.

use std::time::{Duration, Instant};

use crate::report::SendLimit;

/// Minimum time between two reports of one connection. On paths with short round trips, a controller changes its phase
/// many times a second.
const PAUSE: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(crate) struct CongestionNotice {
    phase: &'static str,
    limit: SendLimit,
    told: Option<Instant>,
}

impl CongestionNotice {
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.told
            .is_none_or(|told| now.saturating_duration_since(told) >= PAUSE)
    }

    /// Returns whether the state is new and a report is due. It then counts as reported.
    pub(crate) fn tell(&mut self, now: Instant, phase: &'static str, limit: SendLimit) -> bool {
        let new = self.is_due(now) && (phase, limit) != (self.phase, self.limit);
        if new {
            *self = Self {
                phase,
                limit,
                told: Some(now),
            };
        }
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_reported_once_and_at_most_once_a_second() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut notice = CongestionNotice::default();
        assert!(notice.tell(at(0), "startup", SendLimit::Congestion));
        assert!(!notice.tell(at(0), "startup", SendLimit::Congestion));
        assert!(!notice.tell(at(999), "cruise", SendLimit::Congestion));
        assert!(notice.tell(at(1000), "cruise", SendLimit::Congestion));
        assert!(!notice.tell(at(5000), "cruise", SendLimit::Congestion));
        assert!(notice.tell(at(5001), "cruise", SendLimit::ReceiveWindow));
    }
}
