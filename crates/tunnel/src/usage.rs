//! Stores the clients' usage of the current month across restarts.
//!
//! A file in the state directory holds the usage. It is replaced as a whole, at most every [`WRITE_TICKS`] seconds
//! while the usage changes, when a client has used up its quota, and at the end. A process that is killed loses the
//! usage since the last write. A damaged file is kept under another name, and counting starts at zero. If the system
//! does not allow reading the file, nothing is written either, because the file still holds the usage. Each of these
//! cases logs one line.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime};

use tokio::time::{MissedTickBehavior, interval};
use tracing::{error, info, warn};

use crate::allowances::Allowances;
use crate::damaged_file;
use crate::disk_queue::STORE;
use quictun_trust::enrolment::{Directory, StateFile};
use quictun_trust::keeper::{self, ReadError};
use quictun_trust::limits::Month;

/// Ticks between two writes: less than the 10 s of usage that a crash may lose.
const WRITE_TICKS: u64 = 9;
const TICK: Duration = Duration::from_secs(1);

/// Ticks after which a month earlier than the stored one is accepted: six hours. A clock that was wrong when the month
/// began is correct by then.
const EARLIER_MONTH_TICKS: u64 = 6 * 3600;

/// Longest wait for the disk at the end of the process. A disk that hangs for less loses no usage.
const END_TIMEOUT: Duration = Duration::from_mins(2);

/// Maximum size of the file to read, bytes: 100 000 clients.
const FILE_MAX: u64 = 16 << 20;

/// The content of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
struct UsageRecord {
    month: Month,
    /// Used bytes by client name.
    clients: BTreeMap<String, u64>,
}

/// Stores the usage of clients.
#[derive(Debug)]
pub(crate) struct UsageStore {
    allowances: Allowances,
    directory: Directory,
    stored: UsageRecord,
    /// Number of clients that had used up their quota at the last write.
    used_up: usize,
    /// Ticks since the last write.
    ticks: u64,
    /// Ticks for which the clock has shown an earlier month than the stored one.
    earlier: u64,
    /// The last write failed and was logged.
    fails: bool,
    /// The file could not be read, and stays unchanged.
    unread: bool,
}

impl UsageStore {
    /// Reads the file. Call it while the process can still open files.
    pub(crate) fn open(allowances: Allowances, directory: Directory) -> Self {
        let month = Month::of(SystemTime::now());
        let path = directory.state_file(StateFile::Usage);
        let mut unread = false;
        let stored = match keeper::read_entry(&path, FILE_MAX) {
            Ok(text) => UsageRecord::decode(&text).or_else(|| {
                set_aside(&path);
                None
            }),
            Err(ReadError::TooLarge { .. } | ReadError::NotRegular) => {
                set_aside(&path);
                None
            }
            Err(ReadError::Io(error)) if error.kind() == io::ErrorKind::NotFound => None,
            Err(ReadError::Io(cause)) => {
                error!(target: "quictun", path = %path.display(), %cause, "the usage of clients in this month cannot be read: counting starts at zero and is not stored");
                unread = true;
                None
            }
        };
        // A later month is kept: the clock may be wrong at the start of a machine, and the usage is real.
        let stored = stored.filter(|stored| stored.month >= month);
        let clients = BTreeMap::new();
        let stored = stored.unwrap_or(UsageRecord { month, clients });
        allowances.set_used(&stored.clients);
        Self {
            allowances,
            directory,
            stored,
            used_up: 0,
            ticks: 0,
            earlier: 0,
            fails: false,
            unread,
        }
    }

    /// Continues with the usage that another process has counted, which may be later than the stored one.
    pub(crate) fn take_over(&mut self, month: &str, used: &BTreeMap<String, u64>) {
        if Month::parse(month).is_some_and(|month| month >= self.stored.month) {
            self.allowances.set_used(used);
        }
    }

