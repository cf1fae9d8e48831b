//! Rates, times, shares and sizes as people write them, in the flags, files and scenarios of the whole product.
//!
//! | type | examples |
//! |---|---|
//! | [`Rate`] | `600mbit` `1.5gbit` `100kbit` `75MB/s` `9600bit` |
//! | [`Delay`] | `1.5ms` `20us` `2s` `700ns` `1m30s` `1h` `7d` `0` |
//! | [`Share`] | `0.1%` `0.001` `1%` `0` |
//! | [`Size`] | `4096` `64kB` `1.5GiB` `64M` |
//! | [`Queue`] | `64kB` `1MiB` `1500B` `100p` `unlimited` |
//!
//! Each type parses its own output to the same value. Letters may be upper or lower case, with one exception: `B` is a
//! byte, and `b`, as in `mb`, is rejected because some people mean bits. Prefixes count in steps of 1000; `KiB`, `MiB`,
//! `GiB` and `TiB`, and `K`, `M`, `G` and `T` alone, count in steps of 1024.

mod number;
#[cfg(test)]
mod tests;

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use self::number::{Decimal, format_in_units, split};
use crate::config::Queue;

/// A rate in bytes per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rate(pub u64);

/// A length of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Delay(pub Duration);

/// A size in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

/// A share of all packets, 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Share(pub f64);

/// The error for a text that is not a valid value of its type. Its message shows an example.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not {what}; write it like {example}")]
pub struct UnitError {
    what: &'static str,
    text: String,
    example: &'static str,
}

impl UnitError {
    fn new(text: &str, what: &'static str, example: &'static str) -> Self {
        let mut shown: String = text.chars().take(MAX_SHOWN).collect();
        if shown.len() < text.len() {
            shown.push('…');
        }
        Self {
            what,
            text: shown,
            example,
        }
    }
}

impl FromStr for Rate {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let bits = || {
            let (number, unit) = split(text)?;
            let bits_per_unit = match unit.strip_suffix("B/s") {
                Some(prefix) => 8 * decimal_prefix(prefix)?,
                None => match unit.to_ascii_lowercase().as_str() {
                    "bit" | "bit/s" | "bps" => 1,
                    "kbit" | "kbit/s" | "kbps" => KILO,
                    "mbit" | "mbit/s" | "mbps" => MEGA,
                    "gbit" | "gbit/s" | "gbps" => GIGA,
                    _ => return None,
                },
            };
            Decimal::parse(number)?.times(bits_per_unit)
        };
        let error = || UnitError::new(text, "a rate", "600mbit, 1.5gbit, 100kbit or 75MB/s");
        Ok(Self(bits().ok_or_else(error)? / 8))
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = u128::from(self.0) * 8;
        let units = [(GIGA, "gbit"), (MEGA, "mbit"), (KILO, "kbit"), (1, "bit")];
        f.write_str(&format_in_units(bits, &units, f.precision()))
    }
}

impl FromStr for Delay {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let nanos = || {
            let mut rest = text.trim();
            let mut total = 0u64;
            loop {
                let (number, after) = split(rest)?;
                let end = after.find(|c: char| !c.is_alphabetic());
                let (unit, after) = after.split_at(end.unwrap_or(after.len()));
                let number = Decimal::parse(number)?;
                let nanos_per_unit = match unit.to_ascii_lowercase().as_str() {
                    "ns" => 1,
                    "us" | "µs" => KILO,
                    "ms" => MEGA,
                    "s" => GIGA,
                    "m" => 60 * GIGA,
                    "h" => 3600 * GIGA,
                    "d" => 24 * 3600 * GIGA,
                    "" if number.is_zero() && rest.len() == text.trim().len() => 1,
                    _ => return None,
                };
                total = total.checked_add(number.times(nanos_per_unit)?)?;
                if after.is_empty() {
                    return Some(total);
                }
                rest = after;
            }
        };
        let error = || UnitError::new(text, "a time", "1.5ms, 30s, 1m30s, 12h or 7d");
        Ok(Self(Duration::from_nanos(nanos().ok_or_else(error)?)))
    }
}

impl fmt::Display for Delay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(GIGA, "s"), (MEGA, "ms"), (KILO, "us"), (1, "ns")];
        f.write_str(&format_in_units(self.0.as_nanos(), &units, f.precision()))
    }
}

