//! Opens files again in a running process: its configuration, keys, secrets, token files and logs.
//!
//! A client or server drops the right to open files before it looks at any data from the network. From then on a second
//! process, the *keeper*, opens them. [`start`] is the first action of a process, so that the keeper holds no secret,
//! and no socket but the one to the main process. The main process names files by number, never by path:
//!
//! | request | answer |
//! |---|---|
//! | read the file with this number | its content |
//! | open the log file with this number | a descriptor |
//! | load | every file that a reload reads, with its path |
//! | enrol the client that makes this attempt | its rules, or the reason for the refusal |
//! | listen on this address, which a client's rule must name | a descriptor |
//! | remove the socket file of a listener that the keeper has made | nothing |
//! | store the usage of clients in this month, or the state of the certificate | nothing |
//!
//! For a load, the keeper runs the same function as the main process, and sends every file that this function has read.
//! A configuration may therefore name new files, although the main process never names one to the keeper. If the load is
//! for a reload and the configuration is valid, its rules for listeners are the keeper's from then on. An enrolment adds
//! no rules for listeners. So the keeper has one set of rules, which it has read by itself, and no other request reads
//! the configuration.
//!
//! Every request waits for a disk, however long that takes, so the control thread and the workers make none. The
//! requests for the rules, for files, for logs and for stores do not wait for one another ([`link`]).
//!
//! All code that reads or reopens files later uses this module: [`read`], [`check_readable`], [`append_to`], and
//! [`reload`] around a whole reload. Without a keeper, these functions open files themselves.

mod disk;
mod link;
mod log_file;
mod outcome;
mod record;
mod source;
#[cfg(test)]
mod tests;

use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::SystemTime;

use rustix::io::Errno;
use thiserror::Error;
use zeroize::Zeroizing;

use crate::enrolment::{Directory, Enrolment, JoinAttempt, JoinRefusal, StateFile};

use link::{KeeperLink, KeptFiles, RuleFns};
use source::{FileSource, SOURCE, with_source};

/// The reason why a file could not be read.
#[derive(Debug, Error)]
pub enum ReadError {
    /// The system returned an error.
    #[error(transparent)]
    Io(io::Error),
    /// The file is larger than any valid file of its kind.
    #[error("the file is larger than {limit} bytes")]
    TooLarge {
        /// Maximum number of bytes that are read.
        limit: u64,
    },
    /// The file is not regular, and its kind is not read here.
    #[error("it is a pipe, a socket or a device: put a regular file there, or remove it")]
    NotRegular,
}

impl From<io::Error> for ReadError {
    fn from(error: io::Error) -> Self {
        if Errno::from_io_error(&error) == Some(disk::NOT_REGULAR) {
            return Self::NotRegular;
        }
        Self::Io(error)
    }
}

impl ReadError {
    /// Returns true if the file does not exist.
    pub(crate) fn is_missing(&self) -> bool {
        matches!(self, Self::Io(error) if error.kind() == io::ErrorKind::NotFound)
    }
}

/// Binds a listener at an address. Links in its path must not leave the directory, if one is given.
pub type BindFn = Box<dyn Fn(&str, Option<&str>) -> io::Result<OwnedFd>>;

/// Removes the socket file of the listener at an address.
pub type RemoveFn = Box<dyn Fn(&str) -> io::Result<()>>;

/// Reads everything that a reload reads, through this module.
pub type LoadFn = Box<dyn Fn(LoadPurpose)>;

/// The reason for a load of the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadPurpose {
    /// To show the changes that a reload would make. Nothing changes.
    Preview,
    /// To put the configuration into force if it is valid.
    Apply,
}

/// Makes listeners for clients, and removes their socket files.
pub struct ListenerFns {
    /// Binds a listener for a client if a rule of any client names the address. The keeper decides that by itself.
    pub bind: BindFn,
    /// Removes the socket file of a listener that `bind` has made and that is closed.
    pub remove: RemoveFn,
}

impl fmt::Debug for ListenerFns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ListenerFns").finish_non_exhaustive()
    }
}

/// Mode of new log files. Other users must not read which client connects to which target. A group may, for programs
/// that ship logs.
const LOG_MODE: u32 = 0o640;

/// The keeper of this process, if there is one. It is global to the process, as is the confinement that requires it.
static KEEPER: OnceLock<KeeperLink> = OnceLock::new();

/// Starts the keeper of this process, which must have one thread and no keeper yet.
///
/// The keeper opens each file of `reads` for reading, up to the given number of bytes, and each file of `appends` for
/// appending. `clients` is the directory in which clients that join are enrolled. `listen` creates listeners for clients.
pub fn start(
    reads: Vec<(PathBuf, u64)>,
    appends: Vec<PathBuf>,
    load: Option<LoadFn>,
    clients: Option<Directory>,
    listen: Option<ListenerFns>,
) -> io::Result<()> {
    let kept = KeptFiles {
        reads,
        appends,
        clients,
    };
    let link = KeeperLink::start(kept, RuleFns { load, listen })?;
    KEEPER
        .set(link)
        .map_err(|_| io::Error::other("this process has a keeper already"))
}

/// Returns true if the keeper has ended. Nothing can be read or reopened then.
pub fn is_gone() -> bool {
    KEEPER.get().is_some_and(KeeperLink::has_ended)
}

/// Reads a whole file of at most `limit` bytes. The content is erased from memory when it is dropped.
///
/// At the start, a file may be a pipe, such as one of the shell's `<(...)`, and the caller waits for its writer. A running
/// process reads regular files only.
///
/// # Errors
///
/// Returns the system's error, [`ReadError::TooLarge`] if the file is longer than `limit`, or
/// [`ReadError::NotRegular`].
pub fn read(path: &Path, limit: u64) -> Result<Zeroizing<Vec<u8>>, ReadError> {
    read_by(path, limit, disk::read)
}

