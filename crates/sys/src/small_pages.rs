//! Disables huge pages, for a process that promises to use little memory.

use std::io;

use rustix::thread::disable_transparent_huge_pages;

/// Makes the kernel back all memory of this process with small pages, from now on and in its children.
///
/// Allocators ask for huge pages, and one used byte of a huge page occupies 2 MiB. A process with many threads that
/// each use a little of many areas then occupies several times what it uses. A kernel without huge pages returns an
/// error.
pub fn use_small_pages() -> io::Result<()> {
    Ok(disable_transparent_huge_pages(true)?)
}
