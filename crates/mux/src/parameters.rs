//! Transport parameters (draft-ietf-quic-qmux-02 section 5, RFC 9000 section 18).

use std::time::Duration;

use bytes::BufMut;
use quictun_wire::varint;

use crate::error::{TransportCode, Violation};
use crate::frame::{STREAMS_MAX, put_varint, varint_len};
use crate::record::RECORD_PAYLOAD_MAX;

/// The transport parameters of one side. An absent parameter has its default value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TransportParameters {
    /// Zero if the side has no idle timeout.
    pub(crate) max_idle_timeout: Duration,
    pub(crate) initial_max_data: u64,
    /// The limit of streams that this side opens.
    pub(crate) initial_max_stream_data_bidi_local: u64,
    /// The limit of streams that the other side opens.
    pub(crate) initial_max_stream_data_bidi_remote: u64,
    pub(crate) initial_max_streams_bidi: u64,
    /// The length of the longest DATAGRAM frame that the side takes; 0 if it takes none (RFC 9221 section 3).
    pub(crate) max_datagram_frame_size: u64,
    /// The side understands `RESET_STREAM_AT` frames.
    pub(crate) reset_stream_at: bool,
}

const MAX_IDLE_TIMEOUT: u64 = 0x01;
const INITIAL_MAX_DATA: u64 = 0x04;
const INITIAL_MAX_STREAM_DATA_BIDI_LOCAL: u64 = 0x05;
const INITIAL_MAX_STREAM_DATA_BIDI_REMOTE: u64 = 0x06;
const INITIAL_MAX_STREAM_DATA_UNI: u64 = 0x07;
const INITIAL_MAX_STREAMS_BIDI: u64 = 0x08;
const INITIAL_MAX_STREAMS_UNI: u64 = 0x09;
/// Presence means support (draft-ietf-quic-reliable-stream-reset).
const RESET_STREAM_AT: u64 = 0x1d;
const MAX_DATAGRAM_FRAME_SIZE: u64 = 0x20;
const MAX_RECORD_SIZE: u64 = 0x0571_c594_29cd_0845;

impl TransportParameters {
    pub(crate) fn encode(&self, out: &mut impl BufMut) {
        let idle = u64::try_from(self.max_idle_timeout.as_millis()).unwrap_or(varint::MAX);
        let integers = [
            (MAX_IDLE_TIMEOUT, idle),
            (INITIAL_MAX_DATA, self.initial_max_data),
            (
                INITIAL_MAX_STREAM_DATA_BIDI_LOCAL,
                self.initial_max_stream_data_bidi_local,
            ),
            (
                INITIAL_MAX_STREAM_DATA_BIDI_REMOTE,
                self.initial_max_stream_data_bidi_remote,
            ),
            (INITIAL_MAX_STREAMS_BIDI, self.initial_max_streams_bidi),
            (MAX_DATAGRAM_FRAME_SIZE, self.max_datagram_frame_size),
        ];
        for (id, value) in integers.into_iter().filter(|(_, value)| *value > 0) {
            put_varint(out, id);
            put_varint(out, varint_len(value) as u64);
            put_varint(out, value);
        }
        if self.reset_stream_at {
            put_varint(out, RESET_STREAM_AT);
            put_varint(out, 0);
        }
    }

    pub(crate) fn decode(mut input: &[u8]) -> Result<Self, Violation> {
        let mut parameters = Self::default();
        // A bit for each id below 64, and the highest one for the record size.
        let mut seen = 0_u64;
        while !input.is_empty() {
            let (id, value, rest) = parameter(input).ok_or(TRUNCATED)?;
            input = rest;
            let bit = match id {
                0..63 => 1 << id,
                MAX_RECORD_SIZE => 1 << 63,
                _ => 0,
            };
            if seen & bit != 0 {
                return Err(invalid("a transport parameter occurs twice"));
            }
            seen |= bit;
            parameters.set(id, value)?;
        }
        Ok(parameters)
    }

    fn set(&mut self, id: u64, value: &[u8]) -> Result<(), Violation> {
        match id {
            MAX_IDLE_TIMEOUT => self.max_idle_timeout = Duration::from_millis(integer(value)?),
            INITIAL_MAX_DATA => self.initial_max_data = integer(value)?,
            INITIAL_MAX_STREAM_DATA_BIDI_LOCAL => {
                self.initial_max_stream_data_bidi_local = integer(value)?;
            }
            INITIAL_MAX_STREAM_DATA_BIDI_REMOTE => {
                self.initial_max_stream_data_bidi_remote = integer(value)?;
            }
            INITIAL_MAX_STREAMS_BIDI => self.initial_max_streams_bidi = stream_count(value)?,
            // This side opens no unidirectional streams.
            INITIAL_MAX_STREAM_DATA_UNI => drop(integer(value)?),
            INITIAL_MAX_STREAMS_UNI => drop(stream_count(value)?),
            RESET_STREAM_AT if value.is_empty() => self.reset_stream_at = true,
            RESET_STREAM_AT => return Err(invalid("reset_stream_at has a value")),
            MAX_DATAGRAM_FRAME_SIZE => self.max_datagram_frame_size = integer(value)?,
            // Records of this side never exceed the default, which is also the smallest value.
            MAX_RECORD_SIZE if integer(value)? < RECORD_PAYLOAD_MAX as u64 => {
                return Err(invalid("max_record_size is below 16382"));
            }
            0x00 | 0x02 | 0x03 | 0x0a..=0x10 => {
                return Err(invalid("QMux prohibits this transport parameter of QUIC"));
            }
            _ => {}
        }
        Ok(())
    }
}

const TRUNCATED: Violation = invalid("a transport parameter ends after its frame");

const fn invalid(rule: &'static str) -> Violation {
    Violation::new(TransportCode::TRANSPORT_PARAMETER_ERROR, rule)
}

/// Splits a parameter off `input`: its id, its value and the bytes after it.
fn parameter(input: &[u8]) -> Option<(u64, &[u8], &[u8])> {
    let (id, rest) = varint::decode(input)?;
    let (length, rest) = varint::decode(rest)?;
    let (value, rest) = rest.split_at_checked(usize::try_from(length).ok()?)?;
    Some((id, value, rest))
}

fn integer(value: &[u8]) -> Result<u64, Violation> {
    match varint::decode(value) {
        Some((integer, [])) => Ok(integer),
        _ => Err(invalid(
            "the value of a transport parameter is not one integer",
        )),
    }
}

fn stream_count(value: &[u8]) -> Result<u64, Violation> {
    let count = integer(value)?;
    if count > STREAMS_MAX {
        return Err(invalid("an initial number of streams exceeds 2^60"));
    }
    Ok(count)
}

#[cfg(test)]
mod tests;
