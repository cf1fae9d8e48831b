//! An application's TCP connection that knows when a read has taken everything.

use std::io::{self, IoSlice, Write as _};
use std::net::TcpStream;

/// A connected, non-blocking TCP socket of an application.
#[derive(Debug)]
pub(crate) struct TcpSocket {
    stream: TcpStream,
    /// The last read left neither bytes nor a FIN.
    drained: bool,
    /// A call has reported that the connection was reset. The kernel reports this once: later reads give the bytes from
    /// before the reset, and then what looks like a FIN.
    reset: bool,
}

impl TcpSocket {
    pub(crate) fn new(stream: TcpStream) -> Self {
        // Without the report, each read is followed by one that would block.
        if let Err(error) = quictun_sys::report_unread(&stream) {
            tracing::debug!(%error, "the kernel does not report unread bytes");
        }
        Self {
            stream,
            drained: false,
            reset: false,
        }
    }

    pub(crate) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    pub(crate) fn read(&mut self, into: &mut Vec<u8>) -> io::Result<usize> {
        loop {
            match quictun_sys::tcp_read(&self.stream, into) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.reset |= error.kind() != io::ErrorKind::WouldBlock;
                    return Err(error);
                }
                Ok(read) if read.length == 0 && self.reset => {
                    return Err(io::ErrorKind::ConnectionReset.into());
                }
                Ok(read) => {
                    self.drained = read.empty;
                    return Ok(read.length);
                }
            }
        }
    }

    pub(crate) fn write(&mut self, chunks: &[IoSlice<'_>]) -> io::Result<usize> {
        let written = (&self.stream).write_vectored(chunks);
        if let Err(error) = &written {
            // A broken pipe takes nothing away from the reads: it follows a FIN, or an error that was reported before.
            let kept = [
                io::ErrorKind::WouldBlock,
                io::ErrorKind::Interrupted,
                io::ErrorKind::BrokenPipe,
            ];
            self.reset |= !kept.contains(&error.kind());
        }
        written
    }

    pub(crate) fn is_drained(&self) -> bool {
        self.drained
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::net::TcpListener;

    use super::*;

    fn ends() -> (TcpSocket, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
        let near = TcpStream::connect(listener.local_addr().expect("bound")).expect("a connection");
        let (far, _) = listener.accept().expect("the other end");
        (TcpSocket::new(near), far)
    }

    // PROTOCOL CLOSE-3.
    #[test]
    fn bytes_from_before_a_reset_are_read_and_then_an_error_whatever_reported_the_reset() {
        for writes in [0, 1, 2] {
            let (mut socket, mut far) = ends();
            socket.stream.write_all(b"ab").expect("room");
            far.read_exact(&mut [0]).expect("a byte");
            far.write_all(b"answer").expect("room");
            // One byte is unread, so this is a reset.
            drop(far);
            while socket.stream.peek(&mut [0; 16]).expect("bytes") < 6 {}
            let end = [IoSlice::new(b"x")];
            let mut failed = 0;
            while failed < writes {
                failed += usize::from(socket.write(&end).is_err());
            }
            let mut bytes = Vec::with_capacity(16);
            assert_eq!(socket.read(&mut bytes).expect("bytes"), 6);
            for _ in 0..3 {
                assert!(socket.read(&mut bytes).is_err(), "after {writes} writes");
            }
        }
    }
}
