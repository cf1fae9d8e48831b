//! The messages that client and server exchange around a measurement.
//!
//! A control connection, a TCP connection to the server's port, carries one measurement:
//!
//! ```text
//! client: MAGIC 'C'   Plan ─►
//!                            ◄─ Answer::Ready or Answer::Refused
//!         ... data connections to the same port: MAGIC 'D' cookie flow, then the plan's traffic ...
//! client: Done ─►
//!                            ◄─ Outcome
//! ```
//!
//! Messages are JSON, prefixed with their length. QUIC and UDP use the UDP port of the same number. QUIC needs no
//! cookie.

use std::io::{self, Read, Write};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::meter::Measurement;

/// First bytes of a control connection. The digit increases when a message changes its meaning.
pub(crate) const CONTROL: [u8; 8] = *b"QTPERF1C";

/// First bytes of a data connection; the cookie follows.
const DATA: [u8; 8] = *b"QTPERF1D";

pub(crate) const PREAMBLE: usize = 20;

/// Length of the longest message: above that of a series of two hours.
const MESSAGE_MAX: usize = 4 << 20;

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Response {
    Ready(SessionParameters),
    Refused(String),
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct SessionParameters {
    /// Identifies data connections; also the seed of the payload.
    pub(crate) cookie: u64,
    /// SHA-256 of the public key that the server presents in TLS and QUIC.
    pub(crate) pin: String,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Done;

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ServerResult {
    pub(crate) measured: Result<Measurement, String>,
    /// Congestion controller of the server's sockets, if the server is the sender.
    pub(crate) congestion: Option<String>,
}

pub(crate) fn preamble(cookie: u64, flow: u32) -> [u8; PREAMBLE] {
    let mut bytes = [0; PREAMBLE];
    bytes[..8].copy_from_slice(&DATA);
    bytes[8..16].copy_from_slice(&cookie.to_be_bytes());
    bytes[16..].copy_from_slice(&flow.to_be_bytes());
    bytes
}

/// Returns the flow of a data connection, or `None` if the connection does not belong to this measurement.
pub(crate) fn flow(preamble: [u8; PREAMBLE], cookie: u64) -> Option<u32> {
    let [.., a, b, c, d] = preamble;
    let flow = u32::from_be_bytes([a, b, c, d]);
    (preamble == self::preamble(cookie, flow)).then_some(flow)
}

pub(crate) fn send(to: &mut impl Write, message: &impl Serialize) -> io::Result<()> {
    let text = serde_json::to_vec(message)?;
    let length = u32::try_from(text.len()).map_err(io::Error::other)?;
    to.write_all(&[&length.to_be_bytes()[..], &text].concat())
}

pub(crate) fn receive<T: DeserializeOwned>(from: &mut impl Read) -> io::Result<T> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let length = u32::from_be_bytes(length) as usize;
    if length > MESSAGE_MAX {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut text = vec![0; length];
    from.read_exact(&mut text)?;
    Ok(serde_json::from_slice(&text)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_states_its_purpose() {
        assert_eq!(flow(preamble(7, 3), 7), Some(3));
        assert_eq!(flow(preamble(7, 3), 8), None);
        for other in [CONTROL, *b"QTPERF2D", *b"GET / HT"] {
            let mut begins = preamble(7, 3);
            begins[..8].copy_from_slice(&other);
            assert_eq!(flow(begins, 7), None);
        }
    }

    #[test]
    fn a_message_length_is_limited() {
        let message = |length: usize| {
            let length = u32::try_from(length).expect("fits 32 bits");
            let text = [b"\"".as_slice(), &vec![b'a'; length as usize - 2], b"\""].concat();
            [&length.to_be_bytes()[..], &text].concat()
        };
        let read = receive::<String>(&mut &message(MESSAGE_MAX)[..]).expect("at the limit");
        assert_eq!(read.len(), MESSAGE_MAX - 2);
        assert!(receive::<String>(&mut &message(MESSAGE_MAX + 1)[..]).is_err());
    }
}
