//! Files that a running process opens again: its configuration, keys, secrets, token files and logs.
//!
//! A client or server gives up the right to open files before it looks at what strangers send. A second process, the
//! *keeper*, opens them from then on. [`start`] makes it as the first thing that a process does, so that it holds no
//! secret and no socket but the one to us. It is asked by number, never by path:
//!
//! | request | answer |
//! |---|---|
//! | read the file of that number | what it holds |
//! | open the log file of that number | a descriptor |
//! | load | every file that a reload reads, with its path |
//! | enrol the client that makes this attempt | its rules, or why not |
//! | listen on this address, which a client's rule must name | a descriptor |
//! | store what clients have used this month | nothing |
//!
//! For the load the keeper runs the same function as we do, and sends what that has read. So a configuration may
//! name new files, while we never name one.
//!
//! Everything that is read or reopened later goes through this module: [`read`], [`check_readable`], [`append_to`], and
//! [`again`] around a whole reload. Without a keeper they open files themselves.

mod disk;
mod link;
mod outcome;
mod record;
mod source;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::SystemTime;

use thiserror::Error;
use zeroize::Zeroizing;

use crate::enrolment::{Attempt, Directory, Enrolled, Refused};

use link::{Kept, Link};
use source::{SOURCE, Source, with_source};

/// Why a file could not be read.
#[derive(Debug, Error)]
pub enum ReadError {
    /// The system refused.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// Larger than anything that belongs there.
    #[error("the file is larger than {limit} bytes")]
    TooLarge {
        /// Most that is read, bytes.
        limit: u64,
    },
}

impl ReadError {
    /// Whether there is no such file.
    pub(crate) fn is_missing(&self) -> bool {
        matches!(self, Self::Io(error) if error.kind() == io::ErrorKind::NotFound)
    }
}

/// Binds a listener for a client where a rule of some client's names the address, and judges that by itself.
pub type Bind = Box<dyn Fn(&str) -> io::Result<OwnedFd>>;

/// The keeper of this process, if there is one. Like the confinement that makes it necessary, it is the process's own.
static KEEPER: OnceLock<Link> = OnceLock::new();

/// Starts the keeper of this process, which must have one thread and no keeper yet.
///
/// It opens `reads` one by one, each with the most bytes that are read of it, and `appends` for appending. `load` reads
/// all that a reload reads, through this module. Clients that join are enrolled in `clients`; `listen` makes listeners for
/// clients.
pub fn start(
    reads: Vec<(PathBuf, u64)>,
    appends: Vec<PathBuf>,
    load: Option<Box<dyn Fn()>>,
    clients: Option<Directory>,
    listen: Option<Bind>,
) -> io::Result<()> {
    let link = Link::start(Kept {
        reads,
        appends,
        load,
        clients,
        listen,
    })?;
    KEEPER
        .set(link)
        .map_err(|_| io::Error::other("this process has a keeper already"))
}

/// Whether there was a keeper and it has ended. Nothing can be read or reopened then.
pub fn is_gone() -> bool {
    KEEPER.get().is_some_and(Link::has_ended)
}

/// Reads a whole file of at most `limit` bytes. The content is erased from memory when it is dropped.
///
/// # Errors
///
/// The system's answer; [`ReadError::TooLarge`] where the file is longer.
pub fn read(path: &Path, limit: u64) -> Result<Zeroizing<Vec<u8>>, ReadError> {
    let content = SOURCE.with_borrow_mut(|source| match source {
        Source::Disk => match KEEPER.get().and_then(|link| link.read(path)) {
            Some(answer) => answer,
            None => disk::read(path, limit),
        },
        Source::Noted(record) => {
            let answer = disk::read(path, limit);
            record.note_content(path, &answer);
            answer
        }
        Source::Kept(record) => record.content(path),
    })?;
    if content.len() as u64 > limit {
        return Err(ReadError::TooLarge { limit });
    }
    Ok(content)
}

/// The names of the plain files with this ending in a directory, without it, in order. Names that no client could have are
/// left out, and with them what editors and programs leave behind.
///
/// # Errors
///
/// The system's.
pub fn names(directory: &Path, ending: &str) -> io::Result<Vec<String>> {
    let lines = SOURCE.with_borrow_mut(|source| match source {
        Source::Disk => disk::names(directory, ending),
        Source::Noted(record) => {
            let answer = disk::names(directory, ending);
            record.note_content(directory, &answer);
            answer
        }
        Source::Kept(record) => record.content(directory),
    })?;
    let lines = String::from_utf8_lossy(&lines);
    Ok(lines.lines().map(str::to_owned).collect())
}

/// Enrols a client that has been invited, see [`Directory::enrol`].
///
/// # Errors
///
/// Why it is refused.
pub fn enrol(clients: &Directory, attempt: &Attempt) -> Result<Enrolled, Refused> {
    match KEEPER.get() {
        Some(link) => link.enrol(attempt),
        None => clients.enrol(attempt, now_s()),
    }
}

/// Listens on an address for a client; `None`: this process has no keeper, and binds by itself.
///
/// # Errors
///
/// The system's. [`io::ErrorKind::PermissionDenied`] where the keeper knows no rule for the address.
pub fn listen(address: &str) -> Option<io::Result<OwnedFd>> {
    Some(KEEPER.get()?.listen(address))
}

/// Stores what clients have used this month in place of what was stored before: all of it or nothing.
///
/// # Errors
///
/// The system's; the keeper's end.
pub fn store_usage(clients: &Directory, content: &[u8]) -> io::Result<()> {
    match KEEPER.get() {
        Some(link) => link.store_usage(content),
        None => clients.store_usage(content),
    }
}

fn now_s() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    // Before 1970 nothing has expired, and nothing was made.
    now.map_or(0, |now| now.as_secs())
}

/// Checks that a file can be opened for reading. A pipe is not opened: that would take it from its one reader.
///
/// # Errors
///
/// The system's answer; `IsADirectory` for a directory.
pub fn check_readable(path: &Path) -> io::Result<()> {
    SOURCE.with_borrow_mut(|source| match source {
        Source::Disk => disk::check(path),
        Source::Noted(record) => {
            let answer = disk::check(path);
            record.note_readable(path, &answer);
            answer
        }
        Source::Kept(record) => record.readable(path),
    })
}

/// Opens a log file for appending, and makes it where it is missing.
pub fn append_to(path: &Path) -> io::Result<File> {
    match KEEPER.get().and_then(|link| link.append_to(path)) {
        Some(answer) => answer,
        None => disk::append(path),
    }
}

/// Runs a reload: what `load` reads through [`read`] and [`check_readable`] is what the files hold now.
///
/// Where there is a keeper, `load` must do the same as the function that the keeper was given: a file that only one of
/// the two reads is missing.
pub fn again<T>(load: impl FnOnce() -> T) -> io::Result<T> {
    let Some(link) = KEEPER.get() else {
        return Ok(load());
    };
    let record = link.load()?;
    Ok(with_source(Source::Kept(record), load).0)
}