    /// Stores the usage periodically, and resets it every month. Never returns.
    ///
    /// # Cancel safety
    ///
    /// Safe to drop: [`UsageStore::end`] stores the remaining usage.
    pub(crate) async fn run(&mut self) {
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.begin_month(Month::of(SystemTime::now()));
            if let Some(stored) = self.due() {
                let written = self.write(&stored).await;
                self.finish_write(stored, written);
            }
        }
    }

    /// Stores the remaining usage, for at most [`END_TIMEOUT`].
    pub(crate) async fn end(mut self) {
        let stored = self.now();
        if self.allowances.has_quotas() && !self.unread && stored != self.stored {
            let written = tokio::time::timeout(END_TIMEOUT, self.write(&stored)).await;
            let written = written.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
            self.finish_write(stored, written);
        }
    }

    async fn write(&self, stored: &UsageRecord) -> io::Result<()> {
        let (directory, content) = (self.directory.clone(), stored.encode());
        let written = STORE.run(move || keeper::store(&directory, StateFile::Usage, &content));
        written.await.unwrap_or_else(|error| Err(error.into()))
    }

    fn begin_month(&mut self, month: Month) {
        let earlier = month < self.stored.month;
        self.earlier = if earlier { self.earlier + 1 } else { 0 };
        if self.earlier > EARLIER_MONTH_TICKS {
            self.stored.month = month;
        }
        if month > self.stored.month {
            info!(target: "quictun", %month, "a month has begun: clients may use their quotas again");
            self.allowances.set_used(&BTreeMap::new());
            self.stored.month = month;
            self.used_up = 0;
        }
    }

    /// Returns the content to store now, if a write is due.
    fn due(&mut self) -> Option<UsageRecord> {
        self.ticks += 1;
        if !self.allowances.has_quotas() || self.unread {
            return None;
        }
        let used_up = self.count_used_up();
        if self.ticks < WRITE_TICKS && used_up <= self.used_up {
            return None;
        }
        let stored = self.now();
        (stored != self.stored).then_some(stored)
    }

    fn now(&self) -> UsageRecord {
        let used = self.allowances.used().into_iter();
        UsageRecord {
            month: self.stored.month,
            clients: used.map(|(name, usage)| (name, usage.used)).collect(),
        }
    }

    fn count_used_up(&self) -> usize {
        let used = self.allowances.used().into_values();
        used.filter(|usage| usage.limits.quota.is_some_and(|quota| usage.used >= quota))
            .count()
    }

    fn finish_write(&mut self, stored: UsageRecord, written: io::Result<()>) {
        self.ticks = 0;
        match written {
            Ok(()) => {
                self.used_up = self.count_used_up();
                self.stored = stored;
                self.fails = false;
            }
            Err(cause) if !self.fails => {
                self.fails = true;
                let path = self.directory.state_file(StateFile::Usage);
                warn!(target: "quictun", path = %path.display(), %cause, "the usage of clients in this month cannot be stored: a restart would lose it");
            }
            Err(_) => {}
        }
    }
}

impl UsageRecord {
    fn encode(&self) -> Vec<u8> {
        let value = serde_json::json!({
            "version": 1,
            "month": self.month.to_string(),
            "used_bytes": self.clients,
        });
        let mut text = format!("{value:#}");
        text.push('\n');
        text.into_bytes()
    }

    fn decode(text: &[u8]) -> Option<Self> {
        let value: serde_json::Value = serde_json::from_slice(text).ok()?;
        let known = value.get("version")?.as_u64()? == 1;
        let month = Month::parse(value.get("month")?.as_str()?)?;
        let clients = value.get("used_bytes")?.as_object()?.iter();
        let clients = clients.map(|(name, bytes)| Some((name.clone(), bytes.as_u64()?)));
        let clients = clients.collect::<Option<_>>()?;
        known.then_some(Self { month, clients })
    }
}

fn set_aside(path: &Path) {
    let kept_as = damaged_file::set_aside(path);
    error!(target: "quictun", path = %path.display(), kept_as, "the file with the usage of clients in this month is damaged: counting starts at zero");
}

#[cfg(test)]
mod tests;
