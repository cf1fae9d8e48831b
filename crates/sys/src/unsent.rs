//! Bytes that a TCP socket has not yet delivered to the other end.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use crate::syscall_result::check;

/// Returns how many bytes written to a TCP socket the other end's system has not acknowledged. A FIN counts as one
/// byte.
pub fn tcp_unsent(socket: impl AsFd) -> io::Result<usize> {
    let mut unsent: libc::c_int = 0;
    // SAFETY: the descriptor is open, because it is borrowed for the call. The request writes one `c_int`, which
    // outlives the call.
    let done = unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), libc::TIOCOUTQ, &raw mut unsent) };
    check(done)?;
    Ok(usize::try_from(unsent).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::net::{Shutdown, TcpListener, TcpStream, UdpSocket};

    use super::*;

    #[test]
    fn bytes_beyond_the_peers_window_are_unsent() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
        let mut near =
            TcpStream::connect(listener.local_addr().expect("bound")).expect("a connection");
        let (far, _) = listener.accept().expect("a connection");
        near.set_nonblocking(true).expect("settable");
        let piece = vec![0; 1 << 20];
        while near.write(&piece).is_ok() {}
        assert!(tcp_unsent(&near).expect("a TCP socket") > 0);
        drop(far);
    }

    #[test]
    fn delivered_bytes_count_as_sent_before_the_peer_reads_them() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
        let mut near =
            TcpStream::connect(listener.local_addr().expect("bound")).expect("a connection");
        let (_far, _) = listener.accept().expect("a connection");
        near.write_all(b"unread").expect("room for 6 bytes");
        near.shutdown(Shutdown::Write).expect("connected");
        // Loopback acknowledges by itself, but other processes on the machine may delay it.
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while tcp_unsent(&near).expect("a TCP socket") > 0 {
            assert!(std::time::Instant::now() < deadline, "never acknowledged");
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_descriptor_that_is_not_a_socket_is_an_error() {
        let file = std::fs::File::open("/dev/null").expect("/dev/null");
        assert!(tcp_unsent(&file).is_err());
        let udp = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        assert_eq!(tcp_unsent(&udp).ok(), Some(0));
    }
}
