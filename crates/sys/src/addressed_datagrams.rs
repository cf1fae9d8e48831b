//! Datagrams of a socket at all addresses, with the address of this host to which each was sent.
//!
//! Call [`report_destinations`] once for each socket. [`recv_addressed`] then tells the address, and [`send_addressed`]
//! answers from it. Otherwise the kernel would choose the answer's address by its route, and the peer would not
//! recognize the answer.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};

use crate::control_message::{ControlBuffer, ReceivedMessage, receive};
use crate::socket_option;
use crate::syscall_result::length_as;

/// A datagram in the buffer of [`recv_addressed`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressedDatagram {
    /// Number of bytes in the buffer.
    pub length: usize,
    /// The address of the sender.
    pub source: SocketAddr,
    /// The address of this host to which it was sent. `None` if the socket does not report it.
    pub local: Option<IpAddr>,
}

/// The content of a control message: `in_pktinfo` or `in6_pktinfo` (ip(7), ipv6(7)).
enum PacketInfo {
    V4(libc::in_pktinfo),
    V6(libc::in6_pktinfo),
}

/// Makes the kernel report the addresses to which datagrams were sent. `v6` says whether the socket is one of IPv6, which
/// may take datagrams of IPv4, too.
pub fn report_destinations(socket: impl AsFd, v6: bool) -> io::Result<()> {
    let (level, option) = if v6 {
        (libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO)
    } else {
        (libc::IPPROTO_IP, libc::IP_PKTINFO)
    };
    socket_option::set(socket.as_fd(), level, option, &1)
}

/// Receives a datagram into `buffer`. What does not fit is lost.
pub fn recv_addressed(socket: impl AsFd, buffer: &mut [u8]) -> io::Result<AddressedDatagram> {
    let (length, source, local) = receive(socket.as_fd(), buffer, local)?;
    Ok(AddressedDatagram {
        length,
        source,
        local,
    })
}

/// Sends a datagram to `to`, from the address `from` of this host. If that is `None`, the kernel chooses one. A socket of
/// IPv6 names both in the form of IPv6.
pub fn send_addressed(
    socket: impl AsFd,
    payload: &[u8],
    to: SocketAddr,
    from: Option<IpAddr>,
) -> io::Result<usize> {
    let socket = socket.as_fd();
    let Some(from) = from else {
        let flags = rustix::net::SendFlags::empty();
        return Ok(rustix::net::sendto(socket, payload, flags, &to)?);
    };
    let mut control = ControlBuffer::default();
    let mut part = libc::iovec {
        iov_base: payload.as_ptr().cast_mut().cast(),
        iov_len: payload.len(),
    };
    // SAFETY: a `msghdr` consists of integers and pointers, for which zeroes are valid.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    let (mut v4, mut v6) = (name_v4(to), name_v6(to));
    let (name, length) = match to {
        SocketAddr::V4(_) => ((&raw mut v4).cast(), size_of_val(&v4)),
        SocketAddr::V6(_) => ((&raw mut v6).cast(), size_of_val(&v6)),
    };
    message.msg_name = name;
    message.msg_namelen = length_as(length);
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = (&raw mut control).cast();
    message.msg_controllen = length_as(size_of::<ControlBuffer>());
    put_info(&mut message, &PacketInfo::from_address(from));
    // SAFETY: `message` points at a name, the payload and a control buffer, which outlive the call and have the lengths
    // given. The kernel only reads them.
    let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, 0) };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

impl PacketInfo {
    fn from_address(from: IpAddr) -> Self {
        match from {
            IpAddr::V4(from) => Self::V4(libc::in_pktinfo {
                ipi_ifindex: 0,
                ipi_spec_dst: libc::in_addr {
                    s_addr: from.to_bits().to_be(),
                },
                ipi_addr: libc::in_addr { s_addr: 0 },
            }),
            IpAddr::V6(from) => Self::V6(libc::in6_pktinfo {
                ipi6_addr: libc::in6_addr {
                    s6_addr: from.octets(),
                },
                ipi6_ifindex: 0,
            }),
        }
    }
}

fn name_v4(to: SocketAddr) -> libc::sockaddr_in {
    // SAFETY: this structure consists of integers, for which zeroes are valid.
    let mut name: libc::sockaddr_in = unsafe { std::mem::zeroed() };
    if let SocketAddr::V4(to) = to {
        name.sin_family = length_as(libc::AF_INET);
        name.sin_port = to.port().to_be();
        name.sin_addr.s_addr = to.ip().to_bits().to_be();
    }
    name
}

fn name_v6(to: SocketAddr) -> libc::sockaddr_in6 {
    // SAFETY: this structure consists of integers, for which zeroes are valid.
    let mut name: libc::sockaddr_in6 = unsafe { std::mem::zeroed() };
    if let SocketAddr::V6(to) = to {
        name.sin6_family = length_as(libc::AF_INET6);
        name.sin6_port = to.port().to_be();
        name.sin6_flowinfo = to.flowinfo();
        name.sin6_addr.s6_addr = to.ip().octets();
        name.sin6_scope_id = to.scope_id();
    }
    name
}

