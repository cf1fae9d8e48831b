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
//!
//! For the last one the keeper runs the same function as we do, and sends what that has read. So a configuration may
//! name new files, while we never name one.
//!
//! Everything that is read or reopened later goes through this module: [`read`], [`check_readable`], [`append_to`], and
//! [`again`] around a whole reload. Without a keeper they open files themselves.

mod link;
mod record;
#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use thiserror::Error;
use zeroize::Zeroizing;

use link::Link;
use record::Record;

/// Why a file could not be read.
#[derive(Debug, Error)]
#[non_exhaustive]
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

/// What a keeper is asked for.
#[derive(Default)]
pub struct Kept {
    /// Files that are read one by one, each with the most bytes that are read of it.
    pub reads: Vec<(PathBuf, u64)>,
    /// Files that are appended to.
    pub appends: Vec<PathBuf>,
    /// Reads all that a reload reads, through this module; what it returns is of no use to the keeper.
    pub load: Option<Box<dyn Fn()>>,
}

impl fmt::Debug for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kept")
            .field("reads", &self.reads)
            .field("appends", &self.appends)
            .finish_non_exhaustive()
    }
}

/// The keeper of this process, if there is one. Like the confinement that makes it necessary, it is the process's own.
static KEEPER: OnceLock<Link> = OnceLock::new();

thread_local! {
    static SOURCE: RefCell<Source> = const { RefCell::new(Source::Disk) };
}

/// Where the calling thread's [`read`] and [`check_readable`] look.
enum Source {
    Disk,
    /// And what is found is written down.
    Noted(Record),
    /// What the keeper has found.
    Kept(Record),
}

/// Starts the keeper of this process, which must have one thread and no keeper yet.
///
/// # Errors
///
/// The system's.
pub fn start(kept: Kept) -> io::Result<()> {
    let link = Link::start(kept)?;
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
            None => read_from_disk(path, limit),
        },
        Source::Noted(record) => {
            let answer = read_from_disk(path, limit);
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

/// Checks that a file can be opened for reading. A pipe is not opened: that would take it from its one reader.
///
/// # Errors
///
/// The system's answer; `IsADirectory` for a directory.
pub fn check_readable(path: &Path) -> io::Result<()> {
    SOURCE.with_borrow_mut(|source| match source {
        Source::Disk => check_on_disk(path),
        Source::Noted(record) => {
            let answer = check_on_disk(path);
            record.note_readable(path, &answer);
            answer
        }
        Source::Kept(record) => record.readable(path),
    })
}

/// Opens a log file for appending, and makes it where it is missing.
///
/// # Errors
///
/// The system's answer.
pub fn append_to(path: &Path) -> io::Result<File> {
    match KEEPER.get().and_then(|link| link.append_to(path)) {
        Some(answer) => answer,
        None => append_on_disk(path),
    }
}

/// Runs a reload: what `load` reads through [`read`] and [`check_readable`] is what the files hold now.
///
/// Where there is a keeper, `load` must do the same as the function that the keeper was given: a file that only one of
/// the two reads is missing.
///
/// # Errors
///
/// Where the keeper does not answer.
pub fn again<T>(load: impl FnOnce() -> T) -> io::Result<T> {
    let Some(link) = KEEPER.get() else {
        return Ok(load());
    };
    let record = link.load()?;
    Ok(with_source(Source::Kept(record), load).0)
}

/// Runs `load` and returns what it has read.
fn noted(load: &dyn Fn()) -> Record {
    match with_source(Source::Noted(Record::default()), load).1 {
        Source::Noted(record) => record,
        Source::Disk | Source::Kept(_) => Record::default(),
    }
}

fn with_source<T>(source: Source, run: impl FnOnce() -> T) -> (T, Source) {
    /// Also where `run` panics: the thread may go on.
    struct Restore;
    impl Drop for Restore {
        fn drop(&mut self) {
            SOURCE.set(Source::Disk);
        }
    }
    SOURCE.set(source);
    let restore = Restore;
    let done = run();
    let source = SOURCE.replace(Source::Disk);
    drop(restore);
    (done, source)
}

/// One byte more than `limit` shows that the file is longer.
fn read_from_disk(path: &Path, limit: u64) -> io::Result<Zeroizing<Vec<u8>>> {
    let file = File::open(path)?;
    let length = file.metadata()?.len().min(limit);
    // With room for all of it, none is left behind where a smaller buffer was.
    let room = usize::try_from(length).unwrap_or(0) + 2;
    let mut content = Zeroizing::new(Vec::with_capacity(room));
    file.take(limit + 1).read_to_end(&mut content)?;
    Ok(content)
}

fn check_on_disk(path: &Path) -> io::Result<()> {
    let kind = std::fs::metadata(path)?.file_type();
    if kind.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    if kind.is_file() {
        File::open(path)?;
    }
    Ok(())
}

fn append_on_disk(path: &Path) -> io::Result<File> {
    // Others must not read who connects to what; a group may, for programs that ship logs.
    let mut options = OpenOptions::new();
    options.create(true).append(true).mode(0o640).open(path)
}
