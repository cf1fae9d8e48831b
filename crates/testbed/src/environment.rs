//! Numbers that environment variables can set for a test run.

use std::str::FromStr;

use anyhow::{Context as _, Result};

/// Returns the number in the variable `name`, or `unasked` if the variable is not set.
///
/// # Errors
///
/// Fails if the variable is set but is not a number: the run would otherwise not be the one that was requested.
pub fn number<T: FromStr>(name: &str, unasked: T) -> Result<T> {
    let Some(text) = std::env::var_os(name) else {
        return Ok(unasked);
    };
    let number = text.to_str().and_then(|text| text.parse().ok());
    number.with_context(|| format!("{name} is {}, which is not a number", text.display()))
}
