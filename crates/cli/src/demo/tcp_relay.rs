//! The way for TCP beside a middlebox: it passes the bytes of connections to the server and back.

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes that one call moves.
const CHUNK: usize = 64 << 10;

pub(super) struct TcpRelay {
    port: u16,
    carried: Arc<AtomicU64>,
}

impl TcpRelay {
    /// Starts to pass the connections of clients to `server`, until the process ends.
    pub(super) fn start(server: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let port = listener.local_addr()?.port();
        let carried = Arc::<AtomicU64>::default();
        let counted = carried.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                // If the server refuses, the client's connection ends, and the client tries again.
                if pass_both(client, server, &counted).is_err() {}
            }
        });
        Ok(Self { port, carried })
    }

    /// Returns the port at 127.0.0.1 to which the client connects.
    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// Returns the number of bytes that have passed in both directions.
    pub(super) fn carried(&self) -> u64 {
        self.carried.load(Ordering::Relaxed)
    }
}

fn pass_both(client: TcpStream, server: SocketAddr, carried: &Arc<AtomicU64>) -> io::Result<()> {
    let server = TcpStream::connect(server)?;
    for stream in [&client, &server] {
        stream.set_nodelay(true)?;
    }
    let ends = [(client.try_clone()?, server.try_clone()?), (server, client)];
    for (from, to) in ends {
        let carried = carried.clone();
        std::thread::spawn(move || pass(from, to, &carried));
    }
    Ok(())
}

/// Passes the bytes of one direction, and its end.
fn pass(mut from: TcpStream, mut to: TcpStream, carried: &AtomicU64) {
    let mut buffer = vec![0; CHUNK];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        if to.write_all(&buffer[..length]).is_err() {
            break;
        }
        let bytes = u64::try_from(length).unwrap_or(u64::MAX);
        carried.fetch_add(bytes, Ordering::Relaxed);
    }
    // An error means that the other direction has ended the connection already.
    if to.shutdown(Shutdown::Write).is_err() {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_and_ends_pass_in_both_directions() {
        let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let relay = TcpRelay::start(server.local_addr().expect("bound")).expect("a relay");
        let mut near = TcpStream::connect((Ipv4Addr::LOCALHOST, relay.port())).expect("a relay");
        let (mut far, _) = server.accept().expect("a connection");
        near.write_all(b"request").expect("sent");
        near.shutdown(Shutdown::Write).expect("open");
        let mut text = String::new();
        far.read_to_string(&mut text).expect("a request");
        assert_eq!(text, "request");
        far.write_all(b"answer").expect("sent");
        drop(far);
        text.clear();
        near.read_to_string(&mut text).expect("an answer");
        assert_eq!(text, "answer");
        assert_eq!(relay.carried(), 13);
    }
}
