//! The errors of a connection, by the party at fault.

use rustls::AlertDescription;
use thiserror::Error;

/// The reason why a TLS connection has ended.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum TlsError {
    /// The peer does not speak TLS.
    #[error(
        "the peer does not speak TLS: check the port, and whether a proxy answers in its place"
    )]
    NotTls,
    /// The peer has ended the TCP connection during the handshake.
    #[error(
        "the peer ended the TCP connection before the TLS handshake was complete: check the port, and the peer's log"
    )]
    EndedInHandshake,
    /// The TCP connection has ended without `close_notify`: bytes may be missing.
    #[error("the TCP connection ended without the end of TLS: the last bytes may be missing")]
    Truncated,
    /// The peer has refused the connection, or has ended it with an error.
    #[error("the peer ended the TLS connection with the alert {0:?}{advice}", advice = advice(*.0))]
    PeerAlert(AlertDescription),
    /// The peer has violated the protocol.
    #[error("the peer violated TLS: {0}")]
    Violation(Violation),
    /// This side does not accept the peer's certificate.
    #[error("the peer's certificate was refused")]
    CertificateRefused(#[source] rustls::Error),
    /// Both sides have nothing in common, or the peer has violated the protocol in the handshake.
    #[error("the TLS handshake failed")]
    Handshake(#[source] rustls::Error),
    /// The fault is on this side: a configuration, the clock, or this program.
    #[error("the TLS connection failed on this side")]
    Local(#[source] rustls::Error),
}

impl TlsError {
    /// Returns the alert that tells the peer. `None` if it has ended the connection itself.
    pub(crate) fn alert(&self) -> Option<AlertDescription> {
        match self {
            Self::Violation(violation) => Some(violation.alert()),
            Self::Local(_) => Some(AlertDescription::InternalError),
            _ => None,
        }
    }

    /// Finds the party at fault in an error of the TLS library.
    pub(crate) fn of(error: rustls::Error) -> Self {
        match error {
            rustls::Error::AlertReceived(alert) => Self::PeerAlert(alert),
            rustls::Error::InvalidCertificate(_) | rustls::Error::NoCertificatesPresented => {
                Self::CertificateRefused(error)
            }
            rustls::Error::InappropriateMessage { .. }
            | rustls::Error::InappropriateHandshakeMessage { .. }
            | rustls::Error::InvalidMessage(_)
            | rustls::Error::DecryptError
            | rustls::Error::PeerIncompatible(_)
            | rustls::Error::PeerMisbehaved(_)
            | rustls::Error::PeerSentOversizedRecord
            | rustls::Error::NoApplicationProtocol => Self::Handshake(error),
            _ => Self::Local(error),
        }
    }
}

/// A violation of TLS by the peer that this crate has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Violation {
    /// The handshake has more bytes than permitted.
    #[error("its handshake is too long: are all certificates of the chain needed?")]
    HandshakeTooLong,
    /// A record has a type that is not permitted now.
    #[error("a record has the type {0}, which is not permitted after the handshake")]
    RecordType(u8),
    /// A record states another version than all records of TLS 1.3.
    #[error("a record states the version {}.{}, not 3.3", .0[0], .0[1])]
    RecordVersion([u8; 2]),
    /// A record is longer than permitted.
    #[error("a record is longer than permitted")]
    RecordTooLong,
    /// A record is not authentic.
    #[error("a record is damaged, or was not sent by the peer")]
    BadRecordMac,
    /// A record contains padding only.
    #[error("a record has no content type")]
    NoContentType,
    /// A record has a content type that is not permitted.
    #[error("a record has the content type {0}, which is not permitted")]
    Content(u8),
    /// A handshake record is empty.
    #[error("a handshake record is empty")]
    EmptyMessage,
    /// A record of another type interrupts a handshake message.
    #[error("another record interrupts a handshake message")]
    Interrupted,
    /// More bytes follow a message after which the key changes.
    #[error("bytes follow the last message under a key")]
    NotAligned,
    /// A handshake message has a type that is not permitted now.
    #[error("a handshake message has the type {0}, which is not permitted after the handshake")]
    MessageType(u8),
    /// A handshake message is longer than permitted.
    #[error("a handshake message has {0} bytes, which is too long")]
    MessageTooLong(usize),
    /// A `KeyUpdate` is malformed.
    #[error("a KeyUpdate is malformed")]
    KeyUpdate,
    /// A session ticket is malformed.
    #[error("a session ticket is malformed")]
    SessionTicket,
    /// An alert is malformed.
    #[error("an alert is malformed")]
    Alert,
    /// Too many records or messages without data arrived in a row.
    #[error("too many records without data in a row")]
    Idle,
}

impl Violation {
    fn alert(self) -> AlertDescription {
        match self {
            Self::HandshakeTooLong
            | Self::RecordVersion(_)
            | Self::MessageTooLong(_)
            | Self::SessionTicket
            | Self::Alert => AlertDescription::DecodeError,
            Self::RecordTooLong => AlertDescription::RecordOverflow,
            Self::BadRecordMac => AlertDescription::BadRecordMac,
            Self::KeyUpdate => AlertDescription::IllegalParameter,
            Self::RecordType(_)
            | Self::NoContentType
            | Self::Content(_)
            | Self::EmptyMessage
            | Self::Interrupted
            | Self::NotAligned
            | Self::MessageType(_)
            | Self::Idle => AlertDescription::UnexpectedMessage,
        }
    }
}

impl From<Violation> for TlsError {
    fn from(violation: Violation) -> Self {
        Self::Violation(violation)
    }
}

/// Returns the next step for the person who reads of an alert, after a colon, or nothing.
fn advice(alert: AlertDescription) -> &'static str {
    match alert {
        AlertDescription::NoApplicationProtocol => {
            ": it offers no protocol that this side knows; compare the versions of both sides"
        }
        AlertDescription::ProtocolVersion => ": it does not support TLS 1.3",
        AlertDescription::CertificateRequired => {
            ": it demands a client certificate, and this side has sent none"
        }
        AlertDescription::BadCertificate
        | AlertDescription::UnsupportedCertificate
        | AlertDescription::CertificateRevoked
        | AlertDescription::CertificateExpired
        | AlertDescription::CertificateUnknown
        | AlertDescription::UnknownCA => ": it does not accept the certificate of this side",
        AlertDescription::BadRecordMac => {
            ": bytes were changed on the way, by a middlebox or a fault"
        }
        AlertDescription::InternalError => ": its log has the reason",
        _ => "",
    }
}
