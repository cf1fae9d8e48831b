//! Return values and lengths of C library calls.

use std::io;

/// Turns a negative return value into the error in `errno`.
pub(crate) fn check(returned: impl Into<libc::c_long>) -> io::Result<()> {
    if returned.into() < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Converts a length to another type: the types of such fields differ between C libraries.
pub(crate) fn length_as<A, B: TryFrom<A>>(length: A) -> B {
    let converted = B::try_from(length).ok();
    converted.expect("invariant: structures are small")
}
