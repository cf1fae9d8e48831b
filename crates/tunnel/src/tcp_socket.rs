//! An application's TCP connection that knows when a read has taken everything.

use std::io::{self, IoSlice, Write as _};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use quictun_trust::shares::SharePlace;
use quictun_wire::handover::HandedSocket;
use rustix::net::sockopt;

use crate::marked_sockets::MarkedSocket;

/// Silence after which a half-closed connection is probed, and the interval and number of probes. An application that has
/// closed its connection answers with a reset, and a host that is gone does not answer for five minutes.
const PROBE_AFTER: Duration = Duration::from_mins(2);
const PROBE_EVERY: Duration = Duration::from_secs(30);
const PROBES: u32 = 6;

/// A connected, non-blocking TCP socket of an application.
#[derive(Debug)]
pub(crate) struct TcpSocket {
    stream: Stream,
    /// The last read left neither bytes nor a FIN.
    drained: bool,
    /// A call has reported that the connection was reset. The kernel reports this once: later reads give the bytes from
    /// before the reset, and then what looks like a FIN.
    reset: bool,
    /// One direction has ended, and the system probes the other end.
    half_closed: bool,
    /// A connection that carries flows: its place among the descriptors of the process.
    place: Option<SharePlace>,
}

#[derive(Debug)]
enum Stream {
    Plain(TcpStream),
    Marked(MarkedSocket),
}

impl TcpSocket {
    pub(crate) fn new(stream: TcpStream) -> Self {
        Self::of(Stream::Plain(stream))
    }

    /// Takes a socket that bypasses the client's own device.
    pub(crate) fn marked(socket: MarkedSocket) -> Self {
        Self::of(Stream::Marked(socket))
    }

    fn of(stream: Stream) -> Self {
        // Without the report, each read is followed by one that would block.
        if let Err(error) = quictun_sys::report_unread(stream.get()) {
            tracing::debug!(%error, "the kernel does not report unread bytes");
        }
        Self {
            stream,
            drained: false,
            reset: false,
            half_closed: false,
            place: None,
        }
    }

    /// Returns what the system no longer tells about the connection.
    pub(crate) fn hand_over(&self) -> HandedSocket {
        HandedSocket::Tcp {
            reset: self.reset,
            half_closed: self.half_closed,
        }
    }

    /// Takes the connection of another process, with what the system has told that process.
    pub(crate) fn take_over(stream: TcpStream, reset: bool, half_closed: bool) -> Self {
        Self {
            reset,
            half_closed,
            ..Self::new(stream)
        }
    }

    /// Keeps a place among the descriptors of the process until the socket is closed, instead of the present one.
    pub(crate) fn keep(&mut self, place: SharePlace) {
        self.place = Some(place);
    }

    pub(crate) fn stream(&self) -> &TcpStream {
        self.stream.get()
    }

    pub(crate) fn read(&mut self, into: &mut Vec<u8>) -> io::Result<usize> {
        loop {
            match quictun_sys::tcp_read(self.stream.get(), into) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.reset |= error.kind() != io::ErrorKind::WouldBlock;
                    return Err(error);
                }
                Ok(read) if read.length == 0 && self.reset => {
                    return Err(io::ErrorKind::ConnectionReset.into());
                }
                Ok(read) => {
                    if read.length == 0 {
                        self.probe_half_closed();
                    }
                    self.drained = read.empty;
                    return Ok(read.length);
                }
            }
        }
    }

    pub(crate) fn write(&mut self, chunks: &[IoSlice<'_>]) -> io::Result<usize> {
        let written = self.stream.get().write_vectored(chunks);
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

    pub(crate) fn finish(&mut self) -> io::Result<()> {
        self.probe_half_closed();
        self.stream.get().shutdown(Shutdown::Write)
    }

    /// Makes the system probe a half-closed connection after minutes instead of hours (PROTOCOL CLOSE-14).
    fn probe_half_closed(&mut self) {
        if std::mem::replace(&mut self.half_closed, true) {
            return;
        }
        let stream = self.stream.get();
        let set = || {
            sockopt::set_tcp_keepidle(stream, PROBE_AFTER)?;
            sockopt::set_tcp_keepintvl(stream, PROBE_EVERY)?;
            sockopt::set_tcp_keepcnt(stream, PROBES)
        };
        // An error means that the connection has failed, which the next read reports.
        if set().is_err() {}
    }

    pub(crate) fn is_drained(&self) -> bool {
        self.drained
    }
}

impl Stream {
    fn get(&self) -> &TcpStream {
        match self {
            Self::Plain(stream) => stream,
            Self::Marked(socket) => socket,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::net::TcpListener;

    use socket2::SockRef;

    use super::*;
    use crate::app_socket::prepare;

    fn ends() -> (TcpSocket, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
        let near = TcpStream::connect(listener.local_addr().expect("bound")).expect("a connection");
        let (far, _) = listener.accept().expect("the other end");
        prepare(&near).expect("options");
        (TcpSocket::new(near), far)
    }

    fn times(socket: &TcpSocket) -> Option<(Duration, Duration, u32)> {
        let socket = SockRef::from(socket.stream());
        socket.keepalive().expect("an option").then(|| {
            let time = socket.tcp_keepalive_time().expect("an option");
            let interval = socket.tcp_keepalive_interval().expect("an option");
            (
                time,
                interval,
                socket.tcp_keepalive_retries().expect("an option"),
            )
        })
    }

    // PROTOCOL CLOSE-14.
    #[test]
    fn a_connection_is_probed_after_minutes_once_one_of_its_directions_has_ended() {
        let probed = Some((PROBE_AFTER, PROBE_EVERY, PROBES));
        let (mut socket, far) = ends();
        assert_ne!(times(&socket), probed, "both directions are open");
        far.shutdown(Shutdown::Write).expect("connected");
        let read = socket.read(&mut Vec::with_capacity(1));
        assert_eq!((read.expect("the end"), times(&socket)), (0, probed));
        let (mut socket, _far) = ends();
        socket.finish().expect("connected");
        assert_eq!(times(&socket), probed);
    }

    // PROTOCOL CLOSE-3.
    #[test]
    fn bytes_from_before_a_reset_are_read_and_then_an_error_whatever_reported_the_reset() {
        for writes in [0, 1, 2] {
            let (mut socket, mut far) = ends();
            socket.stream().write_all(b"ab").expect("room");
            far.read_exact(&mut [0]).expect("a byte");
            far.write_all(b"answer").expect("room");
            // One byte is unread, so this is a reset.
            drop(far);
            while socket.stream().peek(&mut [0; 16]).expect("bytes") < 6 {}
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
