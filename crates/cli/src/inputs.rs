//! What a program is started with: arguments, environment and the files it may look at.
//!
//! Parsing is a pure function of [`Inputs`]: the programs fill it from the process ([`Inputs::of_process`]),
//! tests from literals.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

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
}

/// The real files.
#[derive(Clone, Copy, Debug)]
pub struct Disk;

impl Files for Disk {
    fn read(&self, path: &Path) -> io::Result<String> {
        let mut text = String::new();
        File::open(path)?
            .take(MAX_CONFIG_BYTES + 1)
            .read_to_string(&mut text)?;
        if text.len() as u64 > MAX_CONFIG_BYTES {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "larger than 4 MiB: not a configuration file",
            ));
        }
        Ok(text)
    }

    fn check_readable(&self, path: &Path) -> io::Result<()> {
        let kind = std::fs::metadata(path)?.file_type();
        if kind.is_dir() {
            return Err(io::Error::from(io::ErrorKind::IsADirectory));
        }
        // Opening a pipe would take it from the one reader it is meant for.
        if kind.is_file() {
            File::open(path)?;
        }
        Ok(())
    }
}
