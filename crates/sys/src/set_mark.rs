//! The mark of a socket (`SO_MARK`).

use std::io;
use std::os::fd::AsFd;

/// Marks all packets that a socket sends from now on, for rules of routing and of the packet filter.
///
/// # Errors
///
/// `PermissionDenied` without `CAP_NET_ADMIN`, or `CAP_NET_RAW` since Linux 5.17.
pub fn set_mark(socket: impl AsFd, mark: u32) -> io::Result<()> {
    let mark = mark.cast_signed();
    crate::socket_option::set(socket.as_fd(), libc::SOL_SOCKET, libc::SO_MARK, &mark)
}
