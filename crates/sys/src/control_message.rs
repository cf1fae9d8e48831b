//! Control messages that the kernel adds to what a socket receives (cmsg(3)).

use std::io;
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::syscall_result::length_as;

/// Room for one control message that carries a number or an address.
#[derive(Default)]
#[repr(C, align(8))]
pub(crate) struct ControlBuffer([u64; 8]);

/// A message that `recvmsg` has filled in, with its control buffer.
pub(crate) struct ReceivedMessage<'a>(&'a libc::msghdr);

impl<'a> ReceivedMessage<'a> {
    /// Takes a message that `recvmsg` has filled in.
    // SAFETY: the caller keeps the aligned control buffer for as long as the value lives.
    pub(crate) unsafe fn new(message: &'a libc::msghdr) -> Self {
        Self(message)
    }

    /// Returns the content of the first control message, if it is of this level and kind and holds all of it.
    // SAFETY: the caller names a kind in whose messages the kernel writes a `T`.
    pub(crate) unsafe fn content<T>(&self, level: libc::c_int, kind: libc::c_int) -> Option<T> {
        // SAFETY: the kernel has written `msg_controllen` bytes of complete control messages at `msg_control`.
        let first = unsafe { libc::CMSG_FIRSTHDR(self.0) };
        if first.is_null() {
            return None;
        }
        // SAFETY: the pointer is not null, so it points at a header inside the aligned control buffer, which lives.
        let head = unsafe { first.read() };
        // SAFETY: the macro only computes a length.
        let whole = unsafe { libc::CMSG_LEN(length_as(size_of::<T>())) };
        if (head.cmsg_level, head.cmsg_type) != (level, kind)
            || length_as::<_, u64>(head.cmsg_len) < u64::from(whole)
        {
            return None;
        }
        // SAFETY: `first` is valid, see above, and its data follow it.
        let data = unsafe { libc::CMSG_DATA(first) };
        // SAFETY: the header's length and kind say that a `T` was written there.
        Some(unsafe { data.cast::<T>().read_unaligned() })
    }
}

/// Receives a datagram. Returns its length, its sender, and what `read` finds in its control message.
pub(crate) fn receive<T>(
    socket: BorrowedFd<'_>,
    into: &mut [u8],
    read: impl FnOnce(&ReceivedMessage<'_>) -> T,
) -> io::Result<(usize, SocketAddr, T)> {
    // SAFETY: this structure consists of integers, for which zeroes are valid.
    let mut name: libc::sockaddr_in6 = unsafe { std::mem::zeroed() };
    let mut part = libc::iovec {
        iov_base: into.as_mut_ptr().cast(),
        iov_len: into.len(),
    };
    let mut control = MaybeUninit::<ControlBuffer>::uninit();
    // SAFETY: a `msghdr` consists of integers and pointers, for which zeroes are valid.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_name = (&raw mut name).cast();
    message.msg_namelen = length_as(size_of_val(&name));
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = length_as(size_of::<ControlBuffer>());
    // SAFETY: `message` points at a name, the caller's buffer and a control buffer. All outlive the call, have the lengths
    // given, and may be overwritten with any bytes.
    let length = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, 0) };
    let length = usize::try_from(length).map_err(|_| io::Error::last_os_error())?;
    let source = address(&name).ok_or(io::ErrorKind::InvalidData)?;
    // SAFETY: `recvmsg` has filled in `message` and its control buffer, which is aligned and lives.
    let found = read(&unsafe { ReceivedMessage::new(&message) });
    Ok((length, source, found))
}

/// Returns the address that the kernel has written. The structure of IPv4 begins like that of IPv6.
pub(crate) fn address(name: &libc::sockaddr_in6) -> Option<SocketAddr> {
    let port = u16::from_be(name.sin6_port);
    match libc::c_int::from(name.sin6_family) {
        libc::AF_INET => {
            // The address of IPv4 stands where IPv6 has the flow information.
            let ip = Ipv4Addr::from_bits(u32::from_be(name.sin6_flowinfo));
            Some(SocketAddr::new(ip.into(), port))
        }
        libc::AF_INET6 => {
            let ip = Ipv6Addr::from(name.sin6_addr.s6_addr);
            Some(SocketAddrV6::new(ip, port, 0, name.sin6_scope_id).into())
        }
        _ => None,
    }
}
