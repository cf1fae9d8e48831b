//! Files opened by the process itself.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use quictun_wire::invitation::is_client_name;
use zeroize::Zeroizing;

/// One byte more than `limit` shows that the file is longer.
pub(super) fn read(path: &Path, limit: u64) -> io::Result<Zeroizing<Vec<u8>>> {
    let file = File::open(path)?;
    let length = file.metadata()?.len().min(limit);
    // With room for all of it, none is left behind where a smaller buffer was.
    let room = usize::try_from(length).unwrap_or(0) + 2;
    let mut content = Zeroizing::new(Vec::with_capacity(room));
    file.take(limit + 1).read_to_end(&mut content)?;
    Ok(content)
}

/// The names of files, one a line: what a record can hold.
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
    // Others must not read who connects to what; a group may, for programs that ship logs.
    let mut options = OpenOptions::new();
    options.create(true).append(true).mode(0o640).open(path)
}