impl FromStr for Share {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let share = || {
            let (number, unit) = split(text)?;
            // Only validates the syntax. The value is parsed from the text, so that it is rounded once.
            Decimal::parse(number)?;
            let scaled = match unit {
                "%" => format!("{number}e-2"),
                "" => number.to_owned(),
                _ => return None,
            };
            scaled
                .parse()
                .ok()
                .filter(|share| (0.0..=1.0).contains(share))
        };
        let error = || UnitError::new(text, "a share of the packets, 0% to 100%", "0.1% or 0.001");
        share().ok_or_else(error).map(Self)
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(precision) = f.precision() {
            return write!(f, "{:.precision$}%", self.0 * 100.0);
        }
        // Shifts the decimal point in the text, because a product is rounded: 0.003 * 100.0 is not 0.3.
        let scientific = format!("{:e}", self.0);
        let percent = scientific.split_once('e').and_then(|(digits, exponent)| {
            let exponent: i32 = exponent.parse().ok()?;
            format!("{digits}e{}", exponent + 2).parse::<f64>().ok()
        });
        write!(f, "{}%", percent.unwrap_or(self.0 * 100.0))
    }
}

impl FromStr for Size {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let bytes = || {
            let (number, unit) = split(text)?;
            let number = Decimal::parse(number)?;
            // A fraction of a byte is a typing error.
            let is_bytes = matches!(unit, "" | "B");
            (number.is_whole() || !is_bytes).then(|| number.times(bytes_of(unit)?))?
        };
        let error = || UnitError::new(text, "a size", "64KiB, 8MiB or 1.5GiB");
        bytes().ok_or_else(error).map(Self)
    }
}

impl FromStr for Queue {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        if text.trim() == UNLIMITED {
            return Ok(Self::default());
        }
        let queue = || {
            let (number, unit) = split(text)?;
            let number = Decimal::parse(number)?;
            let size = |unit| usize::try_from(number.times(unit)?).ok();
            if matches!(unit, "p" | "packets") {
                return number
                    .is_whole()
                    .then(|| size(1))
                    .flatten()
                    .map(Self::Packets);
            }
            // Rejects a number without a unit, because it could mean bytes or packets.
            let unit = if unit.is_empty() {
                None
            } else {
                bytes_of(unit)
            };
            size(unit?).map(Self::Bytes)
        };
        let error = || UnitError::new(text, "a size", "64kB, 1MiB or, in packets, 100p");
        queue().ok_or_else(error)
    }
}

impl fmt::Display for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Packets(packets) => write!(f, "{packets}p"),
            Self::Bytes(usize::MAX) => f.write_str(UNLIMITED),
            Self::Bytes(bytes) => {
                let units = [
                    (1_000_000, "MB"),
                    (1000, "kB"),
                    (1 << 20, "MiB"),
                    (1 << 10, "KiB"),
                    (1, "B"),
                ];
                let whole = units
                    .iter()
                    .find(|(unit, _)| bytes % unit == 0 && bytes > 0);
                let (unit, name) = whole.unwrap_or(&(1, "B"));
                write!(f, "{}{name}", bytes / unit)
            }
        }
    }
}

/// Returns the bytes in one unit of size. An empty unit means bytes.
fn bytes_of(unit: &str) -> Option<u64> {
    match unit {
        "K" | "KiB" | "kiB" => Some(1 << 10),
        "M" | "MiB" => Some(1 << 20),
        "G" | "GiB" => Some(1 << 30),
        "T" | "TiB" => Some(1 << 40),
        "" => Some(1),
        _ => decimal_prefix(unit.strip_suffix('B')?),
    }
}

fn decimal_prefix(prefix: &str) -> Option<u64> {
    match prefix {
        "" => Some(1),
        "k" | "K" => Some(KILO),
        "M" => Some(MEGA),
        "G" => Some(GIGA),
        "T" => Some(1000 * GIGA),
        _ => None,
    }
}

const UNLIMITED: &str = "unlimited";

const KILO: u64 = 1000;
const MEGA: u64 = 1_000_000;
const GIGA: u64 = 1_000_000_000;

/// Characters of a rejected text that an error message repeats; enough for any value that could be meant.
const MAX_SHOWN: usize = 40;
