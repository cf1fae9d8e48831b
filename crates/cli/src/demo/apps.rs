//! The applications of the demonstration: echo, sink and source, each on a port of its own.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};

/// The pattern repeats after a prime number of bytes, so that a lost or doubled block cannot hide.
const PERIOD: usize = 65_521;

/// Bytes in one read or write.
const CHUNK: usize = 256 * 1024;

/// Where the applications listen.
pub(super) struct Apps {
    /// Sends back what it is sent, and its FIN after the other's.
    pub(super) echo: SocketAddr,
    /// Checks the pattern and answers with its verdict.
    pub(super) sink: SocketAddr,
    /// Sends as much of the pattern as it is asked for.
    pub(super) source: SocketAddr,
    /// Nobody listens here.
    pub(super) nobody: SocketAddr,
}

impl Apps {
    /// Starts a thread for each; they end with the process.
    pub(super) fn start() -> io::Result<Self> {
        let nobody = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
        Ok(Self {
            echo: serve(echo)?,
            sink: serve(sink)?,
            source: serve(source)?,
            nobody,
        })
    }
}

fn serve(app: fn(TcpStream) -> io::Result<()>) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = listener.local_addr()?;
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // What goes wrong here shows at the other end, where it is checked.
            std::thread::spawn(move || app(stream));
        }
    });
    Ok(address)
}

fn echo(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut writer = stream.try_clone()?;
    io::copy(&mut stream, &mut writer)?;
    stream.shutdown(Shutdown::Write)
}

fn sink(mut stream: TcpStream) -> io::Result<()> {
    let verdict = match check_pattern(&mut stream) {
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

/// What the sink says of a pattern that was right.
pub(super) fn verdict(bytes: u64) -> String {
    format!("{bytes} bytes, all right")
}

/// Sends the first `length` bytes of the pattern.
pub(super) fn send_pattern(stream: &mut TcpStream, length: u64) -> io::Result<()> {
    let pattern = pattern();
    let mut sent = 0;
    while sent < length {
        let start = position(sent);
        let room = usize::try_from(length - sent).unwrap_or(CHUNK).min(CHUNK);
        let written = stream.write(&pattern[start..start + room])?;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        sent += written as u64;
    }
    Ok(())
}

/// Reads to the end and says how many bytes of the pattern came; an error where one was wrong.
pub(super) fn check_pattern(stream: &mut TcpStream) -> io::Result<u64> {
    let pattern = pattern();
    let mut buffer = vec![0; CHUNK];
    let mut received = 0;
    loop {
        let length = stream.read(&mut buffer)?;
        if length == 0 {
            return Ok(received);
        }
        let start = position(received);
        if buffer[..length] != pattern[start..start + length] {
            let what = format!("wrong bytes after the first {received}");
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        received += length as u64;
    }
}

/// Enough periods that a chunk may start anywhere in the first.
fn pattern() -> Vec<u8> {
    (0..PERIOD + CHUNK)
        .map(|at| u8::try_from(at % PERIOD % 251).unwrap_or(0))
        .collect()
}

fn position(offset: u64) -> usize {
    usize::try_from(offset % PERIOD as u64).unwrap_or(0)
}
