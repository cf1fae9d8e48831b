//! What a call of the C library returns.

use std::io;

/// A number below zero is a failure, whose reason is in `errno`.
pub(crate) fn check(returned: impl Into<libc::c_long>) -> io::Result<()> {
    if returned.into() < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
