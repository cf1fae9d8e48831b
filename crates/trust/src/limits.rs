//! The limits of a named client, as the configuration sets them.

use std::fmt;
use std::time::{Duration, SystemTime};

/// The limits of a named client. `None` stands for no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientLimits {
    /// Maximum number of flows that the client may have open at once.
    pub max_flows: Option<u64>,
    /// Rate from the client to targets, bytes a second.
    pub rate_up: Option<u64>,
    /// Rate from targets to the client, bytes a second.
    pub rate_down: Option<u64>,
    /// Bytes in both directions together in one calendar month (UTC).
    pub quota: Option<u64>,
    /// The time from which on the client may not connect.
    pub expires: Option<SystemTime>,
}

/// A text that is not a date or time stamp.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a date: write it like 2027-03-31, which is the last valid day, or like 2027-03-31T18:00:00Z"
)]
pub struct DateError(String);

const DAY: Duration = Duration::from_hours(24);

impl ClientLimits {
    /// Returns true if the client's access has expired.
    pub fn has_expired(&self, now: SystemTime) -> bool {
        self.expires.is_some_and(|expires| now >= expires)
    }

    /// Describes each limit in words for a log, in a fixed order.
    pub(crate) fn descriptions(&self) -> Vec<String> {
        let number = |key: &str, value: Option<u64>, unit: &str| {
            value.map(|value| format!("{key} {value} {unit}"))
        };
        let expires = self.expires.map(|at| format!("expires {}", timestamp(at)));
        let descriptions = [
            number("max_flows", self.max_flows, "flows"),
            number("rate_up", self.rate_up, "bytes/s"),
            number("rate_down", self.rate_down, "bytes/s"),
            number("quota", self.quota, "bytes"),
            expires,
        ];
        descriptions.into_iter().flatten().collect()
    }
}

/// Reads a time of expiry. A date stands for the end of that day (UTC).
///
/// # Errors
///
/// Fails if the text is neither a date nor a time stamp of RFC 3339.
pub fn parse_expiry(text: &str) -> Result<SystemTime, DateError> {
    let error = || DateError(text.chars().take(64).collect());
    if let Ok(at) = text.parse::<jiff::Timestamp>() {
        return Ok(at.into());
    }
    // The parser accepts more than a plain date, for example a sign or a time after it. Such texts are refused.
    let plain = text.len() == "2027-03-31".len() && !text.starts_with(['+', '-']);
    let date: jiff::civil::Date = text.parse().map_err(|_| error())?;
    let start = date
        .to_zoned(jiff::tz::TimeZone::UTC)
        .map_err(|_| error())?;
    let start = SystemTime::from(start.timestamp());
    plain
        .then(|| start.checked_add(DAY))
        .flatten()
        .ok_or_else(error)
}

/// Returns the time stamp of RFC 3339, rounded to whole seconds, or `never` if it cannot be written.
pub fn timestamp(at: SystemTime) -> String {
    match jiff::Timestamp::try_from(at).and_then(|at| at.round(jiff::Unit::Second)) {
        Ok(at) => at.to_string(),
        // The time is beyond the year 9999.
        Err(_) => "never".to_owned(),
    }
}

/// A calendar month (UTC).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Month {
    year: i16,
    month: i8,
}

impl Month {
    /// Returns the month (UTC) of this time.
    pub fn of(at: SystemTime) -> Self {
        let at = jiff::Timestamp::try_from(at).unwrap_or_default();
        let date = at.to_zoned(jiff::tz::TimeZone::UTC).date();
        Self {
            year: date.year(),
            month: date.month(),
        }
    }

    /// Reads a month in the form `2027-03`.
    pub fn parse(text: &str) -> Option<Self> {
        let (year, month) = text.split_once('-')?;
        let (year, month) = (year.parse().ok()?, month.parse().ok()?);
        ((1970..=9999).contains(&year) && (1..=12).contains(&month)).then_some(Self { year, month })
    }
}

impl fmt::Display for Month {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04}-{:02}", self.year, self.month)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_is_the_last_day_and_a_time_stamp_the_moment() {
        for (text, end) in [
            ("2027-03-31", "2027-04-01T00:00:00Z"),
            ("2028-02-29", "2028-03-01T00:00:00Z"),
            ("2027-03-31T18:00:00Z", "2027-03-31T18:00:00Z"),
            ("2027-03-31T18:00:00+02:00", "2027-03-31T16:00:00Z"),
        ] {
            assert_eq!(
                parse_expiry(text).map(timestamp),
                Ok(end.to_owned()),
                "{text}"
            );
        }
        for text in [
            "",
            "2027-02-29",
            "2027-13-01",
            "tomorrow",
            "2027-03",
            "31.3.2027",
            "2027-03-31T18:00",
        ] {
            assert!(parse_expiry(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_client_has_expired_at_the_end_and_not_before() {
        let expires = parse_expiry("2027-03-31").expect("a date");
        let limits = ClientLimits {
            expires: Some(expires),
            ..ClientLimits::default()
        };
        assert!(!limits.has_expired(expires - Duration::from_nanos(1)));
        assert!(limits.has_expired(expires));
        assert!(!ClientLimits::default().has_expired(expires));
    }

    #[test]
    fn months_begin_with_their_first_second() {
        let at = |text: &str| SystemTime::from(text.parse::<jiff::Timestamp>().expect("a time"));
        let last = Month::of(at("2026-12-31T23:59:59.999Z"));
        let first = Month::of(at("2027-01-01T00:00:00Z"));
        assert!(last < first);
        assert_eq!(
            (last.to_string(), first.to_string()),
            ("2026-12".to_owned(), "2027-01".to_owned())
        );
        assert_eq!(Month::parse("2027-01"), Some(first));
        for text in ["", "2027", "2027-00", "2027-13", "0-1", "2027-1-1", "x-y"] {
            assert_eq!(Month::parse(text), None, "{text}");
        }
    }
}
