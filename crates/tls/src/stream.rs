//! A connection from its first byte to its last.

use bytes::{Bytes, BytesMut};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{CipherSuite, ClientConfig, ServerConfig};

use crate::error::TlsError;
use crate::established::Established;
use crate::handshake::Handshake;
use crate::limits::TlsLimits;
use crate::send_buffer::SendBuffer;

/// One end of a TLS 1.3 connection. The crate's documentation has the order of calls.
#[derive(Debug)]
pub struct TlsStream {
    state: State,
    /// Records of the handshake, or the last alert, that are to be sent before anything else.
    outgoing: SendBuffer,
}

/// ```text
/// Handshaking ──► Established ──► Failed
///      └────────────────────────────▲
/// ```
#[derive(Debug)]
enum State {
    Handshaking(Box<Handshake>),
    Established(Box<Established>),
    Failed(TlsError),
}

impl TlsStream {
    /// Begins a connection to the server `name`.
    ///
    /// The connection keeps a copy of `config` in which early data are off.
    pub fn client(
        config: &ClientConfig,
        name: ServerName<'static>,
        limits: TlsLimits,
    ) -> Result<Self, TlsError> {
        let mut outgoing = SendBuffer::new();
        let handshake = Handshake::client(config, name, limits, &mut outgoing)?;
        Ok(Self {
            state: State::Handshaking(Box::new(handshake)),
            outgoing,
        })
    }

    /// Awaits a client.
    ///
    /// The connection keeps a copy of `config` in which early data are off.
    pub fn server(config: &ServerConfig, limits: TlsLimits) -> Result<Self, TlsError> {
        Ok(Self {
            state: State::Handshaking(Box::new(Handshake::server(config, limits)?)),
            outgoing: SendBuffer::new(),
        })
    }

    /// Returns whether the handshake is complete and the connection has not failed.
    pub fn is_established(&self) -> bool {
        self.established().is_some()
    }

    /// Returns whether the peer has ended its direction with `close_notify`. No more bytes will arrive, and all have
    /// arrived.
    pub fn is_peer_closed(&self) -> bool {
        self.established().is_some_and(Established::is_peer_closed)
    }

    /// Returns the protocol that ALPN has negotiated.
    pub fn alpn(&self) -> Option<&[u8]> {
        self.established()?.facts.alpn.as_deref()
    }

    /// Returns the negotiated suite.
    pub fn suite(&self) -> Option<CipherSuite> {
        Some(self.established()?.facts.suite.suite())
    }

    /// Returns the peer's certificates, if it has sent any.
    pub fn certificates(&self) -> Option<&[CertificateDer<'static>]> {
        self.established()?.facts.certificates.as_deref()
    }

    /// Returns the value of the TLS exporter for this label and an empty context (RFC 8446 section 7.5). `None` before
    /// the handshake is complete.
    pub fn export(&self, label: &[u8]) -> Option<[u8; 32]> {
        let facts = &self.established()?.facts;
        facts.exporter.export(facts.suite, label)
    }

    /// Takes records off the front of `received`, up to and including the first one with data, which is returned.
    /// `None` means that more bytes are needed.
    ///
    /// The data are a part of `received`, without a copy, so they keep its memory.
    pub fn poll_received(&mut self, received: &mut BytesMut) -> Result<Option<Bytes>, TlsError> {
        loop {
            let handled = match &mut self.state {
                State::Handshaking(handshake) => {
                    handshake.handle_record(received, &mut self.outgoing)
                }
                State::Established(established) => {
                    let polled = established.poll_received(received);
                    return polled.map_err(|error| self.fail(error));
                }
                State::Failed(error) => Err(error.clone()),
            };
            match handled.and_then(|handled| {
                self.follow_handshake()?;
                Ok(handled)
            }) {
                Ok(true) => {}
                Ok(false) => return Ok(None),
                Err(error) => return Err(self.fail(error)),
            }
        }
    }

