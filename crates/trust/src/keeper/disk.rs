//! Opens files in the calling process.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use quictun_wire::invitation::is_client_name;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use zeroize::Zeroizing;

/// The error of a file that is neither regular nor a directory. No call on files returns this number, so that it keeps
/// its meaning on its way from the keeper.
pub(super) const NOT_REGULAR: Errno = Errno::MEDIUMTYPE;

/// Reads up to one byte more than `limit`, which shows that the file is longer. Waits for the writer of a pipe.
pub(super) fn read(path: &Path, limit: u64) -> io::Result<Zeroizing<Vec<u8>>> {
    content(File::open(path)?, limit)
}

/// Reads as [`read`] does, and never waits: another process may have put a pipe or a device at the path.
pub(super) fn read_regular(path: &Path, limit: u64) -> io::Result<Zeroizing<Vec<u8>>> {
    content(open_regular(path)?, limit)
}

fn open_regular(path: &Path) -> io::Result<File> {
    // A device may act on being opened, so its kind is looked at before.
    is_regular(&std::fs::metadata(path)?)?;
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    is_regular(&file.metadata()?)?;
    Ok(file)
}

fn is_regular(metadata: &std::fs::Metadata) -> io::Result<()> {
    match metadata.file_type() {
        kind if kind.is_file() => Ok(()),
        kind if kind.is_dir() => Err(Errno::ISDIR.into()),
        _ => Err(NOT_REGULAR.into()),
    }
}

fn content(file: File, limit: u64) -> io::Result<Zeroizing<Vec<u8>>> {
    let length = file.metadata()?.len().min(limit);
    // A buffer with room for the whole content never moves, so no copy of a secret stays behind in freed memory.
    let room = usize::try_from(length).unwrap_or(0) + 2;
    let mut content = Zeroizing::new(Vec::with_capacity(room));
    file.take(limit + 1).read_to_end(&mut content)?;
    Ok(content)
}

/// Returns the names of files, one on each line, in the form that a record holds.
pub(super) fn names(directory: &Path, ending: &str) -> io::Result<Zeroizing<Vec<u8>>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let name = entry?.file_name().into_string().ok();
        let name =
            name.and_then(|name| Some(name.strip_suffix(ending)?.strip_suffix('.')?.to_owned()));
        names.extend(name.filter(|name| is_client_name(name)));
    }
    names.sort_unstable();
    Ok(Zeroizing::new(names.join("\n").into_bytes()))
}

pub(super) fn check(path: &Path) -> io::Result<()> {
    let kind = std::fs::metadata(path)?.file_type();
    if kind.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    if kind.is_file() {
        open_regular(path)?;
    }
    Ok(())
}
