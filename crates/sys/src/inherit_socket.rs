//! Sockets that the parent process left open for this process.

use std::io;
use std::os::fd::{FromRawFd as _, OwnedFd};

use crate::syscall_result::check;

/// Duplicates the socket with this descriptor number. The original stays open as well. Fails with `InvalidInput` if the
/// descriptor is not a socket.
pub fn inherit_socket(number: i32) -> io::Result<OwnedFd> {
    let fd = copy(number)?;
    rustix::net::sockopt::socket_type(&fd).map_err(|_| {
        let text = format!("descriptor {number} is not a socket");
        io::Error::new(io::ErrorKind::InvalidInput, text)
    })?;
    Ok(fd)
}

/// Duplicates the descriptor with this number. The original stays open as well.
pub(crate) fn copy(number: i32) -> io::Result<OwnedFd> {
    // SAFETY: F_DUPFD_CLOEXEC takes any two numbers. It fails if the first is not an open descriptor.
    let copy = unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 3) };
    check(copy)?;
    // SAFETY: the call has just made this descriptor, so it has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(copy) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd as _;

    #[test]
    fn a_socket_is_taken_and_nothing_else() {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let copy = inherit_socket(socket.as_raw_fd()).expect("the same socket");
        let copy = std::net::UdpSocket::from(copy);
        assert_eq!(copy.local_addr().ok(), socket.local_addr().ok());
        let file = std::fs::File::open("/dev/null").expect("a file");
        let refused = inherit_socket(file.as_raw_fd()).map_err(|error| error.kind());
        assert_eq!(refused.err(), Some(io::ErrorKind::InvalidInput));
        assert!(inherit_socket(-1).is_err());
    }
}
