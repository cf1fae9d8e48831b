//! Numbers, times and sizes as text for people.

use std::time::Duration;

pub(super) fn count(number: usize, what: &str) -> String {
    match number {
        1 => format!("1 {what}"),
        _ => format!("{number} {what}s"),
    }
}

/// Returns an age in its two largest units.
pub(super) fn age(seconds: f64) -> String {
    let seconds = Duration::try_from_secs_f64(seconds).map_or(0, |age| age.as_secs());
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, _) => format!("{minutes}m{:02}s", seconds % 60),
        (0, ..) => format!("{hours}h{:02}m", minutes % 60),
        _ => format!("{days}d{:02}h", hours % 24),
    }
}

/// Returns a duration: exact below a minute, else like [`age`].
pub(super) fn time(seconds: f64) -> String {
    if seconds < 1.0 {
        format!("{:.0} ms", seconds * 1000.0)
    } else if seconds < 60.0 {
        format!("{seconds} s")
    } else {
        age(seconds)
    }
}

pub(super) fn milliseconds(seconds: f64) -> String {
    let ms = seconds * 1000.0;
    if ms < 10.0 {
        format!("{ms:.1} ms")
    } else {
        format!("{ms:.0} ms")
    }
}

pub(super) fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

#[expect(clippy::cast_precision_loss, reason = "only three digits are shown")]
pub(super) fn bytes(number: u64) -> String {
    amount(number as f64)
}

/// Returns a size with at most three digits and a decimal unit.
pub(super) fn amount(bytes: f64) -> String {
    let mut value = bytes;
    for unit in ["B", "kB", "MB", "GB"] {
        if value < 999.5 {
            return if unit == "B" || value >= 99.95 {
                format!("{value:.0} {unit}")
            } else {
                format!("{value:.1} {unit}")
            };
        }
        value /= 1000.0;
    }
    format!("{value:.1} TB")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_and_ages_two_units() {
        for (number, text) in [
            (0, "0 B"),
            (999, "999 B"),
            (1000, "1.0 kB"),
            (99_949, "99.9 kB"),
            (99_950, "100 kB"),
            (999_499, "999 kB"),
            (999_500, "1.0 MB"),
            (1_000_000_000, "1.0 GB"),
            (5_000_000_000_000, "5.0 TB"),
        ] {
            assert_eq!(bytes(number), text, "{number}");
        }
        for (seconds, text) in [
            (0.9, "0s"),
            (59.9, "59s"),
            (61.0, "1m01s"),
            (3599.0, "59m59s"),
            (7325.0, "2h02m"),
            (200_000.0, "2d07h"),
            (-1.0, "0s"),
        ] {
            assert_eq!(age(seconds), text, "{seconds}");
        }
        for (seconds, text) in [
            (0.02, "20 ms"),
            (1.5, "1.5 s"),
            (30.0, "30 s"),
            (600.0, "10m00s"),
        ] {
            assert_eq!(time(seconds), text, "{seconds}");
        }
    }
}
