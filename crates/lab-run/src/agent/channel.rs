//! The connection to an agent: JSON over TLS 1.3, between two peers that know the same token.
//!
//! Each end uses a temporary certificate, which proves nothing. Instead, each end proves that it knows the token. The
//! proof covers bytes that the TLS connection exports (RFC 8446, section 7.5), so it is worthless on another
//! connection. A man in the middle has two connections, which export different bytes. The token itself is never sent.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use quictun_trust::identity::Identity;
use quictun_trust::psk::{self, Secret};
use quictun_trust::settings::{ClientIdentity, Offer, ServerTrust};
use quictun_trust::tls;
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, Connection, ServerConnection, StreamOwned};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Time limit for the connection, its handshake and both proofs.
const OPENING: Duration = Duration::from_secs(10);

/// Time limit for the other end to accept a message.
const SENDING: Duration = Duration::from_secs(10);

/// Maximum length of a message, in bytes. It suffices for the facts and processor times of a machine with many threads.
const MESSAGE_MAX: usize = 1 << 20;

/// Labels of the exported bytes. They differ, so that neither end can replay the other's proof.
const LABELS: [&[u8]; 2] = [
    b"EXPORTER-quictun-lab-client",
    b"EXPORTER-quictun-lab-agent",
];

pub(crate) struct Channel {
    stream: Box<dyn Stream>,
    socket: TcpStream,
    /// Bytes that were received after the last complete message.
    rest: Vec<u8>,
}

trait Stream: Read + Write + Send {}

impl<T: Read + Write + Send> Stream for T {}

impl Channel {
    pub(crate) fn connect(address: SocketAddr, token: &Secret) -> Result<Self> {
        let socket = TcpStream::connect_timeout(&address, OPENING)
            .with_context(|| format!("cannot connect to the agent at {address}"))?;
        let identity = ClientIdentity::default();
        let config = tls::client_config(
            &ServerTrust::Insecure,
            &identity,
            Offer::Native,
            &tls::SharedConfig::default(),
        )?;
        let name = ServerName::IpAddress(address.ip().into());
        let connection = ClientConnection::new(config, name)?;
        let (mut channel, [ours, theirs]) = Self::open(socket, connection.into())
            .with_context(|| format!("the peer at {address} is not a quictun lab agent"))?;
        channel.stream.write_all(&token.prove(&ours))?;
        channel.stream.flush()?;
        let proof = channel.read_proof().context(
            "the agent closed the connection: its token is another one, or its version differs",
        )?;
        ensure!(
            psk::verify(token.as_bytes(), &theirs, &proof),
            "the peer at {address} does not know the token"
        );
        Ok(channel)
    }

    pub(crate) fn accept(socket: TcpStream, identity: &Identity, token: &Secret) -> Result<Self> {
        let config = tls::server_config(identity, &tls::SharedConfig::default())?;
        let connection = ServerConnection::new(config)?;
        let (mut channel, [theirs, ours]) = Self::open(socket, connection.into())?;
        // The client proves first, so a client without the token learns nothing.
        let proof = channel.read_proof()?;
        ensure!(
            psk::verify(token.as_bytes(), &theirs, &proof),
            "wrong token"
        );
        channel.stream.write_all(&token.prove(&ours))?;
        channel.stream.flush()?;
        Ok(channel)
    }

