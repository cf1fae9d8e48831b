//! What client and server say to each other around a measurement.
//!
//! A control connection, TCP to the server's port, carries one measurement:
//!
//! ```text
//! client: MAGIC 'C'   Plan ─►
//!                            ◄─ Answer::Ready or Answer::Refused
//!         ... data connections to the same port: MAGIC 'D' cookie flow, then what the plan says ...
//! client: Done ─►
//!                            ◄─ Outcome
//! ```
//!
//! Messages are JSON behind their length. QUIC and UDP use the UDP port of the same number; QUIC needs no cookie.

use std::io::{self, Read, Write};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::meter::Measured;

/// First bytes of a connection that agrees on a measurement; the digit rises when something changes its meaning.
pub(crate) const CONTROL: [u8; 8] = *b"QTPERF1C";

/// First bytes of a connection that is measured; the cookie comes next.
const DATA: [u8; 8] = *b"QTPERF1D";

pub(crate) const PREAMBLE: usize = 20;

/// Longest message: the series of two hours is below it.
const MESSAGE_MAX: usize = 4 << 20;

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Answer {
    Ready(Ready),
    Refused(String),
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Ready {
    /// Opens data connections; the payload's seed as well.
    pub(crate) cookie: u64,
    /// SHA-256 of the public key that TLS and QUIC will show.
    pub(crate) pin: String,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Done;

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Outcome {
    pub(crate) measured: Result<Measured, String>,
    /// The congestion controller of its sockets, where it is the sender.
    pub(crate) congestion: Option<String>,
}

pub(crate) fn preamble(cookie: u64, flow: u32) -> [u8; PREAMBLE] {
    let mut bytes = [0; PREAMBLE];
    bytes[..8].copy_from_slice(&DATA);
    bytes[8..16].copy_from_slice(&cookie.to_be_bytes());
    bytes[16..].copy_from_slice(&flow.to_be_bytes());
    bytes
}

/// The flow that a data connection belongs to; `None`: it does not belong to this measurement.
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
    fn connections_say_what_they_are_for() {
        assert_eq!(flow(preamble(7, 3), 7), Some(3));
        assert_eq!(flow(preamble(7, 3), 8), None);
        for other in [CONTROL, *b"QTPERF2D", *b"GET / HT"] {
            let mut begins = preamble(7, 3);
            begins[..8].copy_from_slice(&other);
            assert_eq!(flow(begins, 7), None);
        }
    }

    #[test]
    fn a_length_that_a_stranger_chose_is_limited() {
        let message = |length: usize| {
            let length = u32::try_from(length).expect("a length");
            let text = [b"\"".as_slice(), &vec![b'a'; length as usize - 2], b"\""].concat();
            [&length.to_be_bytes()[..], &text].concat()
        };
        let read = receive::<String>(&mut &message(MESSAGE_MAX)[..]).expect("at the limit");
        assert_eq!(read.len(), MESSAGE_MAX - 2);
        assert!(receive::<String>(&mut &message(MESSAGE_MAX + 1)[..]).is_err());
    }
}
