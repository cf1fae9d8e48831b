//! The inputs of a program: arguments, environment and the files that it may read.
//!
//! Parsing is a pure function of [`Inputs`]. Programs take them from the process ([`Inputs::of_process`]), tests build
//! them from literals.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::ops::Deref;
use std::path::{Path, PathBuf};

use quictun_trust::enrolment::Directory;
use quictun_trust::keeper::{self, ReadError};

/// Maximum size of a configuration file, bytes: some 10 000 clients, and far below a harmful amount of memory.
const MAX_CONFIG_BYTES: u64 = 4 << 20;

/// The inputs of a program.
pub struct Inputs<'a> {
    /// The arguments. The first is the program's own name.
    pub args: Vec<OsString>,
    /// The environment, without variables that are not UTF-8.
    pub env: BTreeMap<String, String>,
    /// The working directory, for the start-up lines only.
    pub cwd: PathBuf,
    /// Access to configuration files.
    pub files: &'a dyn Files,
}

impl std::fmt::Debug for Inputs<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The environment may hold secrets of other programs.
        f.debug_struct("Inputs")
            .field("args", &self.args)
            .finish_non_exhaustive()
    }
}

impl Inputs<'_> {
    /// Takes the inputs of the running process.
    pub fn of_process() -> Self {
        let env = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect();
        Self {
            args: std::env::args_os().collect(),
            env,
            cwd: std::env::current_dir().unwrap_or_default(),
            files: &Disk,
        }
    }

    /// Returns a variable's value. An empty variable counts as unset, as with the original.
    pub fn variable(&self, name: &str) -> Option<&str> {
        self.env
            .get(name)
            .map(String::as_str)
            .filter(|value| !value.is_empty())
    }

    /// Returns the path in a variable. A relative path in an XDG variable is invalid and must be ignored (XDG base
    /// directory specification).
    pub fn absolute(&self, name: &str) -> Option<PathBuf> {
        let path = self.variable(name).map(PathBuf::from);
        path.filter(|path| path.is_absolute())
    }
}

/// Access to configuration files.
pub trait Files {
    /// Returns the text of a configuration file.
    ///
    /// # Errors
    /// Returns the system's error, or `InvalidData` if the file is not UTF-8 or too large.
    fn read(&self, path: &Path) -> io::Result<String>;

    /// Returns the text of the file of a client that is invited or has joined. Never waits, whatever the file is.
    ///
    /// # Errors
    /// Returns the errors of [`Files::read`].
    fn read_client(&self, path: &Path) -> io::Result<String>;

    /// Checks that the file can be opened for reading.
    fn check_readable(&self, path: &Path) -> io::Result<()>;

    /// Returns the names of the clients that are invited or have joined. The list is empty if the directory does not
    /// exist.
    fn clients(&self, directory: &Directory) -> io::Result<Vec<String>>;
}

/// Reads files from the disk.
#[derive(Clone, Copy, Debug)]
pub struct Disk;

impl Files for Disk {
    fn read(&self, path: &Path) -> io::Result<String> {
        text_of(keeper::read(path, MAX_CONFIG_BYTES))
    }

    fn read_client(&self, path: &Path) -> io::Result<String> {
        text_of(keeper::read_entry(path, MAX_CONFIG_BYTES))
    }

    fn check_readable(&self, path: &Path) -> io::Result<()> {
        keeper::check_readable(path)
    }

    fn clients(&self, directory: &Directory) -> io::Result<Vec<String>> {
        directory.names()
    }
}

fn text_of(content: Result<impl Deref<Target = Vec<u8>>, ReadError>) -> io::Result<String> {
    let content = content.map_err(|error| match error {
        ReadError::Io(error) => error,
        ReadError::TooLarge { .. } => invalid("larger than 4 MiB: not a configuration file"),
        not_regular @ ReadError::NotRegular => io::Error::other(not_regular),
    })?;
    String::from_utf8(content.to_vec()).map_err(|_| invalid("it is not UTF-8 text"))
}

fn invalid(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}
