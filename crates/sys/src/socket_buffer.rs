//! Socket buffers, as large as the system allows.

use std::io;
use std::os::fd::AsFd;

use rustix::net::sockopt;

/// The two buffers of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BufferSide {
    /// The receive buffer, for data that has arrived and was not read: `SO_RCVBUF`.
    Receive,
    /// The send buffer, for data that was written and has not left: `SO_SNDBUF`.
    Send,
}

/// Asks for a socket buffer of `wanted` bytes and returns how many were granted.
///
/// With `CAP_NET_ADMIN` the size may exceed `net.core.rmem_max` / `wmem_max`. Without the capability, the kernel
/// silently cuts the size to them, so compare the result with `wanted`. Linux doubles the number for its own
/// bookkeeping; the result is without the doubling. A buffer is never made smaller than it was.
pub fn socket_buffer_force(
    socket: impl AsFd,
    side: BufferSide,
    wanted: usize,
) -> io::Result<usize> {
    let socket = socket.as_fd();
    // The kernel takes an int and doubles it.
    let wanted = wanted.min(i32::MAX as usize / 2);
    let granted = || -> io::Result<usize> {
        Ok(match side {
            BufferSide::Receive => sockopt::socket_recv_buffer_size(socket)?,
            BufferSide::Send => sockopt::socket_send_buffer_size(socket)?,
        } / 2)
    };
    let before = granted()?;
    if before >= wanted {
        return Ok(before);
    }
    match side {
        BufferSide::Receive => sockopt::set_socket_recv_buffer_size_force(socket, wanted)
            .or_else(|_| sockopt::set_socket_recv_buffer_size(socket, wanted))?,
        BufferSide::Send => sockopt::set_socket_send_buffer_size_force(socket, wanted)
            .or_else(|_| sockopt::set_socket_send_buffer_size(socket, wanted))?,
    }
    granted()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::net::UdpSocket;

    #[test]
    fn the_granted_size_lies_between_the_old_and_the_requested_one() {
        for side in [BufferSide::Receive, BufferSide::Send] {
            let socket = UdpSocket::bind("127.0.0.1:0").expect("a loopback socket");
            let before = socket_buffer_force(&socket, side, 0).expect("a socket");
            let granted = socket_buffer_force(&socket, side, before + 4096).expect("a socket");
            assert!(
                (before..=before + 4096).contains(&granted),
                "{side:?}: {before} -> {granted}"
            );
            // A process that may force the size gets all of it.
            let can_force = sockopt::set_socket_recv_buffer_size_force(&socket, granted).is_ok();
            assert!(
                !can_force || granted == before + 4096,
                "{side:?}: {before} -> {granted}"
            );
        }
    }

    #[test]
    fn a_buffer_is_never_made_smaller() {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a loopback socket");
        let before = sockopt::socket_recv_buffer_size(&socket).expect("a socket");
        let granted = socket_buffer_force(&socket, BufferSide::Receive, 4096).expect("a socket");
        assert_eq!(granted, before / 2);
        assert_eq!(
            sockopt::socket_recv_buffer_size(&socket).expect("a socket"),
            before
        );
    }

    #[test]
    fn a_size_beyond_the_kernels_maximum_is_capped() {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a loopback socket");
        let granted =
            socket_buffer_force(&socket, BufferSide::Send, usize::MAX).expect("cut, not refused");
        assert!(granted > 0);
    }

    #[test]
    fn a_file_is_refused() {
        let file = File::open("/dev/null").expect("/dev/null");
        assert!(socket_buffer_force(&file, BufferSide::Receive, 1).is_err());
    }
}
