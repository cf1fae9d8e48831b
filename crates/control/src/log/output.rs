//! Where lines go, and how a file gives way to a new one of its name.
//!
//! A program that rotates logs renames the file and asks for a new one. [`LogFiles::reopen`] opens it; the
//! writer's thread changes over before its next write, so that no line is torn or lost.
//!
//! A new file has mode 0640, less what the umask takes. One that exists keeps its mode.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::LogError;
use quictun_trust::keeper;

/// One output of the log.
#[derive(Debug)]
pub(super) struct Output {
    current: File,
    /// Where a successor is put; `None`: standard output or error.
    successor: Option<Arc<LogFile>>,
}

/// The files among the outputs.
#[derive(Clone, Debug, Default)]
pub struct LogFiles(Arc<[Arc<LogFile>]>);

#[derive(Debug)]
struct LogFile {
    path: PathBuf,
    opened: Mutex<Option<File>>,
}

/// The files among outputs as they are given.
pub fn files(outputs: &[String]) -> impl Iterator<Item = &Path> {
    let files = outputs
        .iter()
        .filter(|output| !matches!(output.as_str(), "stdout" | "stderr"));
    files.map(Path::new)
}

impl Output {
    /// Opens `stdout`, `stderr` or a file, which is appended to.
    pub(super) fn open(output: &str) -> Result<Self, LogError> {
        let stream = |stream: io::Result<_>| stream.map(|stream| (File::from(stream), None));
        let opened = match output {
            "stdout" => stream(io::stdout().as_fd().try_clone_to_owned()),
            "stderr" => stream(io::stderr().as_fd().try_clone_to_owned()),
            path => keeper::append_to(Path::new(path)).map(|file| {
                let file_of_name = LogFile {
                    path: path.into(),
                    opened: Mutex::default(),
                };
                (file, Some(Arc::new(file_of_name)))
            }),
        };
        let (current, successor) = opened.map_err(|source| LogError::Open {
            path: output.into(),
            source,
        })?;
        Ok(Self { current, successor })
    }
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

    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Opens each under its name again; those that cannot be are written to as before.
    pub fn reopen(&self) -> Vec<LogError> {
        let reopened = self.0.iter().map(|file| file.reopen());
        reopened.filter_map(Result::err).collect()
    }
}

impl LogFile {
    fn reopen(&self) -> Result<(), LogError> {
        let file = keeper::append_to(&self.path).map_err(|source| LogError::Open {
            path: self.path.clone(),
            source,
        })?;
        *self.slot() = Some(file);
        Ok(())
    }

    /// A file is whole whoever panicked while holding it.
    fn slot(&self) -> std::sync::MutexGuard<'_, Option<File>> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
