//! The applications of the demonstration: echo, sink, source and meter, each on a port of its own.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use quictun_lab_run::tunnel::START_TIMEOUT;
use quictun_sys::uninterrupted;
use rustix::net::sockopt::set_tcp_congestion;
use rustix::net::{AddressFamily, SocketType, bind, getsockname, socket};

use super::network::DemoNetwork;

/// Period of the pattern, in bytes. It is a prime number, so that a lost or doubled block cannot hide.
const PERIOD: usize = 65_521;

const CHUNK: usize = 256 * 1024;

/// Addresses of the applications at the far side, as programs beside them see them.
pub(super) struct DemoApps {
    /// Sends back all it receives, and its FIN after the peer's FIN.
    pub(super) echo: SocketAddr,
    /// Checks the pattern and answers with its verdict.
    pub(super) sink: SocketAddr,
    /// Sends as many bytes of the pattern as it is asked for.
    pub(super) source: SocketAddr,
    /// Counts the bytes of the pattern for [`SPAN`], and answers with their number.
    pub(super) meter: SocketAddr,
    /// An address on which nothing listens.
    pub(super) nobody: SocketAddr,
    /// The socket that holds the port of `nobody`. It does not listen, and while it is open no other process can.
    _reserved: OwnedFd,
}

/// Time for which the meter counts, and for which a receiver reads from the source to measure a rate.
pub(super) const SPAN: Duration = Duration::from_millis(1500);

/// Rate of the transfer that runs until it is stopped, about 6 MB/s: enough to see which way it takes, and little work
/// for the processor.
const TICK: Duration = Duration::from_millis(5);
const PER_TICK: usize = 32 * 1024;

/// Congestion control of direct connections: the default of nearly all systems.
pub(super) const CONGESTION: &str = "cubic";

impl DemoApps {
    pub(super) fn start(network: &DemoNetwork) -> io::Result<Self> {
        network.far(|| {
            let at = network.far_listener();
            let (reserved, nobody) = reserve(at)?;
            Ok(Self {
                echo: serve(at, echo)?,
                sink: serve(at, sink)?,
                source: serve(at, source)?,
                meter: serve(at, meter)?,
                nobody,
                _reserved: reserved,
            })
        })
    }
}

fn serve(at: SocketAddr, app: fn(TcpStream) -> io::Result<()>) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind(at)?;
    // Accepted connections inherit the congestion control.
    if set_tcp_congestion(&listener, CONGESTION).is_err() {
        // A kernel without it uses its default, which will do.
    }
    let address = neighbour(&listener)?;
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // An error here shows at the other end, where it is checked.
            std::thread::spawn(move || app(stream));
        }
    });
    Ok(address)
}

/// Takes a port without listening on it.
fn reserve(at: SocketAddr) -> io::Result<(OwnedFd, SocketAddr)> {
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None)?;
    bind(&socket, &at)?;
    let bound = SocketAddr::try_from(getsockname(&socket)?)?;
    Ok((socket, (Ipv4Addr::LOCALHOST, bound.port()).into()))
}

fn neighbour(listener: &TcpListener) -> io::Result<SocketAddr> {
    Ok((Ipv4Addr::LOCALHOST, listener.local_addr()?.port()).into())
}

fn echo(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut writer = stream.try_clone()?;
    io::copy(&mut stream, &mut writer)?;
    stream.shutdown(Shutdown::Write)
}

fn sink(mut stream: TcpStream) -> io::Result<()> {
    let verdict = match receive(&mut stream, None) {
        Ok(bytes) => verdict(bytes),
        Err(error) => error.to_string(),
    };
    stream.write_all(verdict.as_bytes())?;
    stream.shutdown(Shutdown::Write)
}

fn source(mut stream: TcpStream) -> io::Result<()> {
    let mut length = [0; 8];
    stream.read_exact(&mut length)?;
    send_pattern(&mut stream, u64::from_be_bytes(length))?;
    stream.shutdown(Shutdown::Write)
}

fn meter(mut stream: TcpStream) -> io::Result<()> {
    let bytes = receive(&mut stream, Some(SPAN))?;
    stream.write_all(&bytes.to_be_bytes())?;
    // The connection stays open until the peer has the answer and closes: a close with unread bytes resets it and
    // discards the answer.
    io::copy(&mut stream, &mut io::sink()).map(|_| ())
}

/// Reads the pattern to its end, or for `span` from its first byte on. Returns the number of bytes received. Fails if a
/// byte is wrong.
pub(super) fn receive(stream: &mut TcpStream, span: Option<Duration>) -> io::Result<u64> {
    receive_told(stream, span, |_| ())
}

/// Like [`receive`], and calls `tell` with the number of bytes received so far after each read.
pub(super) fn receive_told(
    stream: &mut TcpStream,
    span: Option<Duration>,
    mut tell: impl FnMut(u64),
) -> io::Result<u64> {
    let pattern = pattern();
    let mut buffer = vec![0; CHUNK];
    let mut received = 0;
    let mut until = None;
    while until.is_none_or(|until| Instant::now() < until) {
        // A program that was suspended and continues is interrupted.
        let deadline = Instant::now() + START_TIMEOUT;
        let length = uninterrupted(deadline, |_| stream.read(&mut buffer))?;
        match (length, span) {
            (0, None) => break,
            (0, Some(_)) => return Err(io::ErrorKind::UnexpectedEof.into()),
            (_, span) => until = until.or(span.map(|span| Instant::now() + span)),
        }
        check(&pattern, received, &buffer[..length])?;
        received += length as u64;
        tell(received);
    }
    Ok(received)
}

/// Returns the sink's answer if all bytes were right.
pub(super) fn verdict(bytes: u64) -> String {
    format!("{bytes} bytes, all right")
}

pub(super) fn send_pattern(stream: &mut TcpStream, length: u64) -> io::Result<()> {
    let pattern = pattern();
    let mut sent = 0;
    while sent < length {
        let start = position(sent);
        let room = usize::try_from(length - sent).unwrap_or(CHUNK).min(CHUNK);
        stream.write_all(&pattern[start..start + room])?;
        sent += room as u64;
    }
    Ok(())
}

/// Sends the pattern at a low rate until the other end of `stop` is gone. Returns the number of bytes sent.
pub(super) fn send_until(stream: &mut TcpStream, stop: &Receiver<()>) -> io::Result<u64> {
    let pattern = pattern();
    let mut sent = 0;
    while stop.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
        let start = position(sent);
        stream.write_all(&pattern[start..start + PER_TICK])?;
        sent += PER_TICK as u64;
    }
    Ok(sent)
}

fn check(pattern: &[u8], received: u64, bytes: &[u8]) -> io::Result<()> {
    let start = position(received);
    if *bytes == pattern[start..start + bytes.len()] {
        return Ok(());
    }
    let what = format!("wrong bytes after {received} right ones");
    Err(io::Error::new(io::ErrorKind::InvalidData, what))
}

/// Returns one period and a chunk of the pattern, so that a chunk may start anywhere in the first period.
fn pattern() -> Vec<u8> {
    (0..PERIOD + CHUNK)
        .map(|at| u8::try_from(at % PERIOD % 251).unwrap_or(0))
        .collect()
}

fn position(offset: u64) -> usize {
    usize::try_from(offset % PERIOD as u64).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_can_listen_on_the_port_of_nobody() {
        let apps = DemoApps::start(&DemoNetwork::loopback()).expect("free ports");
        let refused = TcpStream::connect(apps.nobody).expect_err("nothing listens");
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        let taken = TcpListener::bind(apps.nobody).expect_err("it is reserved");
        assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
    }
}
