//! Writes tar archives and compresses them. The result does not depend on the machine.

use std::io::Write as _;

use anyhow::{Context as _, Result};
use flate2::{Compression, GzBuilder};
use tar::{Builder, EntryType, Header};

use super::files::{Entry, Files};

/// Returns a tar archive whose entries all have the timestamp `date`, in seconds since 1970.
pub(crate) fn tar(files: &Files, date: u64) -> Result<Vec<u8>> {
    let mut archive = Builder::new(Vec::new());
    for (path, entry) in files.iter() {
        let mut header = Header::new_gnu();
        header.set_mtime(date);
        let (user, mode) = match entry {
            Entry::File(mode, _) => (0, *mode),
            Entry::Link(_) => (0, 0o777),
            Entry::Directory => (0, 0o755),
            Entry::Private(user) => (*user, 0o700),
        };
        header.set_mode(mode);
        header.set_uid(user.into());
        header.set_gid(user.into());
        let added = match entry {
            Entry::File(_, content) => {
                header.set_size(content.len() as u64);
                archive.append_data(&mut header, path, &content[..])
            }
            Entry::Link(target) => {
                header.set_entry_type(EntryType::Symlink);
                header.set_size(0);
                archive.append_link(&mut header, path, target)
            }
            Entry::Directory | Entry::Private(_) => {
                header.set_entry_type(EntryType::Directory);
                header.set_size(0);
                archive.append_data(&mut header, format!("{path}/"), &[][..])
            }
        };
        added.with_context(|| format!("adding {path} to an archive"))?;
    }
    archive.into_inner().context("closing an archive")
}

/// Compresses the bytes with gzip. The gzip header has neither a name nor a time.
pub(crate) fn gzip(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut writer = GzBuilder::new().write(Vec::new(), Compression::best());
    writer.write_all(bytes).context("compressing")?;
    writer.finish().context("compressing")
}
