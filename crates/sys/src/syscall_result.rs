//! Return values of C library calls.

use std::io;

/// Turns a negative return value into the error in `errno`.
pub(crate) fn check(returned: impl Into<libc::c_long>) -> io::Result<()> {
    if returned.into() < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