/// Writes a control message. `message` must have a control buffer.
fn put_info(message: &mut libc::msghdr, info: &PacketInfo) {
    let (level, kind, length) = match info {
        PacketInfo::V4(info) => (libc::IPPROTO_IP, libc::IP_PKTINFO, size_of_val(info)),
        PacketInfo::V6(info) => (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, size_of_val(info)),
    };
    let length = length_as(length);
    // SAFETY: the macro only computes a length.
    message.msg_controllen = length_as(unsafe { libc::CMSG_SPACE(length) });
    // SAFETY: a `cmsghdr` consists of integers, for which zeroes are valid.
    let mut header: libc::cmsghdr = unsafe { std::mem::zeroed() };
    header.cmsg_level = level;
    header.cmsg_type = kind;
    // SAFETY: the macro only computes a length.
    header.cmsg_len = length_as(unsafe { libc::CMSG_LEN(length) });
    // SAFETY: the control buffer is aligned, and has room for more than this one message: 40 bytes of 64.
    let head = unsafe { libc::CMSG_FIRSTHDR(message) };
    // SAFETY: `head` points at the beginning of the control buffer, where a header has room.
    unsafe { head.write(header) };
    // SAFETY: `head` is valid, see above, and its data follow it.
    let data = unsafe { libc::CMSG_DATA(head) };
    match info {
        PacketInfo::V4(info) => {
            // SAFETY: the buffer has room for the content, see above.
            unsafe { data.cast::<libc::in_pktinfo>().write_unaligned(*info) }
        }
        PacketInfo::V6(info) => {
            // SAFETY: the buffer has room for the content, see above.
            unsafe { data.cast::<libc::in6_pktinfo>().write_unaligned(*info) }
        }
    }
}

/// Returns the address of this host that came with a message.
fn local(message: &ReceivedMessage<'_>) -> Option<IpAddr> {
    // SAFETY: the kernel writes an `in_pktinfo` in a message of this kind.
    let v4 = unsafe { message.content::<libc::in_pktinfo>(libc::IPPROTO_IP, libc::IP_PKTINFO) };
    if let Some(info) = v4 {
        return Some(Ipv4Addr::from_bits(u32::from_be(info.ipi_spec_dst.s_addr)).into());
    }
    // SAFETY: the kernel writes an `in6_pktinfo` in a message of this kind.
    let v6 =
        unsafe { message.content::<libc::in6_pktinfo>(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) };
    let local = Ipv6Addr::from(v6?.ipi6_addr.s6_addr);
    // A group's address is not one of this host.
    (!local.is_multicast()).then_some(local.into())
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::time::Duration;

    use super::*;

    /// Sends to this address of a socket at all addresses, and returns the address from which the answer comes.
    fn answer_to(all: IpAddr, port_of: &UdpSocket, to: IpAddr) -> SocketAddr {
        let unspecified: IpAddr = match to {
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let program = UdpSocket::bind((unspecified, 0)).expect("a free port");
        let timeout = Some(Duration::from_secs(10));
        program.set_read_timeout(timeout).expect("an option");
        port_of.set_read_timeout(timeout).expect("an option");
        let port = port_of.local_addr().expect("bound").port();
        program.send_to(b"question", (to, port)).expect("sent");
        let mut buffer = [0; 100];
        let got = recv_addressed(port_of, &mut buffer).expect("a datagram");
        assert_eq!(&buffer[..got.length], b"question");
        let local = got.local.expect("it is reported");
        assert_eq!(local.to_canonical(), to, "{all}");
        let sent = send_addressed(port_of, b"answer", got.source, got.local);
        assert_eq!(sent.expect("sent"), 6);
        let (length, from) = program.recv_from(&mut buffer).expect("an answer");
        assert_eq!(&buffer[..length], b"answer");
        from
    }

    // The kernel would answer from 127.0.0.1: each address of 127.0.0.0/8 is one of this host.
    #[test]
    fn an_answer_comes_from_the_address_that_was_asked() {
        let v4: IpAddr = Ipv4Addr::UNSPECIFIED.into();
        let socket = UdpSocket::bind((v4, 0)).expect("a free port");
        report_destinations(&socket, false).expect("an option");
        for to in ["127.0.0.1", "127.0.0.7"] {
            let to: IpAddr = to.parse().expect(to);
            assert_eq!(answer_to(v4, &socket, to).ip(), to);
        }
        let v6: IpAddr = Ipv6Addr::UNSPECIFIED.into();
        let Ok(socket) = UdpSocket::bind((v6, 0)) else {
            let test = "an_answer_comes_from_the_address_that_was_asked";
            return quictun_skip::skipped(test, "no IPv6 here");
        };
        report_destinations(&socket, true).expect("an option");
        for to in ["::1", "127.0.0.1", "127.0.0.7"] {
            let to: IpAddr = to.parse().expect(to);
            assert_eq!(answer_to(v6, &socket, to).ip(), to);
        }
    }

    #[test]
    fn a_socket_that_reports_no_address_lets_the_kernel_choose_one() {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let program = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let at = socket.local_addr().expect("bound");
        program.send_to(b"x", at).expect("sent");
        let got = recv_addressed(&socket, &mut [0; 10]).expect("a datagram");
        let source = program.local_addr().expect("bound");
        assert_eq!((got.length, got.source, got.local), (1, source, None));
        assert_eq!(
            send_addressed(&socket, b"y", source, None).expect("sent"),
            1
        );
        assert_eq!(program.recv_from(&mut [0; 10]).expect("received"), (1, at));
    }
}
