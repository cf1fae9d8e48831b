//! Waits for a condition with a deadline.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// The interval between two checks: short relative to any deadline, long relative to the cost of a check.
const PERIOD: Duration = Duration::from_millis(5);

/// Calls `look` until it finds something, and returns that.
///
/// # Errors
///
/// Fails after `within` with a message that names `what`. Fails at once if `look` fails.
pub fn wait<T>(
    what: &str,
    within: Duration,
    mut look: impl FnMut() -> Result<Option<T>>,
) -> Result<T> {
    let start = Instant::now();
    loop {
        if let Some(found) = look()? {
            return Ok(found);
        }
        if start.elapsed() > within {
            bail!("waited {within:?} for {what}, which did not happen");
        }
        std::thread::park_timeout(PERIOD);
    }
}

/// Calls `holds` until it returns true.
///
/// # Errors
///
/// Fails after `within` with a message that names `what`.
pub fn until(what: &str, within: Duration, mut holds: impl FnMut() -> bool) -> Result<()> {
    wait(what, within, || Ok(holds().then_some(())))
}
