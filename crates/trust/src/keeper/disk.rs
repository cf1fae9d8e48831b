//! Opens files in the calling process.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use quictun_wire::invitation::is_client_name;
use zeroize::Zeroizing;

/// Reads up to one byte more than `limit`, which shows that the file is longer.
pub(super) fn read(path: &Path, limit: u64) -> io::Result<Zeroizing<Vec<u8>>> {
    let file = File::open(path)?;
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
        File::open(path)?;
    }
    Ok(())
}

pub(super) fn append(path: &Path) -> io::Result<File> {
    // Other users must not read which client connects to which target. A group may, for programs that ship logs.
    let mut options = OpenOptions::new();
    options.create(true).append(true).mode(0o640).open(path)
}
