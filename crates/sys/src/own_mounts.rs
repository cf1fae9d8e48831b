//! Mounts that only one process and its children see.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, mount, mount_bind, mount_bind_recursive};
use rustix::thread::UnshareFlags;

use crate::contain::own_namespaces;

/// Mounts that only the calling thread sees, and processes that it starts later.
///
/// Make them after [`crate::contain`], which keeps them from appearing outside.
#[derive(Debug)]
pub struct OwnMounts(());

impl OwnMounts {
    /// Gives the calling thread a copy of its present mounts. Needs `CAP_SYS_ADMIN`.
    pub fn new() -> io::Result<Self> {
        own_namespaces(UnshareFlags::NEWNS)?;
        Ok(Self(()))
    }

    /// Mounts an empty directory over an existing one. What its owner puts there later stays hidden as well. Of the hidden
    /// entries, the directory `keep` stays visible, if there is one.
    pub fn hide(&self, directory: &Path, keep: Option<&str>) -> io::Result<()> {
        let Self(()) = self;
        let kept = keep.map(|name| directory.join(name));
        let kept = kept.filter(|kept| kept.is_dir());
        let open = kept.as_ref().map(File::open).transpose()?;
        let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        mount("quictun", directory, "tmpfs", flags, c"mode=755,size=64k")?;
        if let (Some(kept), Some(open)) = (kept, open) {
            fs::create_dir(&kept)?;
            mount_bind_recursive(format!("/proc/self/fd/{}", open.as_raw_fd()), &kept)?;
        }
        Ok(())
    }

    /// Mounts a file with this text, readable by all users, over an existing file that is not a directory. Fails with
    /// `NotFound` if `place` does not exist.
    pub fn cover(&self, place: &Path, text: &str) -> io::Result<()> {
        // The value only shows that the mounts exist; it holds no data.
        let Self(()) = self;
        let path = temporary(place)?;
        let mut options = OpenOptions::new();
        let mut file = options
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)?;
        let covered = file
            .write_all(text.as_bytes())
            .and_then(|()| file.set_permissions(Permissions::from_mode(0o644)))
            .and_then(|()| Ok(mount_bind(&path, place)?));
        // The mount keeps the file's content.
        let removed = fs::remove_file(&path);
        covered.and(removed)
    }
}

/// Makes the name of a temporary file, unique by process, time and place.
fn temporary(place: &Path) -> io::Result<PathBuf> {
    let name = place
        .file_name()
        .ok_or(io::ErrorKind::InvalidInput)?
        .to_string_lossy();
    let pid = std::process::id();
    let since = std::time::SystemTime::UNIX_EPOCH.elapsed();
    let nanos = since.map_or(0, |since| since.as_nanos());
    Ok(std::env::temp_dir().join(format!("quictun-{pid}-{nanos}-{name}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs on a thread of its own, whose mounts end with it.
    #[test]
    fn a_covered_file_keeps_its_content_for_other_threads() {
        let dir = tempfile::tempdir().expect("a directory");
        let place = dir.path().join("names");
        fs::write(&place, "theirs").expect("a file");
        let covered = std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                let mounts = match OwnMounts::new() {
                    Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return None,
                    mounts => mounts.expect("mounts"),
                };
                // `contain` does the same.
                let down = rustix::mount::MountPropagationFlags::DOWNSTREAM
                    | rustix::mount::MountPropagationFlags::REC;
                rustix::mount::mount_change("/", down).expect("mount propagation");
                mounts.cover(&place, "ours").expect("a mount");
                let missing = mounts.cover(&dir.path().join("missing"), "");
                let missing = missing.map_err(|error| error.kind());
                assert_eq!(missing, Err(io::ErrorKind::NotFound));
                Some(fs::read_to_string(&place).expect("a text"))
            });
            thread.join().expect("no panic")
        });
        let Some(covered) = covered else {
            let test = "own_mounts::tests::a_covered_file_keeps_its_content_for_other_threads";
            return quictun_skip::skipped(test, "no permission to make mounts");
        };
        assert_eq!(covered, "ours");
        assert_eq!(fs::read_to_string(&place).expect("a text"), "theirs");
        // The temporary file was removed.
        let left = fs::read_dir(std::env::temp_dir()).expect("a directory");
        let ours = format!("quictun-{}-", std::process::id());
        let ours = left
            .filter_map(Result::ok)
            .filter(|entry| entry.file_name().to_string_lossy().starts_with(&ours));
        assert_eq!(ours.count(), 0);
    }
}
