//! When to warn that a certificate is about to expire.

use std::time::{Duration, SystemTime};

use quictun_trust::public_certificate::Dates;

/// Longest time before the end at which the warnings begin. Programs that renew certificates do so earlier.
const LAST_DAYS: Duration = Duration::from_hours(14 * 24);

/// Time between two warnings.
const DAY: Duration = Duration::from_hours(24);

/// The warnings about one certificate.
#[derive(Debug, Default)]
pub(super) struct ExpiryWarnings {
    latest: Option<SystemTime>,
}

impl ExpiryWarnings {
    /// Returns whether to warn now: once a day in the last quarter of the certificate's time, in its last two weeks at
    /// most, and after its end.
    pub(super) fn take(&mut self, now: SystemTime, dates: &Dates) -> bool {
        let last = (dates.lifetime() / 4).min(LAST_DAYS);
        let has_passed = |latest: SystemTime| now.duration_since(latest).is_ok_and(|it| it >= DAY);
        let due = dates.left(now) < last && self.latest.is_none_or(has_passed);
        if due {
            self.latest = Some(now);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_come_once_a_day_in_the_last_quarter_or_two_weeks() {
        let start = SystemTime::UNIX_EPOCH;
        let of = |days: u32| Dates {
            not_before: start,
            not_after: start + days * DAY,
        };
        for (days, first) in [(90, 77), (8, 7)] {
            let (dates, mut warnings) = (of(days), ExpiryWarnings::default());
            let warned = (0..days + 3).filter(|day| warnings.take(start + *day * DAY, &dates));
            let warned: Vec<u32> = warned.collect();
            assert_eq!(warned, (first..days + 3).collect::<Vec<_>>(), "{days}");
        }
        let mut warnings = ExpiryWarnings::default();
        let late = start + 80 * DAY;
        assert!(warnings.take(late, &of(90)));
        assert!(!warnings.take(late + DAY / 2, &of(90)));
        assert!(warnings.take(late + DAY, &of(90)));
    }
}
