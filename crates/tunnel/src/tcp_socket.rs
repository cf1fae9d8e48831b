//! An application's TCP connection that knows when a read has taken everything.

use std::io;
use std::net::TcpStream;

/// A connected, non-blocking TCP socket of an application.
#[derive(Debug)]
pub(crate) struct TcpSocket {
    stream: TcpStream,
    /// The last read left neither bytes nor a FIN.
    drained: bool,
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
        }
    }

    pub(crate) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    pub(crate) fn read(&mut self, into: &mut Vec<u8>) -> io::Result<usize> {
        loop {
            match quictun_sys::tcp_read(&self.stream, into) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
                Ok(read) => {
                    self.drained = read.empty;
                    return Ok(read.length);
                }
            }
        }
    }

    pub(crate) fn is_drained(&self) -> bool {
        self.drained
    }
}
