//! Reads from a TCP socket that tell whether the socket is empty afterwards.
//!
//! Call [`report_unread`] once for each socket, then [`tcp_read`] for each read. With an edge-triggered poller, an empty
//! socket needs no second read that fails with `WouldBlock`.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd};

use crate::control_message::{ControlBuffer, ReceivedMessage};
use crate::socket_option;
use crate::syscall_result::length_as;

/// The result of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpRead {
    /// Number of bytes read. 0 is the FIN.
    pub length: usize,
    /// After this read the socket held neither bytes nor a FIN, so what arrives later is a new event. `false` if the
    /// kernel does not say.
    pub empty: bool,
}

/// Makes the kernel tell with each read how many bytes are left (`TCP_INQ`, tcp(7), since Linux 4.18).
pub fn report_unread(socket: impl AsFd) -> io::Result<()> {
    socket_option::set(socket.as_fd(), libc::IPPROTO_TCP, libc::TCP_INQ, &1)
}

/// Appends available bytes to `into`, at most its spare capacity. Fails with `WouldBlock` if there are none, and with
/// `Interrupted` if a signal came first.
pub fn tcp_read(socket: impl AsFd, into: &mut Vec<u8>) -> io::Result<TcpRead> {
    let spare = into.spare_capacity_mut();
    let mut part = libc::iovec {
        iov_base: spare.as_mut_ptr().cast(),
        iov_len: spare.len(),
    };
    let mut control = MaybeUninit::<ControlBuffer>::uninit();
    // SAFETY: a `msghdr` consists of integers and pointers, for which zeroes are valid.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = length_as(size_of::<ControlBuffer>());
    // SAFETY: `message` points at the vector's spare capacity and at a control buffer. Both outlive the call, have the
    // lengths given, and may be overwritten with any bytes.
    let length = unsafe { libc::recvmsg(socket.as_fd().as_raw_fd(), &raw mut message, 0) };
    let length = usize::try_from(length).map_err(|_| io::Error::last_os_error())?;
    // SAFETY: the kernel has filled the first `length` bytes of the spare capacity.
    unsafe { into.set_len(into.len() + length) };
    // SAFETY: `recvmsg` has filled in the message and its control buffer, which lives.
    let message = unsafe { ReceivedMessage::new(&message) };
    // SAFETY: the kernel writes an `int` in a message of this kind.
    let unread = unsafe { message.content::<libc::c_int>(libc::IPPROTO_TCP, libc::TCP_CM_INQ) };
    Ok(TcpRead {
        length,
        // A FIN counts as one unread byte.
        empty: unread == Some(0),
    })
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::net::{Shutdown, TcpListener, TcpStream};
    use std::time::{Duration, Instant};

    use super::*;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
        let far = TcpStream::connect(listener.local_addr().expect("bound")).expect("a connection");
        let (near, _) = listener.accept().expect("a connection");
        near.set_nonblocking(true).expect("settable");
        (near, far)
    }

    /// Waits until the socket has `count` bytes, a FIN counted as one.
    fn wait_for(socket: &TcpStream, count: u64) {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            let queued = rustix::io::ioctl_fionread(socket).expect("a TCP socket");
            let mut probe = [0];
            let fin = matches!(socket.peek(&mut probe), Ok(0));
            if queued + u64::from(fin) >= count {
                return;
            }
            assert!(Instant::now() < deadline, "{count} bytes never arrived");
            std::thread::yield_now();
        }
    }

    fn read(socket: &TcpStream, most: usize) -> (Vec<u8>, io::Result<TcpRead>) {
        let mut into = Vec::with_capacity(most);
        let result = tcp_read(socket, &mut into);
        (into, result)
    }

    #[test]
    fn a_read_of_everything_leaves_the_socket_empty() {
        let (near, mut far) = pair();
        report_unread(&near).expect("a TCP socket");
        far.write_all(b"three").expect("room");
        wait_for(&near, 5);
        let (bytes, result) = read(&near, 2);
        assert_eq!(bytes, b"th");
        assert_eq!(
            result.expect("bytes"),
            TcpRead {
                length: 2,
                empty: false
            }
        );
        let (bytes, result) = read(&near, 100);
        assert_eq!(bytes, b"ree");
        assert_eq!(
            result.expect("bytes"),
            TcpRead {
                length: 3,
                empty: true
            }
        );
        let (_, result) = read(&near, 100);
        assert_eq!(
            result.map_err(|error| error.kind()),
            Err(io::ErrorKind::WouldBlock)
        );
    }

    #[test]
    fn a_read_keeps_what_the_vector_holds() {
        let (near, mut far) = pair();
        far.write_all(b"new").expect("room");
        wait_for(&near, 3);
        let mut into = Vec::with_capacity(100);
        into.extend_from_slice(b"old ");
        let result = tcp_read(&near, &mut into).expect("bytes");
        assert_eq!((result.length, into.as_slice()), (3, b"old new".as_slice()));
    }

    #[test]
    fn a_fin_behind_the_bytes_is_left() {
        let (near, mut far) = pair();
        report_unread(&near).expect("a TCP socket");
        far.write_all(b"last").expect("room");
        far.shutdown(Shutdown::Write).expect("connected");
        wait_for(&near, 4);
        let deadline = Instant::now() + Duration::from_secs(20);
        while crate::tcp_unsent(&far).expect("a TCP socket") > 0 {
            assert!(Instant::now() < deadline, "the FIN was never acknowledged");
            std::thread::yield_now();
        }
        let (_, result) = read(&near, 100);
        assert_eq!(
            result.expect("bytes"),
            TcpRead {
                length: 4,
                empty: false
            }
        );
        let (_, result) = read(&near, 100);
        assert_eq!(
            result.expect("a FIN"),
            TcpRead {
                length: 0,
                empty: false
            }
        );
    }

    #[test]
    fn bytes_behind_urgent_data_are_left() {
        let (near, mut far) = pair();
        report_unread(&near).expect("a TCP socket");
        far.write_all(b"before").expect("room");
        rustix::net::send(&far, b"!", rustix::net::SendFlags::OOB).expect("room");
        far.write_all(b"behind").expect("room");
        let deadline = Instant::now() + Duration::from_secs(20);
        while crate::tcp_unsent(&far).expect("a TCP socket") > 0 {
            assert!(
                Instant::now() < deadline,
                "the bytes were never acknowledged"
            );
            std::thread::yield_now();
        }
        let (bytes, result) = read(&near, 100);
        assert_eq!(bytes, b"before", "a read stops before urgent data");
        assert!(!result.expect("bytes").empty);
        let (bytes, result) = read(&near, 100);
        assert_eq!(bytes, b"behind");
        assert!(result.expect("bytes").empty);
    }

    #[test]
    fn a_socket_that_does_not_report_is_never_empty() {
        let (near, mut far) = pair();
        far.write_all(b"x").expect("room");
        wait_for(&near, 1);
        let (_, result) = read(&near, 100);
        assert_eq!(
            result.expect("a byte"),
            TcpRead {
                length: 1,
                empty: false
            }
        );
    }
}
