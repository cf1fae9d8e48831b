//! Creates files that hold secrets: only this user can access them, and they are written whole or not at all.

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

/// Creates `dir` and its missing parents for this user only. An existing directory stays as it is.
pub(crate) fn create_private_dir(dir: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)
}

/// Creates `path` with this content, so that no process ever sees a part of it.
///
/// Fails with `AlreadyExists` if the path exists, so that exactly one of several callers succeeds.
pub(crate) fn create_exclusive(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let (dir, temporary) = beside(path)?;
    let file = &mut new_file(&temporary, mode)?;
    // link(2), unlike rename(2), refuses to replace an existing file.
    let linked = write_whole(file, content).and_then(|()| std::fs::hard_link(&temporary, path));
    std::fs::remove_file(&temporary)?;
    linked?;
    File::open(dir)?.sync_all()
}

/// Replaces `path` (mode 0600), so that every reader sees all of the old content or all of the new one, also after a
/// crash. If `owner`, a user and a group, is given, the file belongs to it.
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

/// Lets the group of a directory that root owns read `files` in it, see [`super::share_with_group`].
pub(crate) fn share_with_group(dir: &Path, files: &[&Path]) -> io::Result<bool> {
    let metadata = std::fs::metadata(dir)?;
    // With these permissions, only root can put another file in the place of one of these meanwhile.
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

/// Returns the directory of a file, and an unused temporary path in it.
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
    aws_lc_rs::rand::fill(&mut unique).map_err(|_| io::Error::other("cannot get random bytes"))?;
    let temporary = dir.join(format!(
        ".{}.{:016x}",
        name.display(),
        u64::from_ne_bytes(unique)
    ));
    Ok((dir, temporary))
}
