//! Datagrams that the packet filter leads to a transparent socket (`IP_TRANSPARENT`, the kernel's `tproxy.rst`). The kernel
//! says which address each of them was sent to.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;

use crate::control_message::{ReceivedMessage, address, receive};
use crate::socket_option;

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
    let (length, source, destination) = receive(socket.as_fd(), into, destination)?;
    Ok(DivertedDatagram {
        length,
        source,
        destination: destination.ok_or(io::ErrorKind::InvalidData)?,
    })
}

/// Returns the address that came with a message.
fn destination(message: &ReceivedMessage<'_>) -> Option<SocketAddr> {
    // SAFETY: the kernel writes a `sockaddr_in` in a message of this kind.
    let v4 =
        unsafe { message.content::<libc::sockaddr_in>(libc::IPPROTO_IP, libc::IP_ORIGDSTADDR) };
    if let Some(name) = v4 {
        let ip = Ipv4Addr::from_bits(u32::from_be(name.sin_addr.s_addr));
        return Some((ip, u16::from_be(name.sin_port)).into());
    }
    let (level, kind) = (libc::IPPROTO_IPV6, libc::IPV6_ORIGDSTADDR);
    // SAFETY: the kernel writes a `sockaddr_in6` in a message of this kind.
    let v6 = unsafe { message.content::<libc::sockaddr_in6>(level, kind) };
    address(&v6?)
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
