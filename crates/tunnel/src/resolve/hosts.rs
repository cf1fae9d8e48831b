//! The names that the machine knows by itself: those in its hosts file.
//!
//! The file is only used to find out which names need no DNS server. The system's resolver finds their addresses, as
//! nsswitch.conf configures.

use std::collections::HashSet;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use crate::lookup_threads;

const FILE: &str = "/etc/hosts";

#[derive(Debug)]
pub(super) struct Hosts {
    path: PathBuf,
    parsed: Mutex<ParsedHosts>,
}

/// Inode, modification time and length of the file.
type Version = (u64, SystemTime, u64);

#[derive(Debug, Default)]
struct ParsedHosts {
    version: Option<Version>,
    names: HashSet<String>,
}

impl Hosts {
    pub(super) fn of_system() -> Self {
        Self::at(FILE.into())
    }

    pub(super) fn at(path: PathBuf) -> Self {
        Self {
            path,
            parsed: Mutex::default(),
        }
    }

    #[cfg(test)]
    pub(super) fn none() -> Self {
        Self::at(PathBuf::new())
    }

    /// Returns whether the file has exactly this name, in any case. `localhost.` with a dot goes to the DNS.
    pub(super) async fn know(&self, name: &str) -> bool {
        let version = version(&self.path);
        if self.parsed().version != version {
            let path = self.path.clone();
            // An unreadable file has no names: DNS is asked, in its own places.
            let text = lookup_threads::run(move || std::fs::read(path).unwrap_or_default()).await;
            let text = text.unwrap_or_default();
            let mut parsed = self.parsed();
            parsed.names = names(&String::from_utf8_lossy(&text));
            parsed.version = version;
        }
        self.parsed().names.contains(&name.to_ascii_lowercase())
    }

    fn parsed(&self) -> MutexGuard<'_, ParsedHosts> {
        self.parsed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns what tells one version of the file from another. A file that does not exist has none. The inode differs even
/// if a file is replaced within the clock's resolution.
fn version(path: &Path) -> Option<Version> {
    let file = std::fs::metadata(path).ok()?;
    Some((file.ino(), file.modified().ok()?, file.len()))
}

fn names(text: &str) -> HashSet<String> {
    text.lines()
        .filter_map(|line| line.split('#').next())
        .flat_map(|line| line.split_whitespace().skip(1))
        .map(str::to_ascii_lowercase)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_all_words_after_an_address() {
        let text = "127.0.0.1\tlocalhost Local # not this\n#127.0.0.1 nor.this\n\n::1 ip6-localhost\n10.0.0.1\n";
        let expected = ["localhost", "local", "ip6-localhost"].map(str::to_owned);
        assert_eq!(names(text), HashSet::from(expected));
    }

    fn know(hosts: &Hosts, name: &str) -> bool {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        runtime.expect("a runtime").block_on(hosts.know(name))
    }

    #[test]
    fn a_changed_file_is_read_again() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let hosts = Hosts::at(file.path().to_owned());
        assert!(!know(&hosts, "db"));
        std::fs::write(file.path(), "10.0.0.1 db\n").expect("written");
        assert!(know(&hosts, "db") && know(&hosts, "DB") && !know(&hosts, "db."));
        std::fs::write(file.path(), "10.0.0.1 another\n").expect("written");
        assert!(!know(&hosts, "db") && know(&hosts, "another"));
    }

    #[test]
    fn a_missing_file_has_no_names() {
        assert!(!know(&Hosts::none(), "localhost"));
    }
}
