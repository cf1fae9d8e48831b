//! Socket options that have no wrapper elsewhere.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use crate::syscall_result::check;

/// Marks all packets that a socket sends from now on, for routing rules and packet filters. Needs `CAP_NET_ADMIN`, or
/// `CAP_NET_RAW` since Linux 5.17.
pub fn set_mark(socket: impl AsFd, mark: u32) -> io::Result<()> {
    let mark = mark.cast_signed();
    set(socket.as_fd(), libc::SOL_SOCKET, libc::SO_MARK, &mark)
}

/// Makes datagrams of an IPv4 socket leave by the device with this index, if the routes allow it (`IP_UNICAST_IF`). The
/// socket still receives from all devices. systemd-resolved does the same.
pub fn set_unicast_device(socket: impl AsFd, index: u32) -> io::Result<()> {
    let index = index.to_be().cast_signed();
    set(
        socket.as_fd(),
        libc::IPPROTO_IP,
        libc::IP_UNICAST_IF,
        &index,
    )
}

/// Turns the merging of received datagrams of one sender (`UDP_GRO`) on or off.
pub fn set_udp_gro(socket: impl AsFd, on: bool) -> io::Result<()> {
    let on = libc::c_int::from(on);
    set(socket.as_fd(), libc::SOL_UDP, libc::UDP_GRO, &on)
}

/// Reads an option of at most `N` bytes. Returns them, with zeros after those that the kernel has written, and how many
/// it has written.
pub(crate) fn get<const N: usize>(
    socket: BorrowedFd<'_>,
    level: libc::c_int,
    option: libc::c_int,
) -> io::Result<([u8; N], usize)> {
    let mut bytes = [0; N];
    let mut length = libc::socklen_t::try_from(N).expect("invariant: options are small");
    // SAFETY: the descriptor is open, because it is borrowed for the call. The kernel may write `length` bytes to
    // `bytes`, and both pointers outlive the call.
    let done = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            level,
            option,
            bytes.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    check(done)?;
    Ok((bytes, length as usize))
}

pub(crate) fn set(
    socket: BorrowedFd<'_>,
    level: libc::c_int,
    option: libc::c_int,
    value: &libc::c_int,
) -> io::Result<()> {
    let length = libc::socklen_t::try_from(size_of_val(value)).unwrap_or_default();
    // SAFETY: `value` is a live `c_int` and `length` is its size, and the kernel only reads it.
    let done = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            std::ptr::from_ref(value).cast(),
            length,
        )
    };
    check(done)
}
