//! The handshake: passes the peer's records to rustls one by one, and takes the keys when it is complete.
//!
//! rustls sees no record before it has dealt with the one before. So the first record with application data is still in
//! the caller's buffer when this crate's record layer takes over.

use std::fmt;
use std::sync::Arc;

use bytes::BytesMut;
use rustls::client::UnbufferedClientConnection;
use rustls::pki_types::ServerName;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, EncodeError, EncodeTlsData, UnbufferedStatus};
use rustls::{ClientConfig, CommonState, Error, ProtocolVersion, ServerConfig};

use crate::error::{TlsError, Violation};
use crate::established::{Established, Facts};
use crate::exporter::ExporterSecret;
use crate::limits::TlsLimits;
use crate::post_handshake::Kernel;
use crate::record::{HEADER, HandshakeRecord, handshake_len};
use crate::send_buffer::SendBuffer;

/// A handshake that is not complete.
#[derive(Debug)]
pub(crate) struct Handshake {
    library: Library,
    exporter: Arc<ExporterSecret>,
    /// Records that the TLS library still needs: those with the beginning of a message.
    records: Vec<u8>,
    limits: TlsLimits,
    bytes: usize,
}

enum Library {
    Client(UnbufferedClientConnection),
    Server(UnbufferedServerConnection),
}

/// The state after one step of the TLS library.
enum LibraryStep {
    /// The library has more to do.
    Again,
    /// The library needs another record, or the handshake is complete.
    Waits,
    Failed(TlsError),
}

impl Handshake {
    /// Begins a client's handshake, whose first message it appends to `out`.
    pub(crate) fn client(
        config: &ClientConfig,
        name: ServerName<'static>,
        limits: TlsLimits,
        out: &mut SendBuffer,
    ) -> Result<Self, TlsError> {
        let exporter = ExporterSecret::new(config.key_log.clone());
        let mut config = config.clone();
        config.key_log = exporter.clone();
        config.enable_secret_extraction = true;
        config.enable_early_data = false;
        let library = UnbufferedClientConnection::new(Arc::new(config), name);
        let library = Library::Client(library.map_err(TlsError::Local)?);
        let mut handshake = Self::new(library, exporter, limits);
        handshake.drive(out)?;
        Ok(handshake)
    }

    pub(crate) fn server(config: &ServerConfig, limits: TlsLimits) -> Result<Self, TlsError> {
        let exporter = ExporterSecret::new(config.key_log.clone());
        let mut config = config.clone();
        config.key_log = exporter.clone();
        config.enable_secret_extraction = true;
        config.max_early_data_size = 0;
        let library = UnbufferedServerConnection::new(Arc::new(config));
        let library = Library::Server(library.map_err(TlsError::Local)?);
        Ok(Self::new(library, exporter, limits))
    }

    fn new(library: Library, exporter: Arc<ExporterSecret>, limits: TlsLimits) -> Self {
        Self {
            library,
            exporter,
            records: Vec::new(),
            limits,
            bytes: 0,
        }
    }

    /// Takes one record off the front of `received`, and appends the answer to `out`. Returns false if the record is
    /// incomplete.
    pub(crate) fn handle_record(
        &mut self,
        received: &mut BytesMut,
        out: &mut SendBuffer,
    ) -> Result<bool, TlsError> {
        let len = match handshake_len(received) {
            HandshakeRecord::Partial => return Ok(false),
            HandshakeRecord::Length(len) => len,
            HandshakeRecord::Malformed if self.bytes == 0 => return Err(TlsError::NotTls),
            HandshakeRecord::Malformed => {
                let kind = received.first().copied().unwrap_or_default();
                return Err(self.refuse(Violation::RecordType(kind), out));
            }
        };
        // The limit acts on the announced length, before the bytes arrive.
        if self.bytes + len > self.limits.handshake_bytes {
            return Err(self.refuse(Violation::HandshakeTooLong, out));
        }
        if received.len() < len {
            return Ok(false);
        }
        self.bytes += len;
        self.records.extend_from_slice(&received.split_to(len));
        self.drive(out)?;
        Ok(true)
    }

    pub(crate) fn is_complete(&self) -> bool {
        !self.library.state().is_handshaking()
    }

