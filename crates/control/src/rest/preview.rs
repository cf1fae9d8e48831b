//! The changes that a reload would make, read no more often than they may change.

use std::time::{Duration, Instant, SystemTime};

use tokio::sync::Mutex;

use crate::reload::{Changes, Reloadable};

/// A reading is as good as new for so long: reading costs the disk, and anyone may ask.
const READ_AGAIN: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(super) struct Preview(Mutex<Option<Reading>>);

#[derive(Debug)]
struct Reading {
    at: Instant,
    /// When the latest reload before it was over: a newer one makes it worthless.
    after: Option<SystemTime>,
    result: Result<Changes, String>,
}

impl Preview {
    /// Reads the configuration, unless that was done a moment ago. One at a time.
    pub(super) async fn of(&self, reload: &dyn Reloadable) -> Result<Changes, String> {
        let mut latest = self.0.lock().await;
        let after = reload.state().latest().map(|outcome| outcome.at);
        if let Some(reading) = &*latest
            && reading.at.elapsed() < READ_AGAIN
            && reading.after == after
        {
            return reading.result.clone();
        }
        let result = reload.would_change().await;
        *latest = Some(Reading {
            at: Instant::now(),
            after,
            result: result.clone(),
        });
        result
    }
}
