//! Caches the changes that a reload would make, so that requests do not read the configuration too often.

use std::time::{Duration, Instant, SystemTime};

use tokio::sync::Mutex;

use crate::reload::{Changes, Reloadable};

/// Age up to which a reading counts as current. Reading uses the disk, and anyone may request it.
const READ_AGAIN: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(super) struct Preview(Mutex<Option<CachedPreview>>);

#[derive(Debug)]
struct CachedPreview {
    at: Instant,
    /// The time of the latest reload before this reading. A later reload makes the reading stale.
    after: Option<SystemTime>,
    result: Result<Changes, String>,
}

impl Preview {
    /// Reads the configuration, unless a current reading exists. Only one caller at a time reads.
    pub(super) async fn of(&self, reload: &dyn Reloadable) -> Result<Changes, String> {
        let mut latest = self.0.lock().await;
        let after = reload.state().get().map(|outcome| outcome.at);
        if let Some(reading) = &*latest
            && reading.at.elapsed() < READ_AGAIN
            && reading.after == after
        {
            return reading.result.clone();
        }
        let result = reload.would_change().await;
        *latest = Some(CachedPreview {
            at: Instant::now(),
            after,
            result: result.clone(),
        });
        result
    }
}
