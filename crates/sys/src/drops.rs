//! Datagrams that this host dropped because the receive buffer was full.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use crate::syscall_result::check;

/// Words of the `SO_MEMINFO` answer: `SK_MEMINFO_VARS` of `linux/sock_diag.h`.
const WORDS: usize = 9;
/// Index of the word that counts drops: `SK_MEMINFO_DROPS`.
const DROPS: usize = 8;

/// Returns how many datagrams that arrived on `socket` were dropped since it was made, because its receive buffer was
/// full.
///
/// The kernel's counter has 32 bits and wraps to 0. Fails with `Unsupported` if the kernel does not count (before Linux
/// 4.12).
pub fn socket_drops(socket: impl AsFd) -> io::Result<u32> {
    let socket = socket.as_fd();
    let mut words = [0u32; WORDS];
    let mut length =
        libc::socklen_t::try_from(size_of_val(&words)).expect("invariant: 36 bytes fit");
    // SAFETY: the descriptor is open, because it is borrowed for the call. The kernel may write `length` bytes to
    // `words`, any bytes are valid there, and both pointers outlive the call.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MEMINFO,
            words.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    check(result)?;
    if (length as usize) < size_of_val(&words) {
        return Err(io::ErrorKind::Unsupported.into());
    }
    Ok(words[DROPS])
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
