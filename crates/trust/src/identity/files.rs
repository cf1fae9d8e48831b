//! Files that hold secrets: created for this user alone, and whole or not at all.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

/// Makes `dir` and what is missing above it, for this user only. One that is there stays as it is.
pub(crate) fn create_private_dir(dir: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)
}

/// Creates `path` with this content, so that no one ever sees a part of it.
///
/// Fails with `AlreadyExists` where something is there: of several callers one succeeds.
pub(crate) fn create_exclusive(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let (Some(dir), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let dir = if dir.as_os_str().is_empty() {
        Path::new(".")
    } else {
        dir
    };
    let mut unique = [0; 8];
    aws_lc_rs::rand::fill(&mut unique).map_err(|_| io::Error::other("no random bytes"))?;
    let temporary = dir.join(format!(
        ".{}.{:016x}",
        name.display(),
        u64::from_ne_bytes(unique)
    ));

    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(&temporary)?;
    // link(2), unlike rename(2), refuses to replace what is there.
    let linked = file
        .write_all(content)
        .and_then(|()| file.sync_all())
        .and_then(|()| std::fs::hard_link(&temporary, path));
    std::fs::remove_file(&temporary)?;
    linked?;
    File::open(dir)?.sync_all()
}
