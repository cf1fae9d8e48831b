//! Byte sizes and durations with units, as people write them in flags and files.

use std::time::Duration;

use thiserror::Error;

/// Why a text is no size or duration. Each message says what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum UnitError {
    /// No digits where a number should start.
    #[error("{text:?} is not a size: write a whole number and a unit, as in 64KiB, 8MiB, 1GiB")]
    NotASize {
        /// As given.
        text: String,
    },
    /// No digits where a number should start.
    #[error(
        "{text:?} is not a duration: write whole numbers and units, as in 500ms, 30s, 2m, 1m30s"
    )]
    NotADuration {
        /// As given.
        text: String,
    },
    /// A number alone says nothing about time.
    #[error("{text:?} has no unit: write {text}ms, {text}s or {text}m")]
    NoUnit {
        /// As given.
        text: String,
    },
    /// More than 64 bits hold.
    #[error("{text:?} is too large")]
    TooLarge {
        /// As given.
        text: String,
    },
}

/// Reads a size in bytes: `4096`, `64KiB`, `8MiB`, `1GiB` (powers of 1024), `64kB`, `8MB`, `1GB` (powers
/// of 1000). A bare `K` or `M` is refused, because people disagree on what it means.
pub fn parse_size(text: &str) -> Result<u64, UnitError> {
    let (number, unit) = split_number(text);
    let factor: u64 = match unit.trim_start() {
        "" | "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        "TiB" => 1 << 40,
        "kB" | "KB" => 1_000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        "TB" => 1_000_000_000_000,
        _ => {
            return Err(UnitError::NotASize {
                text: text.to_owned(),
            });
        }
    };
    if number.is_empty() {
        return Err(UnitError::NotASize {
            text: text.to_owned(),
        });
    }
    let too_large = || UnitError::TooLarge {
        text: text.to_owned(),
    };
    let number: u64 = number.parse().map_err(|_| too_large())?;
    number.checked_mul(factor).ok_or_else(too_large)
}

/// Reads a duration: one or more whole numbers, each with `us`, `ms`, `s`, `m` or `h`.
pub fn parse_duration(text: &str) -> Result<Duration, UnitError> {
    let not_a_duration = || UnitError::NotADuration {
        text: text.to_owned(),
    };
    let too_large = || UnitError::TooLarge {
        text: text.to_owned(),
    };
    let mut total = Duration::ZERO;
    let mut rest = text;
    loop {
        let (number, after) = split_number(rest);
        if number.is_empty() {
            return Err(not_a_duration());
        }
        let unit_len = after
            .find(|c: char| !c.is_ascii_alphabetic())
            .unwrap_or(after.len());
        let (unit, after) = after.split_at(unit_len);
        let number: u64 = number.parse().map_err(|_| too_large())?;
        let part = match unit {
            "us" => Duration::from_micros(number),
            "ms" => Duration::from_millis(number),
            "s" => Duration::from_secs(number),
            "m" => Duration::from_secs(number.checked_mul(60).ok_or_else(too_large)?),
            "h" => Duration::from_secs(number.checked_mul(3600).ok_or_else(too_large)?),
            "" if after.is_empty() => {
                return Err(UnitError::NoUnit {
                    text: text.to_owned(),
                });
            }
            _ => return Err(not_a_duration()),
        };
        total = total.checked_add(part).ok_or_else(too_large)?;
        if after.is_empty() {
            return Ok(total);
        }
        rest = after;
    }
}

fn split_number(text: &str) -> (&str, &str) {
    text.split_at(
        text.find(|c: char| !c.is_ascii_digit())
            .unwrap_or(text.len()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_in_binary_and_decimal_units() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("17B", 17),
            ("64KiB", 65_536),
            ("64 KiB", 65_536),
            ("8MiB", 8 << 20),
            ("1GiB", 1 << 30),
            ("2TiB", 2 << 40),
            ("64kB", 64_000),
            ("64KB", 64_000),
            ("3MB", 3_000_000),
            ("1GB", 1_000_000_000),
            ("1TB", 1_000_000_000_000),
            ("18446744073709551615", u64::MAX),
            ("16777215TiB", 16_777_215 << 40),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_says_so() {
        for text in [
            "", "KiB", "64K", "64kib", "1.5GiB", "-1", "1GiBx", "1 GiB 2", "0x10",
        ] {
            assert_eq!(
                parse_size(text),
                Err(UnitError::NotASize {
                    text: text.to_owned()
                }),
                "{text}"
            );
        }
        for text in ["18446744073709551616", "16777216TiB"] {
            assert_eq!(
                parse_size(text),
                Err(UnitError::TooLarge {
                    text: text.to_owned()
                }),
                "{text}"
            );
        }
    }

    #[test]
    fn durations_are_sums_of_numbers_with_units() {
        for (text, duration) in [
            ("0s", Duration::ZERO),
            ("250us", Duration::from_micros(250)),
            ("500ms", Duration::from_millis(500)),
            ("30s", Duration::from_secs(30)),
            ("2m", Duration::from_mins(2)),
            ("1h", Duration::from_hours(1)),
            ("1m30s", Duration::from_secs(90)),
            ("1s500ms", Duration::from_millis(1500)),
        ] {
            assert_eq!(parse_duration(text), Ok(duration), "{text}");
        }
    }

    #[test]
    fn what_is_no_duration_says_so() {
        for text in [
            "", "s", "1.5s", "30 s", "30x", "30S", "-1s", "1m ", "5min", "1m-3s",
        ] {
            assert_eq!(
                parse_duration(text),
                Err(UnitError::NotADuration {
                    text: text.to_owned()
                }),
                "{text}"
            );
        }
        for text in ["30", "1m30"] {
            assert_eq!(
                parse_duration(text),
                Err(UnitError::NoUnit {
                    text: text.to_owned()
                }),
                "{text}"
            );
        }
        for text in [
            "18446744073709551616s",
            "18446744073709551615m",
            "18446744073709551615s1s",
        ] {
            assert_eq!(
                parse_duration(text),
                Err(UnitError::TooLarge {
                    text: text.to_owned()
                }),
                "{text}"
            );
        }
    }
}
