//! Records the files that a reload has read, so that the keeper can send them.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

/// The content of files by path, and by path whether they can be opened. An error is the system's error number.
#[derive(Default, PartialEq, Eq)]
pub(super) struct FileRecord {
    contents: BTreeMap<PathBuf, Result<Zeroizing<Vec<u8>>, i32>>,
    readable: BTreeMap<PathBuf, Result<(), i32>>,
}

const CONTENT: u8 = 1;
const NO_CONTENT: u8 = 2;
const READABLE: u8 = 3;
const NOT_READABLE: u8 = 4;

impl FileRecord {
    /// Records the answer to a read. If a file is read twice, the first answer stays, so that both reads show the same.
    pub(super) fn note_content(&mut self, path: &Path, answer: &io::Result<Zeroizing<Vec<u8>>>) {
        let answer = answer.as_ref().map_err(number);
        self.contents
            .entry(path.to_owned())
            .or_insert(answer.cloned());
    }

    pub(super) fn note_readable(&mut self, path: &Path, answer: &io::Result<()>) {
        let answer = answer.as_ref().map_err(number);
        self.readable
            .entry(path.to_owned())
            .or_insert(answer.copied());
    }

    pub(super) fn content(&self, path: &Path) -> io::Result<Zeroizing<Vec<u8>>> {
        let answer = self.contents.get(path).ok_or_else(not_recorded)?;
        answer.clone().map_err(io::Error::from_raw_os_error)
    }

    pub(super) fn readable(&self, path: &Path) -> io::Result<()> {
        let answer = self.readable.get(path).ok_or_else(not_recorded)?;
        answer.map_err(io::Error::from_raw_os_error)
    }

    pub(super) fn encode(&self) -> Zeroizing<Vec<u8>> {
        let number = size_of::<i32>();
        let contents = self.contents.iter().map(|(path, answer)| {
            let value = answer.as_ref().map_or(number, |content| content.len());
            (path, value)
        });
        let readable = self.readable.iter().map(|(path, answer)| {
            let value = answer.map_or(number, |()| 0);
            (path, value)
        });
        // Each entry has one byte for its kind and four for each of two lengths.
        let length = |(path, value): (&PathBuf, usize)| 9 + path.as_os_str().len() + value;
        let length = contents.chain(readable).map(length).sum();
        // A buffer with room for the whole record never moves, so no copy of a secret stays behind in freed memory.
        let mut bytes = Zeroizing::new(Vec::with_capacity(length));
        for (path, answer) in &self.contents {
            match answer {
                Ok(content) => put(&mut bytes, CONTENT, path, content),
                Err(number) => put(&mut bytes, NO_CONTENT, path, &number.to_le_bytes()),
            }
        }
        for (path, answer) in &self.readable {
            match answer {
                Ok(()) => put(&mut bytes, READABLE, path, &[]),
                Err(number) => put(&mut bytes, NOT_READABLE, path, &number.to_le_bytes()),
            }
        }
        bytes
    }

    pub(super) fn decode(mut bytes: &[u8]) -> io::Result<Self> {
        let mut record = Self::default();
        while let Some((kind, rest)) = bytes.split_first() {
            bytes = rest;
            let path = PathBuf::from(OsStr::from_bytes(take(&mut bytes)?));
            let value = take(&mut bytes)?;
            let number =
                || Ok::<_, io::Error>(i32::from_le_bytes(value.try_into().map_err(invalid)?));
            let FileRecord { contents, readable } = &mut record;
            match *kind {
                CONTENT => {
                    contents.insert(path, Ok(Zeroizing::new(value.to_vec())));
                }
                NO_CONTENT => {
                    contents.insert(path, Err(number()?));
                }
                READABLE => {
                    readable.insert(path, Ok(()));
                }
                NOT_READABLE => {
                    readable.insert(path, Err(number()?));
                }
                _ => return Err(invalid(kind)),
            }
        }
        Ok(record)
    }
}

/// Returns the system's number of an error, or that of `ISDIR` or `IO` if the error has none.
pub(super) fn number(error: &io::Error) -> i32 {
    let fallback = match error.kind() {
        io::ErrorKind::IsADirectory => rustix::io::Errno::ISDIR,
        _ => rustix::io::Errno::IO,
    };
    error.raw_os_error().unwrap_or(fallback.raw_os_error())
}

fn put(bytes: &mut Vec<u8>, kind: u8, path: &Path, value: &[u8]) {
    bytes.push(kind);
    for part in [path.as_os_str().as_bytes(), value] {
        // Files have at most a few MiB, and paths are shorter, so that the length fits.
        let length = u32::try_from(part.len()).unwrap_or(u32::MAX);
        bytes.extend(length.to_le_bytes());
        bytes.extend(part);
    }
}

fn take<'a>(bytes: &mut &'a [u8]) -> io::Result<&'a [u8]> {
    let (length, rest) = bytes.split_first_chunk().ok_or_else(|| invalid(()))?;
    let length = usize::try_from(u32::from_le_bytes(*length)).map_err(invalid)?;
    let (part, rest) = rest.split_at_checked(length).ok_or_else(|| invalid(()))?;
    *bytes = rest;
    Ok(part)
}

fn invalid<T>(_: T) -> io::Error {
    io::ErrorKind::InvalidData.into()
}

fn not_recorded() -> io::Error {
    io::Error::new(
        io::ErrorKind::NotFound,
        "the file changed while it was read: reload once more",
    )
}
