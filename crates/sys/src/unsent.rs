//! What a TCP socket has not yet brought to the other end.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use crate::returned::check;

/// Bytes written to a TCP socket that the other end's system has not acknowledged, a FIN counted as one.
pub fn tcp_unsent(socket: impl AsFd) -> io::Result<usize> {
    let mut unsent: libc::c_int = 0;
    // SAFETY: the descriptor is open, because it is borrowed for the call; the request writes one `c_int`,
    // which outlives the call.
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
    fn what_the_other_end_has_no_room_for_is_unsent() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
        let mut near =
            TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens");
        let (far, _) = listener.accept().expect("it has connected");
        near.set_nonblocking(true).expect("settable");
        let piece = vec![0; 1 << 20];
        while near.write(&piece).is_ok() {}
        assert!(tcp_unsent(&near).expect("a TCP socket") > 0);
        drop(far);
    }

    #[test]
    fn what_the_other_end_has_is_sent_read_or_not() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
        let mut near =
            TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens");
        let (_far, _) = listener.accept().expect("it has connected");
        near.write_all(b"unread").expect("there is room");
        near.shutdown(Shutdown::Write).expect("connected");
        // Loopback acknowledges by itself; other processes of the machine may delay it.
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while tcp_unsent(&near).expect("a TCP socket") > 0 {
            assert!(std::time::Instant::now() < deadline, "never acknowledged");
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_descriptor_that_is_no_socket_is_an_error() {
        let file = std::fs::File::open("/dev/null").expect("it is there");
        assert!(tcp_unsent(&file).is_err());
        let udp = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        assert_eq!(tcp_unsent(&udp).ok(), Some(0));
    }
}
