//! Numbers that whoever runs the tests may give.

use std::str::FromStr;

use anyhow::{Context as _, Result};

/// The number in that variable, or `unasked` where it is not set.
///
/// # Errors
///
/// Where it is set to what is no number: that would be a test other than the one asked for.
pub fn number<T: FromStr>(name: &str, unasked: T) -> Result<T> {
    let Some(text) = std::env::var_os(name) else {
        return Ok(unasked);
    };
    let number = text.to_str().and_then(|text| text.parse().ok());
    number.with_context(|| format!("{name} is {}, and should be a number", text.display()))
}
