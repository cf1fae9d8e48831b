//! TLS and QMux of one hostile connection over TCP: what the libraries send, and any bytes beside them.

use std::io::{Read as _, Write as _};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result};
use bytes::Bytes;
use quictun_flow::{Side, StreamId};
use quictun_mux::{self as mux, Mux, RECORD_MAX};
use quictun_trust::psk::Secret;
use quictun_wire::alpn;
use quictun_wire::bond::BondRequest;
use quictun_wire::control::Frame;
use quictun_wire::open::{EXPORTER_LABEL, Open};
use rustls::crypto::aws_lc_rs;
use rustls::version::TLS13;
use rustls::{ClientConfig, ClientConnection};

use super::session::AnyServer;

/// Practically unlimited credit, in bytes: the server sends whatever it has.
const ENDLESS: u64 = 1 << 40;

/// Bytes that wait for credit, beyond which no more are written.
const QUEUED: u64 = 4096;

/// Both layers of a connection, without its socket.
#[derive(Debug)]
pub struct TlsSession {
    tls: ClientConnection,
    mux: Mux,
    /// True once the server's parameters have arrived.
    connected: bool,
    /// The bytes that streams have received.
    received: u64,
}

/// Returns the TLS configuration of hostile clients, which trust any server.
///
/// # Errors
///
/// Fails if the TLS library lacks a feature.
pub fn client_config() -> Result<Arc<ClientConfig>> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyServer))
        .with_no_client_auth();
    config.alpn_protocols = vec![alpn::MUX.to_vec()];
    config.resumption = rustls::client::Resumption::disabled();
    Ok(Arc::new(config))
}

impl TlsSession {
    /// Begins a handshake.
    ///
    /// # Errors
    ///
    /// Fails if the TLS library refuses the configuration.
    pub fn new(config: &Arc<ClientConfig>) -> Result<Self> {
        let mut tls = ClientConnection::new(config.clone(), "attacked.test".try_into()?)?;
        tls.set_buffer_limit(None);
        let config = mux::Config {
            window: ENDLESS,
            stream_window: ENDLESS,
            streams: 0,
            kept: ENDLESS,
            datagram_frame_max: 0,
        };
        Ok(Self {
            tls,
            mux: Mux::new(Side::Client, config),
            connected: false,
            received: 0,
        })
    }

    /// Returns true once both handshakes are complete: that of TLS, and the exchange of parameters.
    pub fn is_connected(&self) -> bool {
        self.connected
    }

    /// Returns the number of bytes that streams have received.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Handles bytes from the socket. Returns the reason if the server has ended the connection.
    pub fn handle_bytes(&mut self, mut bytes: &[u8]) -> Option<String> {
        while !bytes.is_empty() {
            if let Err(error) = self.tls.read_tls(&mut bytes) {
                return Some(error.to_string());
            }
            let mut plaintext = Vec::new();
            let state = match self.tls.process_new_packets() {
                Ok(state) => state,
                Err(error) => return Some(error.to_string()),
            };
            plaintext.resize(state.plaintext_bytes_to_read(), 0);
            if let Err(error) = self.tls.reader().read_exact(&mut plaintext) {
                return Some(error.to_string());
            }
            self.mux.handle_bytes(Instant::now(), plaintext.into());
            if let Some(reason) = self.handle_events() {
                return Some(reason);
            }
        }
        None
    }

    fn handle_events(&mut self) -> Option<String> {
        while let Some(event) = self.mux.poll_event() {
            match event {
                mux::Event::Connected => self.connected = true,
                mux::Event::Readable(stream) => {
                    let received = &mut self.received;
                    self.mux.read(stream, usize::MAX, &mut |_, bytes| {
                        *received += bytes.len() as u64;
                    });
                }
                mux::Event::Lost(error) => return Some(error.to_string()),
                _ => {}
            }
        }
        None
    }

    /// Appends what both layers have to send.
    ///
    /// # Errors
    ///
    /// Fails if the TLS library refuses a record.
    pub fn poll_transmit(&mut self, out: &mut Vec<u8>) -> Result<()> {
        self.seal_records()?;
        while self.tls.wants_write() {
            self.tls.write_tls(out)?;
        }
        Ok(())
    }

    fn seal_records(&mut self) -> Result<()> {
        if self.tls.is_handshaking() {
            return Ok(());
        }
        let mut slot = [0; RECORD_MAX];
        loop {
            let length = self.mux.poll_transmit(Instant::now(), &mut slot);
            if length == 0 {
                return Ok(());
            }
            self.tls.writer().write_all(&slot[..length])?;
        }
    }

    /// Sends bytes in place of records of QMux, in TLS records of `piece` bytes.
    ///
    /// # Errors
    ///
    /// Fails if the TLS library refuses a record.
    pub fn send(&mut self, bytes: &[u8], piece: usize) -> Result<()> {
        for piece in bytes.chunks(piece) {
            self.tls.writer().write_all(piece)?;
        }
        Ok(())
    }

    /// Changes the keys of this side, of which the server has to learn.
    ///
    /// # Errors
    ///
    /// Fails before the handshake is complete.
    pub fn update_keys(&mut self) -> Result<()> {
        Ok(self.tls.refresh_traffic_keys()?)
    }

    /// Opens the control stream, proves the client's identity, and asks for a bond.
    ///
    /// # Errors
    ///
    /// Fails if the handshake is not complete, or if the server permits no stream.
    pub fn hello(&mut self, secret: &Secret) -> Result<()> {
        let exporter = self
            .tls
            .export_keying_material([0; 32], EXPORTER_LABEL, None)?;
        let mut frame = Vec::new();
        Frame::Hello {
            proof: Some(secret.prove(&exporter)),
            join: None,
            bond: Some(BondRequest::New),
            reverse: false,
        }
        .encode(&mut frame);
        self.open_stream(frame).context("no stream for HELLO")?;
        Ok(())
    }

    /// Opens a flow of the bond. Returns its stream, or `None` if the server permits no stream.
    ///
    /// # Errors
    ///
    /// Fails if the target is too long.
    pub fn open(&mut self, target: &str, number: u64) -> Result<Option<StreamId>> {
        let open = Open {
            target: target.to_owned(),
            number: Some(number),
            ..Open::default()
        };
        let mut frame = Vec::new();
        open.encode(&mut frame)
            .map_err(|error| anyhow::anyhow!("{target}: {error}"))?;
        Ok(self.open_stream(frame))
    }

    /// Writes to a stream of [`TlsSession::open`], in a record of its own. The data waits if the server permits no
    /// more.
    ///
    /// # Errors
    ///
    /// Fails if the TLS library refuses a record.
    pub fn write(&mut self, stream: StreamId, data: &[u8]) -> Result<()> {
        if self.mux.queued() < QUEUED {
            self.mux.write(stream, &mut Bytes::copy_from_slice(data));
        }
        self.seal_records()
    }

    fn open_stream(&mut self, frame: Vec<u8>) -> Option<StreamId> {
        let stream = self.mux.open()?;
        self.mux.write(stream, &mut Bytes::from(frame));
        Some(stream)
    }
}
