//! The files of a package: names, modes and contents, without owner and time.
//!
//! Every package writer takes [`Files`] and a timestamp, so that the same files give the same bytes on every machine.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::rc::Rc;

use anyhow::{Context as _, Result};

/// One entry of a package. Every entry except a private directory belongs to root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// A regular file with its permissions and content.
    File(u32, Rc<[u8]>),
    /// A symbolic link with its target.
    Link(String),
    /// A directory with mode 0755.
    Directory,
    /// A directory with mode 0700 that belongs to the user and group with this number.
    Private(u32),
}

/// The entries of a package by path. Paths are relative to the root, have no slash at either end, and sort by bytes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Files(BTreeMap<String, Entry>);

impl Files {
    /// Adds a file with mode 0644.
    pub(crate) fn text(&mut self, path: &str, content: impl AsRef<[u8]>) {
        self.insert(path, Entry::File(0o644, content.as_ref().into()));
    }

    /// Adds an executable file with mode 0755.
    pub(crate) fn program(&mut self, path: &str, content: impl AsRef<[u8]>) {
        self.insert(path, Entry::File(0o755, content.as_ref().into()));
    }

    /// Adds a symbolic link.
    pub(crate) fn link(&mut self, path: &str, target: &str) {
        self.insert(path, Entry::Link(target.to_owned()));
    }

    /// Adds an entry and the directories above it.
    pub(crate) fn insert(&mut self, path: &str, entry: Entry) {
        for (at, _) in path.match_indices('/') {
            let above = self.0.entry(path[..at].to_owned());
            above.or_insert(Entry::Directory);
        }
        self.0.insert(path.to_owned(), entry);
    }

    /// Removes an entry, if it exists.
    pub(crate) fn remove(&mut self, path: &str) {
        self.0.remove(path);
    }

    /// Adds all entries of `others` below `directory`.
    pub(crate) fn extend(&mut self, directory: &str, others: &Files) {
        for (path, entry) in others.iter() {
            self.insert(&format!("{directory}/{path}"), entry.clone());
        }
    }

    /// Iterates over all entries; a directory precedes its contents.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &Entry)> {
        self.0.iter().map(|(path, entry)| (path.as_str(), entry))
    }

    /// Iterates over the regular files and their contents.
    pub(crate) fn contents(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.iter().filter_map(|(path, entry)| match entry {
            Entry::File(_, content) => Some((path, &content[..])),
            Entry::Link(_) | Entry::Directory | Entry::Private(_) => None,
        })
    }

    /// Returns the total size of all files in bytes.
    pub(crate) fn size(&self) -> u64 {
        self.contents()
            .map(|(_, content)| content.len() as u64)
            .sum()
    }

    /// Writes the entries below `directory`, whose previous contents are deleted.
    pub(crate) fn write(&self, directory: &Path) -> Result<()> {
        if directory.exists() {
            fs::remove_dir_all(directory)
                .with_context(|| format!("removing {}", directory.display()))?;
        }
        fs::create_dir_all(directory).with_context(|| format!("making {}", directory.display()))?;
        for (path, entry) in self.iter() {
            let place = directory.join(path);
            let made = match entry {
                Entry::File(mode, content) => fs::write(&place, content)
                    .and_then(|()| fs::set_permissions(&place, Permissions::from_mode(*mode))),
                Entry::Link(target) => symlink(target, &place),
                Entry::Directory | Entry::Private(_) => fs::create_dir(&place),
            };
            made.with_context(|| format!("making {}", place.display()))?;
        }
        Ok(())
    }
}
