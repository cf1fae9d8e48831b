//! Opens the outputs of the log, and replaces a file by a new one of the same name.
//!
//! A program that rotates logs renames the file and requests a new one. [`LogFiles::reopen`] opens the new file. The
//! writer's thread switches to it before its next write, so that no line is torn or lost.
//!
//! A new file has mode 0640, without the bits that the umask removes. An existing file keeps its mode.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use quictun_trust::keeper;

use super::people::Style;

/// The reason why logging could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// An output cannot be opened.
    #[error("cannot open log output {}: {}", .0.display(), .1)]
    Open(PathBuf, #[source] io::Error),
    /// The thread of a writer cannot be started.
    #[error("cannot start the log thread: {0}")]
    Thread(#[source] io::Error),
    /// [`init`](super::init) was called before.
    #[error("logs are set up already")]
    Again,
}

#[derive(Debug)]
pub(super) struct Output {
    current: File,
    style: Style,
    successor: Option<Arc<LogFile>>,
}

/// The log files among the outputs.
#[derive(Clone, Debug, Default)]
pub struct LogFiles(Arc<[Arc<LogFile>]>);

#[derive(Debug)]
struct LogFile {
    path: PathBuf,
    opened: Mutex<Option<File>>,
}

/// Returns the paths of the files among the outputs as the settings give them.
pub fn files(outputs: &[String]) -> impl Iterator<Item = &Path> {
    let files = outputs
        .iter()
        .filter(|output| !matches!(output.as_str(), "stdout" | "stderr"));
    files.map(Path::new)
}

impl Output {
    pub(super) fn open(output: &str) -> Result<Self, LogError> {
        let variable = |name: &str| std::env::var_os(name);
        let opened = match output {
            "stdout" => of_stream(&io::stdout(), variable),
            "stderr" => of_stream(&io::stderr(), variable),
            path => keeper::append_to(Path::new(path)).map(|file| {
                let file_of_name = LogFile {
                    path: path.into(),
                    opened: Mutex::default(),
                };
                Self {
                    current: file,
                    style: Style::File,
                    successor: Some(Arc::new(file_of_name)),
                }
            }),
        };
        opened.map_err(|cause| LogError::Open(output.into(), cause))
    }

    pub(super) fn style(&self) -> Style {
        self.style
    }
}

fn of_stream(
    stream: &(impl AsFd + IsTerminal),
    variable: impl Fn(&str) -> Option<OsString>,
) -> io::Result<Output> {
    Ok(Output {
        current: File::from(stream.as_fd().try_clone_to_owned()?),
        style: Style::of_stream(stream, variable),
        successor: None,
    })
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Some(file) = &self.successor
            && let Some(next) = file.slot().take()
        {
            self.current = next;
        }
        self.current.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.current.flush()
    }
}

impl LogFiles {
    pub(super) fn of(outputs: &[Output]) -> Self {
        let files = outputs.iter().filter_map(|output| output.successor.clone());
        Self(files.collect())
    }

    /// Returns the number of files.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Opens each file under its name again. If that fails, lines still go to the file that is open.
    pub fn reopen(&self) -> Vec<LogError> {
        let files = self.0.iter();
        files.filter_map(|file| file.reopen().err()).collect()
    }
}

impl LogFile {
    fn reopen(&self) -> Result<(), LogError> {
        let file = keeper::append_to(&self.path);
        let failed = |cause| LogError::Open(self.path.clone(), cause);
        *self.slot() = Some(file.map_err(failed)?);
        Ok(())
    }

    /// Locks the slot. The file stays usable after a panic that held the lock.
    fn slot(&self) -> std::sync::MutexGuard<'_, Option<File>> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
