//! When to ask an authority for a certificate, and when to ask again after a failure.
//!
//! Times are those of the wall clock, as in certificates. The machine may sleep, and its clock may be set: a wait is
//! therefore short, and the schedule is asked again after it.

use std::time::{Duration, SystemTime};

use quictun_trust::public_certificate::Dates;

/// Longest wait before the clock is looked at again.
const WAIT_MAX: Duration = Duration::from_hours(1);

/// The first pause after a failure to reach the authority, and the longest.
const UNREACHABLE: (Duration, Duration) = (Duration::from_secs(10), Duration::from_hours(1));

/// The first pause after a refusal, and the longest. Authorities permit few failed checks per hour.
const REFUSED: (Duration, Duration) = (Duration::from_mins(5), Duration::from_hours(6));

/// Longest pause that an authority can ask for. Its limits count over a week at most.
const ASKED_MAX: Duration = Duration::from_hours(7 * 24);

/// Time between two questions when to renew (RFC 9773 section 4.3).
const WINDOW_EVERY: Duration = Duration::from_hours(6);

/// Longest pause after a success. It is a tenth of the certificate's time if that is shorter. Without a pause, an
/// authority whose certificates or windows are always late would be asked without end.
const ISSUED_MAX: Duration = Duration::from_hours(1);

/// The kind of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FailureKind {
    /// The authority was not reached, or did not answer in time.
    Unreachable,
    /// The authority has refused.
    Refused,
}

/// The next thing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ScheduleStep {
    /// Wait, and ask again.
    Wait(Duration),
    /// Ask the authority when it wants the certificate to be renewed.
    AskWindow,
    /// Ask for a certificate.
    Order,
}

/// The schedule of one certificate.
#[derive(Debug)]
pub(super) struct Schedule {
    /// The dates of the certificate in service, or `None` if one is needed at once.
    dates: Option<Dates>,
    /// A number from 0 to 1, by which servers that were set up together renew at different times.
    jitter: f64,
    /// The times between which the authority wants the certificate to be renewed.
    window: Option<(SystemTime, SystemTime)>,
    ask_at: SystemTime,
    failures: u32,
    retry_at: Option<SystemTime>,
    /// The end of the pause after a success.
    rests_until: SystemTime,
}

impl Schedule {
    pub(super) fn new(dates: Option<Dates>, jitter: f64) -> Self {
        Self {
            dates,
            jitter,
            window: None,
            ask_at: SystemTime::UNIX_EPOCH,
            failures: 0,
            retry_at: None,
            rests_until: SystemTime::UNIX_EPOCH,
        }
    }

    /// Begins the schedule of a certificate that was issued now.
    pub(super) fn after_success(now: SystemTime, dates: Dates, jitter: f64) -> Self {
        Self {
            rests_until: now + (dates.lifetime() / 10).min(ISSUED_MAX),
            ..Self::new(Some(dates), jitter)
        }
    }

    pub(super) fn step(&self, now: SystemTime) -> ScheduleStep {
        let order_at = self.order_at();
        if order_at <= now {
            return ScheduleStep::Order;
        }
        let asks = self.dates.is_some() && self.failures == 0;
        if asks && self.ask_at <= now {
            return ScheduleStep::AskWindow;
        }
        let until = if asks {
            order_at.min(self.ask_at)
        } else {
            order_at
        };
        ScheduleStep::Wait(until.duration_since(now).unwrap_or_default().min(WAIT_MAX))
    }

    /// Returns the time of the next order.
    pub(super) fn order_at(&self) -> SystemTime {
        let renew_at = self.dates.map(|dates| self.renew_at(&dates));
        let renew_at = renew_at.unwrap_or(SystemTime::UNIX_EPOCH);
        let due = renew_at.max(self.rests_until);
        self.retry_at.map_or(due, |retry| retry.max(due))
    }

    /// Returns the time in the authority's window. Without a window, a third of the certificate's time is left, or a little
    /// more. A tenth is left in any case.
    fn renew_at(&self, dates: &Dates) -> SystemTime {
        let (end, third) = (dates.not_after, dates.lifetime() / 3);
        let window = self
            .window
            .unwrap_or((end - third - third / 10, end - third));
        let length = window.1.duration_since(window.0).unwrap_or_default();
        let picked = window.0.checked_add(length.mul_f64(self.jitter));
        let latest = end - dates.lifetime() / 10;
        picked.unwrap_or(latest).min(latest)
    }

    /// Notes the authority's window for the certificate in service, if it has named one.
    pub(super) fn set_window(&mut self, now: SystemTime, window: Option<(SystemTime, SystemTime)>) {
        self.window = window.or(self.window);
        self.ask_at = now + WINDOW_EVERY;
    }

    /// Returns whether the authority has named a window, and so knows the certificate as one to be replaced.
    pub(super) fn has_window(&self) -> bool {
        self.window.is_some()
    }

    /// Notes a failure. `asked` is the time before which the authority does not want to be asked.
    pub(super) fn fail(&mut self, now: SystemTime, kind: FailureKind, asked: Option<SystemTime>) {
        let (first, most) = match kind {
            FailureKind::Unreachable => UNREACHABLE,
            FailureKind::Refused => REFUSED,
        };
        let doubled = first.saturating_mul(1 << self.failures.min(16)).min(most);
        self.failures += 1;
        // From three quarters to the whole.
        let pause = doubled.mul_f64(1.0 - self.jitter / 4.0);
        let asked = asked.and_then(|asked| asked.duration_since(now).ok());
        let pause = pause.max(asked.unwrap_or_default().min(ASKED_MAX));
        self.retry_at = Some(now + pause);
    }

    /// Makes the next attempt due, if one has failed: a person has changed something.
    pub(super) fn hurry(&mut self) {
        self.retry_at = None;
    }

    /// Returns whether the latest attempt has failed.
    pub(super) fn has_failed(&self) -> bool {
        self.failures > 0
    }
}

#[cfg(test)]
mod tests;