/// Reads an entry of a directory in which other users may write. It never waits, not even at the start.
///
/// # Errors
///
/// Returns the errors of [`read`].
pub fn read_entry(path: &Path, limit: u64) -> Result<Zeroizing<Vec<u8>>, ReadError> {
    read_by(path, limit, disk::read_regular)
}

fn read_by(
    path: &Path,
    limit: u64,
    from_disk: impl FnOnce(&Path, u64) -> io::Result<Zeroizing<Vec<u8>>>,
) -> Result<Zeroizing<Vec<u8>>, ReadError> {
    let content = SOURCE.with_borrow_mut(|source| match source {
        FileSource::Disk => match KEEPER.get().and_then(|link| link.read(path)) {
            Some(answer) => answer,
            None => from_disk(path, limit),
        },
        FileSource::Recording(record) => {
            let answer = disk::read_regular(path, limit);
            record.note_content(path, &answer);
            answer
        }
        FileSource::Recorded(record) => record.content(path),
    })?;
    if content.len() as u64 > limit {
        return Err(ReadError::TooLarge { limit });
    }
    Ok(content)
}

/// Returns the sorted names, without the ending, of the directory's files with this ending. It leaves out names that no
/// client could have, and with them the files that editors and programs leave behind.
///
/// # Errors
///
/// Returns the system's error.
pub fn names(directory: &Path, ending: &str) -> io::Result<Vec<String>> {
    let lines = SOURCE.with_borrow_mut(|source| match source {
        FileSource::Disk => disk::names(directory, ending),
        FileSource::Recording(record) => {
            let answer = disk::names(directory, ending);
            record.note_content(directory, &answer);
            answer
        }
        FileSource::Recorded(record) => record.content(directory),
    })?;
    let lines = String::from_utf8_lossy(&lines);
    Ok(lines.lines().map(str::to_owned).collect())
}

/// Enrols an invited client, see [`Directory::enrol`].
///
/// # Errors
///
/// Returns the reason why the client is refused.
pub fn enrol(clients: &Directory, attempt: &JoinAttempt) -> Result<Enrolment, JoinRefusal> {
    match KEEPER.get() {
        Some(link) => link.enrol(attempt),
        None => clients.enrol(attempt, now_s()),
    }
}

/// Listens on an address for a client. Links in its path must not leave the directory `below`. Returns `None` if this
/// process has no keeper and so binds by itself.
///
/// # Errors
///
/// Returns the system's error, or [`io::ErrorKind::PermissionDenied`] if the keeper knows no rule for the address.
pub fn listen(address: &str, below: Option<&str>) -> Option<io::Result<OwnedFd>> {
    Some(KEEPER.get()?.listen(address, below))
}

/// Removes the socket file of a client's listener that is closed. Returns `None` if this process has no keeper and so
/// removes it by itself.
///
/// # Errors
///
/// Returns the system's error, or [`io::ErrorKind::NotFound`] if the keeper has not made this listener.
pub fn remove_listener(address: &str) -> Option<io::Result<()>> {
    Some(KEEPER.get()?.remove_listener(address))
}

/// Replaces a file in the state directory, completely or not at all.
///
/// # Errors
///
/// Returns the system's error, or an error if the keeper does not answer.
pub fn store(clients: &Directory, file: StateFile, content: &[u8]) -> io::Result<()> {
    match KEEPER.get() {
        Some(link) => link.store(file, content),
        None => clients.store(file, content),
    }
}

fn now_s() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    // If the clock is before 1970, nothing has expired and nothing was made.
    now.map_or(0, |now| now.as_secs())
}

/// Checks that a file can be opened for reading. It does not open a pipe, because that would take data from its only
/// reader.
///
/// # Errors
///
/// Returns the system's error; for a directory it is `IsADirectory`.
pub fn check_readable(path: &Path) -> io::Result<()> {
    SOURCE.with_borrow_mut(|source| match source {
        FileSource::Disk => disk::check(path),
        FileSource::Recording(record) => {
            let answer = disk::check(path);
            record.note_readable(path, &answer);
            answer
        }
        FileSource::Recorded(record) => record.readable(path),
    })
}

/// Opens a log file for appending, and creates it if it is missing. Follows no symbolic link of another user.
///
/// # Errors
///
/// Returns the system's error, or the reason why another user may have put the file there.
pub fn append_to(path: &Path) -> io::Result<File> {
    let opened = match KEEPER.get().and_then(|link| link.append_to(path)) {
        Some(answer) => answer,
        None => log_file::append(path, LOG_MODE),
    };
    opened.map_err(log_file::explain)
}

/// Opens a file for appending as [`append_to`] does, in the calling process and with this mode if it is missing.
pub(crate) fn append_here(path: &Path, mode: u32) -> io::Result<File> {
    log_file::append(path, mode).map_err(log_file::explain)
}

/// Runs a reload: `load` reads the current content of the files through [`read`] and [`check_readable`].
///
/// With a keeper, `load` must do the same as the function that was given to the keeper. A file that only the caller's
/// function reads counts as missing.
pub fn reload<T>(purpose: LoadPurpose, load: impl FnOnce() -> T) -> io::Result<T> {
    let Some(link) = KEEPER.get() else {
        return Ok(load());
    };
    let record = link.load(purpose)?;
    Ok(with_source(FileSource::Recorded(record), load).0)
}
