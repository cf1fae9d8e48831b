//! Waiting for something to become true, and no longer than told.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// Time between two looks: short against any deadline, long against the cost of looking.
const PERIOD: Duration = Duration::from_millis(5);

/// Looks until `look` finds something, which is returned.
///
/// # Errors
///
/// After `within`, naming `what` was waited for; at once where `look` fails.
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
            bail!("waited {within:?} in vain for {what}");
        }
        std::thread::park_timeout(PERIOD);
    }
}

/// Looks until `holds` is true.
///
/// # Errors
///
/// After `within`, naming `what` was waited for.
pub fn until(what: &str, within: Duration, mut holds: impl FnMut() -> bool) -> Result<()> {
    wait(what, within, || Ok(holds().then_some(())))
}
