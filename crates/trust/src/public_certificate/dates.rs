//! The time for which a certificate is valid.

use std::time::{Duration, SystemTime};

use jiff::Timestamp;

/// The first and the last second of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dates {
    /// The first second at which programs accept the certificate.
    pub not_before: SystemTime,
    /// The last second at which programs accept the certificate.
    pub not_after: SystemTime,
}

impl Dates {
    /// Returns the length of the whole time.
    pub fn lifetime(&self) -> Duration {
        let length = self.not_after.duration_since(self.not_before);
        length.unwrap_or_default()
    }

    /// Returns the time that is left, or zero.
    pub fn left(&self, now: SystemTime) -> Duration {
        self.not_after.duration_since(now).unwrap_or_default()
    }

    pub(super) fn first_day(&self) -> String {
        day(self.not_before)
    }

    /// Returns the last day, as year, month and day.
    pub fn last_day(&self) -> String {
        day(self.not_after)
    }
}

fn day(time: SystemTime) -> String {
    let time = Timestamp::try_from(time).unwrap_or(Timestamp::MAX);
    time.strftime("%Y-%m-%d").to_string()
}
