//! Socket options that have no wrapper of their own elsewhere.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Sets an option whose value is an `int`.
pub(crate) fn set(
    socket: BorrowedFd<'_>,
    level: libc::c_int,
    option: libc::c_int,
    value: &libc::c_int,
) -> io::Result<()> {
    let length = libc::socklen_t::try_from(size_of_val(value)).unwrap_or_default();
    // SAFETY: `value` is a live `c_int` and `length` its size, and the kernel only reads it.
    let done = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            std::ptr::from_ref(value).cast(),
            length,
        )
    };
    if done == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
