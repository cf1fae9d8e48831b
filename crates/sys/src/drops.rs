//! Datagrams that this host dropped because the receive buffer was full.

use std::io;
use std::os::fd::AsFd;

use crate::netlink::u32_at;
use crate::socket_option;

/// Length of the `SO_MEMINFO` answer: words of 32 bits, `SK_MEMINFO_VARS` of `linux/sock_diag.h`.
const LENGTH: usize = 9 * 4;
/// Offset of the word that counts drops: `SK_MEMINFO_DROPS`.
const DROPS: usize = 8 * 4;

/// Returns how many datagrams that arrived on `socket` were dropped since it was made, because its receive buffer was
/// full.
///
/// The kernel's counter has 32 bits and wraps to 0. Fails with `Unsupported` if the kernel does not count (before Linux
/// 4.12).
pub fn socket_drops(socket: impl AsFd) -> io::Result<u32> {
    let (words, length): ([u8; LENGTH], _) =
        socket_option::get(socket.as_fd(), libc::SOL_SOCKET, libc::SO_MEMINFO)?;
    let drops = u32_at(&words[..length.min(LENGTH)], DROPS);
    drops.ok_or_else(|| io::ErrorKind::Unsupported.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    #[test]
    fn datagrams_beyond_the_receive_buffer_are_counted() {
        let receiver = UdpSocket::bind("127.0.0.1:0").expect("a loopback socket");
        let sender = UdpSocket::bind("127.0.0.1:0").expect("a loopback socket");
        assert_eq!(socket_drops(&receiver).expect("a socket"), 0);
        rustix::net::sockopt::set_socket_recv_buffer_size(&receiver, 4096).expect("a socket");
        let to = receiver.local_addr().expect("bound");
        for _ in 0..64 {
            sender.send_to(&[0; 1024], to).expect("loopback");
        }
        receiver.set_nonblocking(true).expect("a socket");
        let read = std::iter::from_fn(|| receiver.recv(&mut [0; 1024]).ok()).count();
        let dropped = socket_drops(&receiver).expect("a socket");
        assert!(dropped > 0);
        assert_eq!(read + dropped as usize, 64);
    }

    #[test]
    fn a_file_is_refused() {
        let file = std::fs::File::open("/dev/null").expect("/dev/null");
        assert!(socket_drops(&file).is_err());
    }
}
