//! The kernel's information about a TCP connection.

use std::io;
use std::mem::offset_of;
use std::os::fd::AsFd;
use std::time::Duration;

use libc::tcp_info as Info;

use crate::netlink::u32_at;
use crate::socket_option;

/// State of a TCP connection, as the kernel reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpInfo {
    /// The smoothed round-trip time.
    pub rtt: Duration,
    /// Segments sent, including retransmissions.
    pub segments_sent: u64,
    /// Segments that were retransmitted.
    pub segments_again: u64,
    /// Segments that have arrived out of order. 0 before Linux 5.4.
    pub segments_out_of_order: u64,
    /// Longest packet of the path in bytes, including the IP header.
    pub path_mtu: u32,
}

/// Asks the kernel about a TCP socket. Fails with `InvalidData` if the kernel's answer is shorter than that of Linux
/// 4.6.
pub fn tcp_info(socket: impl AsFd) -> io::Result<TcpInfo> {
    const LENGTH: usize = size_of::<Info>();
    let (info, length): ([u8; LENGTH], _) =
        socket_option::get(socket.as_fd(), libc::IPPROTO_TCP, libc::TCP_INFO)?;
    // An older kernel has a shorter structure.
    if length < offset_of!(Info, tcpi_segs_out) + size_of::<u32>() {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let field = |at| u32_at(&info, at).unwrap_or_default();
    Ok(TcpInfo {
        rtt: Duration::from_micros(field(offset_of!(Info, tcpi_rtt)).into()),
        segments_sent: field(offset_of!(Info, tcpi_segs_out)).into(),
        segments_again: field(offset_of!(Info, tcpi_total_retrans)).into(),
        segments_out_of_order: field(offset_of!(Info, tcpi_rcv_ooopack)).into(),
        path_mtu: field(offset_of!(Info, tcpi_pmtu)),
    })
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream, UdpSocket};

    use super::*;

    #[test]
    fn sent_segments_are_counted() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
        let address = listener.local_addr().expect("an address");
        let mut near = TcpStream::connect(address).expect("a connection");
        let (mut far, _) = listener.accept().expect("the other end");
        let before = tcp_info(&near).expect("an answer");
        near.write_all(b"some bytes").expect("room for ten bytes");
        far.read_exact(&mut [0; 10]).expect("ten bytes");
        let after = tcp_info(&near).expect("an answer");
        assert!(after.segments_sent > before.segments_sent, "{after:?}");
        assert!(after.path_mtu >= 1280, "{after:?}");
    }

    #[test]
    fn a_socket_that_is_not_tcp_has_no_answer() {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        assert!(tcp_info(&socket).is_err());
    }
}
