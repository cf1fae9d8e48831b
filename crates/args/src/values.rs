//! Parsers for option values that have no type of their own.

use std::fmt::Display;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use quictun_link::units::{Delay, Rate, Size};

use crate::options::InvalidValue;

/// Accepts any text, without a check.
pub fn text(text: &str) -> Result<String, InvalidValue> {
    Ok(text.to_owned())
}

/// Accepts any text as a path.
pub fn path(text: &str) -> Result<PathBuf, InvalidValue> {
    Ok(text.into())
}

/// Parses the text with its type's own `FromStr`.
pub fn parsed<T: FromStr<Err: Display>>(text: &str) -> Result<T, InvalidValue> {
    Ok(text.parse()?)
}

/// Parses an IP address.
pub fn address(text: &str) -> Result<IpAddr, InvalidValue> {
    let address = text.parse();
    address.map_err(|_| format!("{text:?} is not an IP address").into())
}

/// Parses the spellings of a truth value that Go's `strconv.ParseBool` accepts.
pub fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

/// Parses the value of a switch.
pub fn switch(text: &str) -> Result<bool, InvalidValue> {
    parse_bool(text).ok_or_else(|| format!("{text:?} is neither true nor false").into())
}

/// Parses a whole number within limits.
pub fn number<T: FromStr + Display + PartialOrd>(
    text: &str,
    limits: RangeInclusive<T>,
) -> Result<T, InvalidValue> {
    let number = text.parse().ok().filter(|number| limits.contains(number));
    number.ok_or_else(|| {
        let (start, end) = (limits.start(), limits.end());
        format!("{text:?} is not a whole number from {start} to {end}").into()
    })
}

/// Parses a whole number within limits, or returns `None` for the word `auto`.
pub fn number_or_auto<T: FromStr + Display + PartialOrd>(
    text: &str,
    limits: RangeInclusive<T>,
) -> Result<Option<T>, InvalidValue> {
    match text {
        "auto" => Ok(None),
        _ => match number(text, limits) {
            Ok(number) => Ok(Some(number)),
            Err(InvalidValue(why)) => Err(format!("{why}, or auto").into()),
        },
    }
}

/// Parses a time, such as `1.5ms`.
pub fn time(text: &str) -> Result<Duration, InvalidValue> {
    let Delay(time) = text.parse()?;
    Ok(time)
}

/// Parses a time from `lowest` to `highest`.
pub fn time_between(text: &str, lowest: &str, highest: &str) -> Result<Duration, InvalidValue> {
    between(text, lowest, highest).map(|Delay(time)| time)
}

/// Parses a size in bytes, such as `64KiB`.
pub fn size(text: &str) -> Result<u64, InvalidValue> {
    let Size(bytes) = text.parse()?;
    Ok(bytes)
}

/// Parses a size from `lowest` to `highest`, bytes.
pub fn size_between(text: &str, lowest: &str, highest: &str) -> Result<u64, InvalidValue> {
    between(text, lowest, highest).map(|Size(bytes)| bytes)
}

/// Parses a rate from `lowest` to `highest`. Returns bytes per second.
pub fn rate_between(text: &str, lowest: &str, highest: &str) -> Result<u64, InvalidValue> {
    between(text, lowest, highest).map(|Rate(bytes)| bytes)
}

fn between<T: FromStr<Err: Display> + PartialOrd>(
    text: &str,
    lowest: &str,
    highest: &str,
) -> Result<T, InvalidValue> {
    let value: T = text.parse()?;
    if value < lowest.parse()? || value > highest.parse()? {
        return Err(format!("must lie between {lowest} and {highest}").into());
    }
    Ok(value)
}
