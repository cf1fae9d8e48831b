//! Messages after the handshake (RFC 8446 section 4.6): session tickets and `KeyUpdate`.

use std::fmt;

use rustls::client::ClientConnectionData;
use rustls::kernel::KernelConnection;
use rustls::server::ServerConnectionData;
use rustls::{ConnectionTrafficSecrets, Error, ProtocolVersion, SupportedCipherSuite};

use crate::error::{TlsError, Violation};
use crate::limits::MESSAGE_MAX;

/// The part of rustls that outlives the handshake: it derives keys, and keeps session tickets.
pub(crate) enum Kernel {
    Client(KernelConnection<ClientConnectionData>),
    Server(KernelConnection<ServerConnectionData>),
}

impl Kernel {
    pub(crate) fn version(&self) -> ProtocolVersion {
        match self {
            Self::Client(kernel) => kernel.protocol_version(),
            Self::Server(kernel) => kernel.protocol_version(),
        }
    }

    pub(crate) fn suite(&self) -> SupportedCipherSuite {
        match self {
            Self::Client(kernel) => kernel.negotiated_cipher_suite(),
            Self::Server(kernel) => kernel.negotiated_cipher_suite(),
        }
    }

    /// Derives the next secrets for sending.
    pub(crate) fn update_sending(&mut self) -> Result<(u64, ConnectionTrafficSecrets), Error> {
        match self {
            Self::Client(kernel) => kernel.update_tx_secret(),
            Self::Server(kernel) => kernel.update_tx_secret(),
        }
    }

    /// Derives the next secrets for receiving.
    pub(crate) fn update_receiving(&mut self) -> Result<(u64, ConnectionTrafficSecrets), Error> {
        match self {
            Self::Client(kernel) => kernel.update_rx_secret(),
            Self::Server(kernel) => kernel.update_rx_secret(),
        }
    }

    fn handle_session_ticket(&mut self, body: &[u8]) -> Result<(), TlsError> {
        match self {
            Self::Client(kernel) => match kernel.handle_new_session_ticket(body) {
                Err(Error::InvalidMessage(_)) => Err(Violation::SessionTicket.into()),
                other => other.map_err(TlsError::of),
            },
            Self::Server(_) => Err(Violation::MessageType(SESSION_TICKET).into()),
        }
    }
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kernel").finish_non_exhaustive()
    }
}

/// The beginning of a message whose rest has not arrived.
#[derive(Debug, Default)]
pub(crate) struct Messages {
    partial: Vec<u8>,
}

/// The effect of a record with handshake messages.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// Number of messages that are complete.
    pub(crate) messages: u32,
    /// A `KeyUpdate` has arrived. The value tells whether the peer asks for one, too.
    pub(crate) key_update: Option<bool>,
}

impl Messages {
    /// Returns whether a message has arrived in part.
    pub(crate) fn is_partial(&self) -> bool {
        !self.partial.is_empty()
    }

    /// Handles the content of a handshake record.
    pub(crate) fn handle(
        &mut self,
        content: &[u8],
        kernel: &mut Kernel,
    ) -> Result<Outcome, TlsError> {
        if content.is_empty() {
            return Err(Violation::EmptyMessage.into());
        }
        self.partial.extend_from_slice(content);
        let mut outcome = Outcome::default();
        let mut rest = &self.partial[..];
        while let Some((&[kind, a, b, c], body)) = rest.split_first_chunk() {
            // The next message is already under the next key.
            if outcome.key_update.is_some() {
                break;
            }
            let len = u32::from_be_bytes([0, a, b, c]) as usize;
            match kind {
                KEY_UPDATE if len != 1 => return Err(Violation::KeyUpdate.into()),
                KEY_UPDATE => {}
                SESSION_TICKET if matches!(kernel, Kernel::Client(_)) => {}
                _ => return Err(Violation::MessageType(kind).into()),
            }
            if len > MESSAGE_MAX {
                return Err(Violation::MessageTooLong(len).into());
            }
            let Some((body, after)) = body.split_at_checked(len) else {
                break;
            };
            rest = after;
            outcome.messages += 1;
            if kind == SESSION_TICKET {
                kernel.handle_session_ticket(body)?;
            } else {
                outcome.key_update = Some(match body {
                    [0] => false,
                    [1] => true,
                    _ => return Err(Violation::KeyUpdate.into()),
                });
            }
        }
        if outcome.key_update.is_some() && !rest.is_empty() {
            return Err(Violation::NotAligned.into());
        }
        self.partial = rest.to_vec();
        Ok(outcome)
    }
}

/// A `KeyUpdate` that asks the peer for nothing.
pub(crate) const KEY_UPDATE_MESSAGE: [u8; 5] = [KEY_UPDATE, 0, 0, 1, 0];

const SESSION_TICKET: u8 = 4;
const KEY_UPDATE: u8 = 24;
