//! Texts that are values of options, where no type of its own reads them.

use std::fmt::Display;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use quictun_link::units::{Delay, Rate, Size};

use crate::options::Why;

/// Any text.
pub fn text(text: &str) -> Result<String, Why> {
    Ok(text.to_owned())
}

/// A path.
pub fn path(text: &str) -> Result<PathBuf, Why> {
    Ok(text.into())
}

/// What a type reads itself.
pub fn parsed<T: FromStr<Err: Display>>(text: &str) -> Result<T, Why> {
    Ok(text.parse()?)
}

/// An IP address.
pub fn address(text: &str) -> Result<IpAddr, Why> {
    let address = text.parse();
    address.map_err(|_| format!("{text:?} is no IP address").into())
}

/// The spellings that Go's `strconv.ParseBool` takes.
pub fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

/// The value of a switch.
pub fn switch(text: &str) -> Result<bool, Why> {
    parse_bool(text).ok_or_else(|| format!("{text:?} is neither true nor false").into())
}

/// A whole number within limits.
pub fn number<T: FromStr + Display + PartialOrd>(
    text: &str,
    limits: RangeInclusive<T>,
) -> Result<T, Why> {
    let number = text.parse().ok().filter(|number| limits.contains(number));
    number.ok_or_else(|| {
        let (start, end) = (limits.start(), limits.end());
        format!("{text:?} is not a whole number from {start} to {end}").into()
    })
}

/// A whole number within limits, or `None` for the word `auto`.
pub fn number_or_auto<T: FromStr + Display + PartialOrd>(
    text: &str,
    limits: RangeInclusive<T>,
) -> Result<Option<T>, Why> {
    match text {
        "auto" => Ok(None),
        _ => match number(text, limits) {
            Ok(number) => Ok(Some(number)),
            Err(Why(why)) => Err(format!("{why}, or auto").into()),
        },
    }
}

/// A time, such as `1.5ms`.
pub fn time(text: &str) -> Result<Duration, Why> {
    let Delay(time) = text.parse()?;
    Ok(time)
}

/// A time between two others.
pub fn time_between(text: &str, lowest: &str, highest: &str) -> Result<Duration, Why> {
    between(text, lowest, highest).map(|Delay(time)| time)
}

/// A size in bytes, such as `64KiB`.
pub fn size(text: &str) -> Result<u64, Why> {
    let Size(bytes) = text.parse()?;
    Ok(bytes)
}

/// A size between two others.
pub fn size_between(text: &str, lowest: &str, highest: &str) -> Result<u64, Why> {
    between(text, lowest, highest).map(|Size(bytes)| bytes)
}

/// A rate between two others, bytes a second.
pub fn rate_between(text: &str, lowest: &str, highest: &str) -> Result<u64, Why> {
    between(text, lowest, highest).map(|Rate(bytes)| bytes)
}

fn between<T: FromStr<Err: Display> + PartialOrd>(
    text: &str,
    lowest: &str,
    highest: &str,
) -> Result<T, Why> {
    let value: T = text.parse()?;
    if value < lowest.parse()? || value > highest.parse()? {
        return Err(format!("must lie between {lowest} and {highest}").into());
    }
    Ok(value)
}