    /// Ends a complete handshake.
    pub(crate) fn finish(self) -> Result<Established, TlsError> {
        // The peer's last message ends its record, since its key changes there. rustls has checked that.
        if !self.records.is_empty() {
            return Err(Violation::NotAligned.into());
        }
        let state = self.library.state();
        let certificates = state.peer_certificates();
        let certificates = certificates.map(<[_]>::to_vec);
        let alpn = state.alpn_protocol().map(<[u8]>::to_vec);
        let (secrets, kernel) = self.library.into_kernel().map_err(TlsError::Local)?;
        if kernel.version() != ProtocolVersion::TLSv1_3 {
            return Err(TlsError::Local(Error::General(
                "the configuration permits TLS 1.2, and only TLS 1.3 is supported".to_owned(),
            )));
        }
        let facts = Facts {
            suite: kernel.suite(),
            exporter: self.exporter,
            certificates,
            alpn,
        };
        Established::new(kernel, secrets, facts, self.limits.records_per_key)
    }

    /// Runs the TLS library until it needs another record.
    fn drive(&mut self, out: &mut SendBuffer) -> Result<(), TlsError> {
        loop {
            match self.step(out) {
                LibraryStep::Again => {}
                LibraryStep::Waits => return Ok(()),
                LibraryStep::Failed(error) => {
                    // The alert is still to be taken. The library must not see the bad record again.
                    while self.library.state().wants_write() {
                        self.step(out);
                    }
                    return Err(error);
                }
            }
        }
    }

    fn step(&mut self, out: &mut SendBuffer) -> LibraryStep {
        let (discard, step) = self.library.step(&mut self.records, out);
        // All other bytes must stay: the library panics if one is missing that it has not discarded.
        self.records.drain(..discard.min(self.records.len()));
        step
    }

    /// Makes the TLS library send an alert, since only it has the present keys, and returns the error.
    fn refuse(&mut self, violation: Violation, out: &mut SendBuffer) -> TlsError {
        self.records.extend_from_slice(&[u8::MAX; HEADER]);
        match self.drive(out) {
            Err(_) | Ok(()) => violation.into(),
        }
    }
}

impl Library {
    fn state(&self) -> &CommonState {
        match self {
            Self::Client(client) => client,
            Self::Server(server) => server,
        }
    }

    /// Lets the library do one thing. Returns the number of bytes of `records` that it does not need any more.
    fn step(&mut self, records: &mut [u8], out: &mut SendBuffer) -> (usize, LibraryStep) {
        match self {
            Self::Client(client) => follow(client.process_tls_records(records), out),
            Self::Server(server) => follow(server.process_tls_records(records), out),
        }
    }

    fn into_kernel(self) -> Result<(rustls::ExtractedSecrets, Kernel), Error> {
        Ok(match self {
            Self::Client(client) => {
                let (secrets, kernel) = client.dangerous_into_kernel_connection()?;
                (secrets, Kernel::Client(kernel))
            }
            Self::Server(server) => {
                let (secrets, kernel) = server.dangerous_into_kernel_connection()?;
                (secrets, Kernel::Server(kernel))
            }
        })
    }
}

impl fmt::Debug for Library {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Library").finish_non_exhaustive()
    }
}

/// Does what the TLS library asks for.
fn follow<Data>(
    status: UnbufferedStatus<'_, '_, Data>,
    out: &mut SendBuffer,
) -> (usize, LibraryStep) {
    let step = match status.state {
        Ok(ConnectionState::EncodeTlsData(mut data)) => {
            encode(&mut data, out).map_or_else(LibraryStep::Failed, |()| LibraryStep::Again)
        }
        Ok(ConnectionState::TransmitTlsData(data)) => {
            data.done();
            LibraryStep::Again
        }
        // A server may send before the client has finished; this crate waits.
        Ok(ConnectionState::BlockedHandshake | ConnectionState::WriteTraffic(_)) => {
            LibraryStep::Waits
        }
        Ok(ConnectionState::PeerClosed | ConnectionState::Closed) => {
            LibraryStep::Failed(TlsError::EndedInHandshake)
        }
        Ok(_) => LibraryStep::Failed(Violation::Interrupted.into()),
        Err(error) => LibraryStep::Failed(TlsError::of(error)),
    };
    (status.discard, step)
}

fn encode<Data>(data: &mut EncodeTlsData<'_, Data>, out: &mut SendBuffer) -> Result<(), TlsError> {
    let required = match data.encode(&mut []) {
        Err(EncodeError::InsufficientSize(size)) => size.required_size,
        Err(EncodeError::AlreadyEncoded) | Ok(_) => return Ok(()),
    };
    let Ok(written) = data.encode(out.slot(required)) else {
        return Err(TlsError::Local(Error::EncryptError));
    };
    out.commit(written);
    Ok(())
}
