//! Merging of received datagrams by the kernel.

use std::io;
use std::os::fd::AsFd;

use crate::socket_option;

/// Has the kernel hand datagrams of one sender over in one piece (`UDP_GRO`), or no longer.
///
/// # Errors
///
/// The system's, where it cannot.
pub fn set_udp_gro(socket: impl AsFd, on: bool) -> io::Result<()> {
    socket_option::set(
        socket.as_fd(),
        libc::SOL_UDP,
        libc::UDP_GRO,
        &libc::c_int::from(on),
    )
}
