//! Datagrams that the packet filter leads to a transparent socket (`IP_TRANSPARENT`, the kernel's `tproxy.rst`). The kernel
//! says which address each of them was sent to.

use std::io;
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd};

use crate::socket_option;
use crate::syscall_result::length_as;

/// A datagram that has arrived at a transparent socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DivertedDatagram {
    /// Number of bytes received.
    pub length: usize,
    /// The address that the datagram has come from.
    pub source: SocketAddr,
    /// The address that the sender has sent to.
    pub destination: SocketAddr,
}

/// Room for one control message that carries a socket address.
#[repr(C, align(8))]
struct ControlBuffer([u8; 64]);

/// Makes the kernel tell with each datagram which address it was sent to (`IP_RECVORIGDSTADDR`, `IPV6_RECVORIGDSTADDR`).
pub fn report_original_destinations(socket: impl AsFd, v6: bool) -> io::Result<()> {
    let (level, option) = if v6 {
        (libc::IPPROTO_IPV6, libc::IPV6_RECVORIGDSTADDR)
    } else {
        (libc::IPPROTO_IP, libc::IP_RECVORIGDSTADDR)
    };
    socket_option::set(socket.as_fd(), level, option, &1)
}

/// Receives a datagram at a socket for which [`report_original_destinations`] was called.
///
/// # Errors
///
/// Fails with `WouldBlock` if there is none, and with `InvalidData` if the kernel has not said where it was sent to.
pub fn receive_diverted(socket: impl AsFd, into: &mut [u8]) -> io::Result<DivertedDatagram> {
    let mut part = libc::iovec {
        iov_base: into.as_mut_ptr().cast(),
        iov_len: into.len(),
    };
    let mut control = MaybeUninit::<ControlBuffer>::uninit();
    // SAFETY: a `sockaddr_storage` consists of integers, for which zeroes are valid.
    let mut source: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    // SAFETY: a `msghdr` consists of integers and pointers, for which zeroes are valid.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_name = (&raw mut source).cast();
    message.msg_namelen = length_as(size_of::<libc::sockaddr_storage>());
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = length_as(size_of::<ControlBuffer>());
    // SAFETY: `message` points at the caller's buffer, at an address and at a control buffer. All outlive the call, have the
    // lengths given, and may be overwritten with any bytes.
    let length = unsafe { libc::recvmsg(socket.as_fd().as_raw_fd(), &raw mut message, 0) };
    let length = usize::try_from(length).map_err(|_| io::Error::last_os_error())?;
    let missing = || io::Error::from(io::ErrorKind::InvalidData);
    Ok(DivertedDatagram {
        length,
        source: address(&source).ok_or_else(missing)?,
        destination: destination(&message).ok_or_else(missing)?,
    })
}

/// Returns the address that came with a message. `recvmsg` must have filled in `message`.
fn destination(message: &libc::msghdr) -> Option<SocketAddr> {
    // SAFETY: the kernel has written `msg_controllen` bytes of complete control messages at `msg_control`.
    let first = unsafe { libc::CMSG_FIRSTHDR(message) };
    if first.is_null() {
        return None;
    }
    // SAFETY: the pointer is not null, so it points at a header inside the aligned control buffer, which the caller
    // keeps.
    let head = unsafe { first.read() };
    let length = match (head.cmsg_level, head.cmsg_type) {
        (libc::IPPROTO_IP, libc::IP_ORIGDSTADDR) => size_of::<libc::sockaddr_in>(),
        (libc::IPPROTO_IPV6, libc::IPV6_ORIGDSTADDR) => size_of::<libc::sockaddr_in6>(),
        _ => return None,
    };
    // SAFETY: the macro only computes a length.
    let whole = unsafe { libc::CMSG_LEN(length_as(length)) };
    if length_as::<_, u64>(head.cmsg_len) < u64::from(whole) {
        return None;
    }
    // SAFETY: `first` is valid, see above, and its data follow it.
    let data = unsafe { libc::CMSG_DATA(first) };
    // SAFETY: a `sockaddr_storage` consists of integers, for which zeroes are valid.
    let mut found: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    // SAFETY: the header's length says that `length` bytes were written at `data`, and the storage is longer.
    unsafe { data.copy_to_nonoverlapping((&raw mut found).cast(), length) };
    address(&found)
}

/// Returns the address in the storage, if it is one of IPv4 or IPv6.
fn address(storage: &libc::sockaddr_storage) -> Option<SocketAddr> {
    match libc::c_int::from(storage.ss_family) {
        libc::AF_INET => {
            // SAFETY: the storage is longer than a `sockaddr_in` and aligned for it. Any bytes are valid as one.
            let v4 = unsafe {
                std::ptr::from_ref(storage)
                    .cast::<libc::sockaddr_in>()
                    .read()
            };
            let ip = Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr));
            Some((ip, u16::from_be(v4.sin_port)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: the storage is longer than a `sockaddr_in6` and aligned for it. Any bytes are valid as one.
            let v6 = unsafe {
                std::ptr::from_ref(storage)
                    .cast::<libc::sockaddr_in6>()
                    .read()
            };
            let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
            let port = u16::from_be(v6.sin6_port);
            Some(SocketAddrV6::new(ip, port, 0, v6.sin6_scope_id).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    #[test]
    fn a_datagram_comes_with_both_addresses() {
        for host in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(socket) = UdpSocket::bind(host) else {
                continue;
            };
            let address = socket.local_addr().expect("bound");
            let sender = UdpSocket::bind(host).expect("a free port");
            let mut buffer = [0; 64];
            sender.send_to(b"before", address).expect("sent");
            let unknown = receive_diverted(&socket, &mut buffer);
            let kind = unknown.expect_err("not asked for").kind();
            assert_eq!(kind, io::ErrorKind::InvalidData);
            report_original_destinations(&socket, address.is_ipv6()).expect("an option");
            for sent in [&b""[..], b"after"] {
                sender.send_to(sent, address).expect("sent");
                let came = receive_diverted(&socket, &mut buffer).expect("a datagram");
                assert_eq!(&buffer[..came.length], sent);
                let source = sender.local_addr().expect("bound");
                assert_eq!((came.source, came.destination), (source, address));
            }
            socket.set_nonblocking(true).expect("an option");
            let none = receive_diverted(&socket, &mut buffer).expect_err("nothing");
            assert_eq!(none.kind(), io::ErrorKind::WouldBlock);
        }
    }
}