    /// Completes the handshake. Returns the bytes for the client's and for the agent's proof.
    fn open(socket: TcpStream, mut connection: Connection) -> Result<(Self, [[u8; 32]; 2])> {
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(OPENING))?;
        socket.set_write_timeout(Some(SENDING))?;
        let until = Instant::now() + OPENING;
        while connection.is_handshaking() {
            ensure!(Instant::now() < until, "handshake timed out");
            connection
                .complete_io(&mut &socket)
                .context("TLS handshake failed")?;
        }
        let export = |label: &[u8]| match &connection {
            Connection::Client(client) => client.export_keying_material([0; 32], label, None),
            Connection::Server(server) => server.export_keying_material([0; 32], label, None),
        };
        let exported = [export(LABELS[0])?, export(LABELS[1])?];
        let own = socket.try_clone()?;
        let stream: Box<dyn Stream> = match connection {
            Connection::Client(client) => Box::new(StreamOwned::new(client, own)),
            Connection::Server(server) => Box::new(StreamOwned::new(server, own)),
        };
        let rest = Vec::new();
        let channel = Self {
            stream,
            socket,
            rest,
        };
        Ok((channel, exported))
    }

    fn read_proof(&mut self) -> std::io::Result<[u8; 32]> {
        let mut proof = [0; 32];
        self.stream.read_exact(&mut proof)?;
        Ok(proof)
    }

    pub(crate) fn send(&mut self, message: &impl Serialize) -> Result<()> {
        let mut text = serde_json::to_vec(message)?;
        text.push(b'\n');
        self.stream.write_all(&text)?;
        self.stream.flush().context("cannot send to the peer")
    }

    pub(crate) fn receive<T: DeserializeOwned>(&mut self, within: Duration) -> Result<Option<T>> {
        let until = Instant::now() + within;
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                return serde_json::from_slice(&line)
                    .context("the message is not valid JSON")
                    .map(Some);
            }
            ensure!(self.rest.len() <= MESSAGE_MAX, "the message is too long");
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            self.socket.set_read_timeout(Some(left))?;
            let mut chunk = [0; 4096];
            match self.stream.read(&mut chunk) {
                Ok(0) => bail!("the peer closed the connection"),
                // The peer closed the TCP connection without close_notify. Messages mark their own end, so nothing
                // depends on it.
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                    bail!("the peer closed the connection")
                }
                Ok(read) => self.rest.extend_from_slice(&chunk[..read]),
                Err(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
                    ) => {}
                Err(error) => return Err(error).context("cannot receive from the peer"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    const SOON: Duration = Duration::from_secs(20);

    fn secret(text: &str) -> Secret {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("token");
        std::fs::write(&file, text).expect("a file");
        psk::load_secret(&file).expect("a secret")
    }

    fn meet(client: &str, agent: &str) -> (Result<Channel>, Result<Channel>) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let (client, agent) = (secret(client), secret(agent));
        std::thread::scope(|scope| {
            let there = scope.spawn(move || {
                let (socket, _) = listener.accept().expect("a client");
                Channel::accept(
                    socket,
                    &quictun_trust::identity::ephemeral().expect("a key"),
                    &agent,
                )
            });
            let here = Channel::connect(address, &client);
            (here, there.join().expect("no panic"))
        })
    }

    #[test]
    fn a_peer_with_the_token_is_accepted_and_messages_arrive_whole() {
        let (here, there) = meet("0123456789abcdef", "0123456789abcdef\n");
        let (mut here, mut there) = (here.expect("a client"), there.expect("an agent"));
        let nothing: Option<String> = there.receive(Duration::from_millis(1)).expect("a line");
        assert_eq!(nothing, None);
        for message in ["short".to_owned(), "long ".repeat(100_000)] {
            std::thread::scope(|scope| {
                scope.spawn(|| here.send(&message).expect("sent"));
                assert_eq!(there.receive(SOON).expect("a line"), Some(message.clone()));
            });
        }
        drop(here);
        let closed = there.receive::<String>(SOON).expect_err("closed");
        assert!(closed.to_string().contains("closed"), "{closed:#}");
    }

    #[test]
    fn a_peer_without_the_token_learns_only_that() {
        let (here, there) = meet("0123456789abcdef", "0123456789abcdeX");
        let (here, there) = (here.err().expect("refused"), there.err().expect("refused"));
        assert!(
            here.to_string().contains("its token is another one"),
            "{here:#}"
        );
        assert_eq!(there.to_string(), "wrong token");
    }
}