    /// Takes the end of the TCP connection's receiving direction into account: without `close_notify` it is an error.
    ///
    /// Call it after [`Self::poll_received`] has returned `None`.
    pub fn handle_end(&mut self) -> Result<(), TlsError> {
        match &self.state {
            State::Established(established) if established.is_peer_closed() => Ok(()),
            State::Established(_) => Err(self.fail(TlsError::Truncated)),
            State::Handshaking(_) => Err(self.fail(TlsError::EndedInHandshake)),
            State::Failed(error) => Err(error.clone()),
        }
    }

    /// Appends one record to `out`, whose plaintext `fill` writes to its slot of [`PLAINTEXT_MAX`](crate::PLAINTEXT_MAX)
    /// bytes. Returns the number of these bytes, which `fill` returns.
    ///
    /// Records that are due precede it, so `out` must go to the TCP connection before anything from later calls. Nothing
    /// is sealed if `fill` returns 0, before the handshake is complete, or after [`Self::close`].
    ///
    /// # Panics
    ///
    /// If `fill` returns more than its slot's length.
    pub fn seal(
        &mut self,
        out: &mut SendBuffer,
        fill: impl FnOnce(&mut [u8]) -> usize,
    ) -> Result<usize, TlsError> {
        match &mut self.state {
            State::Handshaking(_) => Ok(0),
            State::Established(established) => {
                out.append(&mut self.outgoing);
                let sealed = established.seal(out, fill);
                sealed.map_err(|error| self.fail(error))
            }
            State::Failed(error) => Err(error.clone()),
        }
    }

    /// Appends records that are due to `out`: those of the handshake, alerts, and answers to a `KeyUpdate`. Returns
    /// whether there were any.
    pub fn poll_transmit(&mut self, out: &mut SendBuffer) -> bool {
        let start = out.len();
        out.append(&mut self.outgoing);
        if let State::Established(established) = &mut self.state
            && let Err(error) = established.flush(out)
        {
            self.fail(error);
            out.append(&mut self.outgoing);
        }
        out.len() > start
    }

    /// Ends the sending direction: `close_notify` follows the records sealed so far. The peer may send on.
    ///
    /// Before the handshake is complete, this does nothing: the end of the TCP connection says enough.
    pub fn close(&mut self) {
        if let State::Established(established) = &mut self.state {
            established.close();
        }
    }

    fn established(&self) -> Option<&Established> {
        match &self.state {
            State::Established(established) => Some(established),
            State::Handshaking(_) | State::Failed(_) => None,
        }
    }

    /// Passes from a complete handshake to the record layer.
    fn follow_handshake(&mut self) -> Result<(), TlsError> {
        if !matches!(&self.state, State::Handshaking(handshake) if handshake.is_complete()) {
            return Ok(());
        }
        let state = std::mem::replace(&mut self.state, State::Failed(TlsError::EndedInHandshake));
        if let State::Handshaking(handshake) = state {
            self.state = State::Established(Box::new(handshake.finish()?));
        }
        Ok(())
    }

    /// Ends the connection, with an alert if the peer does not know of the error, and returns the error.
    fn fail(&mut self, error: TlsError) -> TlsError {
        if let State::Established(established) = &mut self.state
            && let Some(alert) = error.alert()
        {
            // A failure to seal the alert changes nothing: the connection has failed already.
            drop(established.seal_alert(alert, &mut self.outgoing));
        }
        self.state = State::Failed(error.clone());
        error
    }
}

/// Records that no honest peer sends.
#[cfg(any(test, feature = "check"))]
impl TlsStream {
    /// Appends a record with this inner plaintext: content, its type, and padding.
    pub(crate) fn forge(&mut self, inner: &[u8], out: &mut SendBuffer) {
        let State::Established(established) = &mut self.state else {
            panic!("only an established connection has keys");
        };
        let padding = rustls::ContentType::Unknown(0);
        let sealed = established.seal_whole(padding, inner, out);
        sealed.expect("a key that seals");
    }

    /// Seals a `KeyUpdate`, and changes the key.
    pub(crate) fn forge_key_update(&mut self, out: &mut SendBuffer) {
        if let State::Established(established) = &mut self.state {
            established.update_key(out).expect("the next key");
        }
    }
}
