//! What a program is started with: arguments, environment and the files it may look at.
//!
//! Parsing is a pure function of [`Inputs`]: the programs fill it from the process ([`Inputs::of_process`]),
//! tests from literals.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use quictun_trust::enrolment::Directory;
use quictun_trust::keeper::{self, ReadError};

/// Largest configuration file read, bytes: some 10 000 clients, far below what would hurt.
const MAX_CONFIG_BYTES: u64 = 4 << 20;

/// What a program is started with.
pub struct Inputs<'a> {
    /// Arguments, the program's own name first.
    pub args: Vec<OsString>,
    /// Environment; variables that are not UTF-8 are left out.
    pub env: BTreeMap<String, String>,
    /// Working directory, for the start-up lines only.
    pub cwd: PathBuf,
    /// Where configuration files are looked up.
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
    /// Those of the running process.
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

    /// A variable's value; an empty one counts as unset, as with the original.
    pub fn variable(&self, name: &str) -> Option<&str> {
        self.env
            .get(name)
            .map(String::as_str)
            .filter(|value| !value.is_empty())
    }
}

/// Looks files up.
pub trait Files {
    /// The text of a configuration file.
    ///
    /// # Errors
    /// Whatever the system says; `InvalidData` where it is not UTF-8 or too large.
    fn read(&self, path: &Path) -> io::Result<String>;

    /// Whether the file could be opened for reading, and if not, why.
    fn check_readable(&self, path: &Path) -> io::Result<()>;

    /// The names of the clients that are invited or have joined; none where there is no such directory.
    fn clients(&self, directory: &Directory) -> io::Result<Vec<String>>;
}

/// The real files.
#[derive(Clone, Copy, Debug)]
pub struct Disk;

impl Files for Disk {
    fn read(&self, path: &Path) -> io::Result<String> {
        let content = keeper::read(path, MAX_CONFIG_BYTES).map_err(|error| match error {
            ReadError::Io(error) => error,
            ReadError::TooLarge { .. } => invalid("larger than 4 MiB: not a configuration file"),
        })?;
        String::from_utf8(content.to_vec()).map_err(|_| invalid("it is not UTF-8 text"))
    }

    fn check_readable(&self, path: &Path) -> io::Result<()> {
        keeper::check_readable(path)
    }

    fn clients(&self, directory: &Directory) -> io::Result<Vec<String>> {
        directory.names()
    }
}

fn invalid(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}
