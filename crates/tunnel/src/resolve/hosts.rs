//! The names that the machine knows by itself: those in its hosts file.
//!
//! The file is only used to find out which names need no DNS server. The system's resolver finds their addresses, as
//! nsswitch.conf configures.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

const FILE: &str = "/etc/hosts";

#[derive(Debug)]
pub(super) struct Hosts {
    path: PathBuf,
    parsed: Mutex<ParsedHosts>,
}

#[derive(Debug, Default)]
struct ParsedHosts {
    /// Modification time and length of the file. `None` if there is no readable file.
    version: Option<(SystemTime, u64)>,
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
    pub(super) fn know(&self, name: &str) -> bool {
        // A file that cannot be read has no version and no names. That is harmless, because DNS is asked.
        let version = std::fs::metadata(&self.path)
            .and_then(|file| Ok((file.modified()?, file.len())))
            .ok();
        let mut parsed = self.parsed.lock().unwrap_or_else(PoisonError::into_inner);
        if parsed.version != version {
            // An unreadable file has no names: DNS is asked, in its own places.
            let text = std::fs::read(&self.path).unwrap_or_default();
            parsed.names = names(&String::from_utf8_lossy(&text));
            parsed.version = version;
        }
        parsed.names.contains(&name.to_ascii_lowercase())
    }
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

    #[test]
    fn a_changed_file_is_read_again() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let hosts = Hosts::at(file.path().to_owned());
        assert!(!hosts.know("db"));
        std::fs::write(file.path(), "10.0.0.1 db\n").expect("written");
        assert!(hosts.know("db") && hosts.know("DB") && !hosts.know("db."));
        std::fs::write(file.path(), "10.0.0.1 another\n").expect("written");
        assert!(!hosts.know("db") && hosts.know("another"));
    }

    #[test]
    fn a_missing_file_has_no_names() {
        assert!(!Hosts::none().know("localhost"));
    }
}
