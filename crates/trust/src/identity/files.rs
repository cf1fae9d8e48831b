//! Files that hold secrets: created for this user alone, and whole or not at all.

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

/// Makes `dir` and what is missing above it, for this user only. One that is there stays as it is.
pub(crate) fn create_private_dir(dir: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)
}

/// Creates `path` with this content, so that no one ever sees a part of it.
///
/// Fails with `AlreadyExists` where something is there: of several callers one succeeds.
pub(crate) fn create_exclusive(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let (dir, temporary) = beside(path)?;
    let file = &mut new_file(&temporary, mode)?;
    // link(2), unlike rename(2), refuses to replace what is there.
    let linked = write_whole(file, content).and_then(|()| std::fs::hard_link(&temporary, path));
    std::fs::remove_file(&temporary)?;
    linked?;
    File::open(dir)?.sync_all()
}

/// Writes `path`, mode 0600, in place of what is there, so that everyone sees all of the one or all of the other, also
/// after a crash. It belongs to `owner`, a user and a group, where that is given.
pub(crate) fn replace(path: &Path, content: &[u8], owner: Option<(u32, u32)>) -> io::Result<()> {
    let (dir, temporary) = beside(path)?;
    let file = &mut new_file(&temporary, 0o600)?;
    let owned = match owner {
        Some((user, group)) => fchown(&*file, Some(user), Some(group)),
        None => Ok(()),
    };
    let renamed = owned
        .and_then(|()| write_whole(file, content))
        .and_then(|()| std::fs::rename(&temporary, path));
    if renamed.is_err() {
        std::fs::remove_file(&temporary)?;
    }
    renamed?;
    File::open(dir)?.sync_all()
}

/// See [`super::share_with_group`].
pub(crate) fn share_with_group(dir: &Path, files: &[&Path]) -> io::Result<bool> {
    let metadata = std::fs::metadata(dir)?;
    // Nobody but root can put another file in its place meanwhile.
    let is_roots = metadata.uid() == 0 && metadata.mode() & 0o022 == 0;
    let is_roots = is_roots && metadata.gid() != 0;
    if !is_roots || !rustix::process::geteuid().is_root() {
        return Ok(false);
    }
    for file in files {
        let file = File::open(file)?;
        fchown(&file, None, Some(metadata.gid()))?;
        file.set_permissions(Permissions::from_mode(0o640))?;
    }
    Ok(true)
}

fn write_whole(file: &mut File, content: &[u8]) -> io::Result<()> {
    file.write_all(content)?;
    file.sync_all()
}

fn new_file(path: &Path, mode: u32) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(mode).open(path)
}

/// The directory of a file, and a name in it that nobody has.
fn beside(path: &Path) -> io::Result<(&Path, PathBuf)> {
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
    Ok((dir, temporary))
}
