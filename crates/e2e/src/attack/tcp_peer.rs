//! One hostile connection over TCP: bytes in any pace, with or without TLS.

use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::https_session::HttpsSession;
use super::peer::PeerState;
use super::tls_session::TlsSession;

/// The number of bytes that wait for the socket from which on a peer adds none.
const FULL: usize = 64 * 1024;

/// The number of reads from one socket before others have their turn.
const READS: usize = 16;

/// The bytes of one hostile connection.
#[derive(Debug)]
pub enum TcpWork {
    /// Sends these bytes. With a pause, one byte after each pause.
    Raw(Vec<u8>, Option<Duration>),
    /// Completes the handshakes, and reads if `reads` is set.
    Tls {
        /// Both layers of the connection, and what they send.
        session: Box<TlsSession>,
        /// True if the socket is read after the handshakes.
        reads: bool,
    },
    /// Completes the handshake of TLS, and attacks the HTTPS proxy.
    Https(Box<HttpsSession>),
}

/// One hostile connection, with its socket until it is lost.
#[derive(Debug)]
pub struct TcpPeer {
    /// `None` once the connection is lost.
    pub(super) stream: Option<TcpStream>,
    pub(super) next_byte: Option<Instant>,
    work: TcpWork,
    out: Vec<u8>,
    state: PeerState,
    sent: u64,
}

impl TcpPeer {
    pub(super) fn new(stream: TcpStream, work: TcpWork) -> Self {
        Self {
            stream: Some(stream),
            next_byte: None,
            work,
            out: Vec::new(),
            state: PeerState::Connecting,
            sent: 0,
        }
    }

    /// Returns the state of the connection: with TLS, that of its handshakes.
    pub fn state(&self) -> &PeerState {
        &self.state
    }

    /// Returns the number of bytes sent, and received on streams.
    pub fn bytes(&self) -> [u64; 2] {
        let received = match &self.work {
            TcpWork::Raw(..) | TcpWork::Https(_) => 0,
            TcpWork::Tls { session, .. } => session.received(),
        };
        [self.sent, received]
    }

    /// Returns the session of a connection whose handshakes are complete.
    pub fn session(&mut self) -> Option<&mut TlsSession> {
        match &mut self.work {
            TcpWork::Tls { session, .. } if self.state == PeerState::Connected => Some(session),
            TcpWork::Tls { .. } | TcpWork::Raw(..) | TcpWork::Https(_) => None,
        }
    }

    /// Returns true if all bytes so far have left, or nearly all.
    pub fn has_room(&self) -> bool {
        self.out.len() < FULL
    }

    /// Sends bytes outside of TLS, after those that wait.
    pub fn send_raw(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    /// Handles the socket, which may be ready.
    pub(super) fn serve(&mut self, now: Instant) -> Result<()> {
        let Some(stream) = &mut self.stream else {
            return Ok(());
        };
        if let Ok(Some(error)) = stream.take_error() {
            self.lose(&error.to_string());
            return Ok(());
        }
        self.read();
        match &mut self.work {
            TcpWork::Raw(bytes, pause) => {
                if self.state == PeerState::Connecting && is_connected(self.stream.as_ref()) {
                    self.state = PeerState::Connected;
                    self.next_byte = pause.map(|pause| now + pause);
                }
                if pause.is_none() && self.state == PeerState::Connected {
                    self.out.append(bytes);
                }
            }
            TcpWork::Tls { session, .. } => {
                if session.is_connected() && self.state == PeerState::Connecting {
                    self.state = PeerState::Connected;
                }
                session.poll_transmit(&mut self.out)?;
            }
            TcpWork::Https(session) => {
                if session.is_connected() && self.state == PeerState::Connecting {
                    self.state = PeerState::Connected;
                }
                let room = FULL.saturating_sub(self.out.len());
                session.poll_transmit(room, &mut self.out)?;
            }
        }
        self.write();
        Ok(())
    }

    /// Sends the next byte of a slow peer, if it is due.
    pub(super) fn drip(&mut self, now: Instant) {
        let TcpWork::Raw(bytes, Some(pause)) = &mut self.work else {
            return;
        };
        if self.stream.is_none() {
            return;
        }
        self.next_byte = Some(now + *pause).filter(|_| bytes.len() > 1);
        if !bytes.is_empty() {
            self.out.push(bytes.remove(0));
        }
        self.write();
    }

    fn read(&mut self) {
        let mut block = [0; 16 * 1024];
        for _ in 0..READS {
            if let TcpWork::Tls { reads: false, .. } = self.work
                && self.state == PeerState::Connected
            {
                return;
            }
            let Some(stream) = &mut self.stream else {
                return;
            };
            let read = match stream.read(&mut block) {
                Ok(0) => return self.lose("the server has closed it"),
                Ok(read) => read,
                Err(error) if waits(&error) => return,
                Err(error) => return self.lose(&error.to_string()),
            };
            let ended = match &mut self.work {
                TcpWork::Raw(..) => None,
                TcpWork::Tls { session, .. } => session.handle_bytes(&block[..read]),
                TcpWork::Https(session) => session.handle_bytes(&block[..read]),
            };
            if let Some(reason) = ended {
                return self.lose(&reason);
            }
        }
    }

    fn write(&mut self) {
        let mut written = 0;
        while written < self.out.len()
            && let Some(stream) = &mut self.stream
        {
            match stream.write(&self.out[written..]) {
                Ok(bytes) => written += bytes,
                Err(error) if waits(&error) => break,
                Err(error) => self.lose(&error.to_string()),
            }
        }
        self.sent += written as u64;
        self.out.drain(..written);
    }

    fn lose(&mut self, reason: &str) {
        self.stream = None;
        self.next_byte = None;
        self.out = Vec::new();
        self.state = PeerState::Lost(reason.to_owned());
    }
}

/// Returns true if a socket is not ready, or not connected yet.
fn waits(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::NotConnected
    )
}

fn is_connected(stream: Option<&TcpStream>) -> bool {
    stream.is_some_and(|stream| stream.peer_addr().is_ok())
}
