//! A piece of memory with fixed content, which is passed to another process as a descriptor. It is on no disk.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{MemfdFlags, SealFlags};

/// The seals: neither the content nor the length can change any more, and neither can the seals.
const SEALS: SealFlags = SealFlags::SHRINK
    .union(SealFlags::GROW)
    .union(SealFlags::WRITE)
    .union(SealFlags::SEAL);

/// Creates memory with this content, and seals it.
///
/// # Errors
///
/// Returns the system's error.
pub fn seal_memory(content: &[u8]) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let memory = rustix::fs::memfd_create("quictun-sealed", flags)?;
    let mut left = content;
    while !left.is_empty() {
        let written = rustix::io::retry_on_intr(|| rustix::io::write(&memory, left))?;
        left = &left[written..];
    }
    rustix::fs::fcntl_add_seals(&memory, SEALS)?;
    Ok(memory)
}

/// Reads memory that another process has sealed, at most `most` bytes.
///
/// # Errors
///
/// Returns [`io::ErrorKind::InvalidData`] if the descriptor is not sealed memory or has more than `most` bytes, otherwise
/// the system's error.
pub fn read_sealed(memory: impl AsFd, most: usize) -> io::Result<Vec<u8>> {
    let invalid = |text| io::Error::new(io::ErrorKind::InvalidData, text);
    let seals = rustix::fs::fcntl_get_seals(&memory);
    if !seals.is_ok_and(|seals| seals.contains(SEALS)) {
        return Err(invalid("the memory is not sealed"));
    }
    let length = rustix::fs::fstat(&memory)?.st_size;
    let length = usize::try_from(length)
        .ok()
        .filter(|length| *length <= most);
    let length = length.ok_or_else(|| invalid("the memory is too large"))?;
    let mut content = vec![0; length];
    let mut read = 0;
    while read < length {
        let into = &mut content[read..];
        let more =
            rustix::io::retry_on_intr(|| rustix::io::pread(&memory, &mut *into, read as u64))?;
        if more == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        read += more;
    }
    Ok(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sealed_memory_keeps_its_content_and_its_length() {
        let content: Vec<u8> = (0..100_000u32)
            .map(|number| number.to_le_bytes()[0])
            .collect();
        let memory = seal_memory(&content).expect("memory");
        assert_eq!(
            read_sealed(&memory, content.len()).expect("sealed"),
            content
        );
        assert!(rustix::io::pwrite(&memory, b"x", 0).is_err());
        assert!(rustix::fs::ftruncate(&memory, 10).is_err());
        assert!(read_sealed(&memory, content.len() - 1).is_err());
    }

    #[test]
    fn memory_without_seals_and_other_files_are_refused() {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let memory = rustix::fs::memfd_create("test", flags).expect("memory");
        let (pipe, _other) = rustix::pipe::pipe().expect("a pipe");
        for descriptor in [memory, pipe] {
            let error = read_sealed(descriptor, 10).expect_err("not sealed");
            assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        }
    }
}
