//! The payload of a DATAGRAM frame: one datagram of a flow, or a fragment of one (PROTOCOL section 5.11).
//!
//! ```text
//! whole      quarter stream id, context id 0 or 1, payload
//! fragment   quarter stream id, context id 2 or 3, sequence, index (1), count (1), part of a payload
//! ```
//!
//! The form is that of RFC 9297 and RFC 9298, whose context id 0 is a UDP payload. The odd ids have the same meaning on a
//! stream that the server has opened.

use crate::varint;

/// Maximum number of fragments of one datagram.
pub const MAX_FRAGMENTS: u8 = 64;

/// Maximum length of an application's datagram, bytes: what UDP over IPv6 carries without jumbograms.
pub const MAX_PAYLOAD: usize = 65_527;

/// Maximum length of the header, bytes: three integers of the longest form, and two bytes.
pub const MAX_HEADER: usize = 3 * varint::MAX_LEN + 2;

/// The context id of whole datagrams (RFC 9298 section 4).
const CONTEXT_WHOLE: u64 = 0;

/// The context id of fragments.
const CONTEXT_FRAGMENT: u64 = 2;

/// The part of a context id that says that the server has opened the stream.
const BY_SERVER: u64 = 1;

/// The bytes before the payload in a DATAGRAM frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatagramHeader {
    /// A quarter of the id of the flow's stream, rounded down.
    pub quarter_stream_id: u64,
    /// The server has opened the stream: otherwise the id is a multiple of four, and here it is one above.
    pub by_server: bool,
    /// Set if a part of the payload follows.
    pub fragment: Option<Fragment>,
}

/// The place of a fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// The datagram's number among those that its sender has fragmented in this flow.
    pub sequence: u64,
    /// The fragment's number in the datagram, below `count`.
    pub index: u8,
    /// Number of fragments of the datagram, 2 to [`MAX_FRAGMENTS`].
    pub count: u8,
}

impl DatagramHeader {
    /// Appends the header to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        varint::encode(self.quarter_stream_id, out);
        let by_server = u64::from(self.by_server) * BY_SERVER;
        let Some(fragment) = self.fragment else {
            return varint::encode(CONTEXT_WHOLE | by_server, out);
        };
        varint::encode(CONTEXT_FRAGMENT | by_server, out);
        varint::encode(fragment.sequence, out);
        out.extend_from_slice(&[fragment.index, fragment.count]);
    }

    /// Reads the header at the front of a frame's payload, and returns the bytes after it. `None` means that a receiver
    /// drops the frame: it is malformed, or its context is unknown.
    pub fn decode(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (quarter_stream_id, rest) = varint::decode(bytes)?;
        let (context, rest) = varint::decode(rest)?;
        let (fragment, payload) = match context & !BY_SERVER {
            CONTEXT_WHOLE => (None, rest),
            CONTEXT_FRAGMENT => {
                let (sequence, rest) = varint::decode(rest)?;
                let (&[index, count], payload) = rest.split_first_chunk()?;
                let fragment = Fragment {
                    sequence,
                    index,
                    count,
                };
                (Some(fragment.checked(payload)?), payload)
            }
            _ => return None,
        };
        let header = Self {
            quarter_stream_id,
            by_server: context & BY_SERVER != 0,
            fragment,
        };
        (payload.len() <= MAX_PAYLOAD).then_some((header, payload))
    }
}

impl Fragment {
    /// Returns the fragment if its numbers and its `part` of the payload are possible.
    fn checked(self, part: &[u8]) -> Option<Self> {
        let counted = (2..=MAX_FRAGMENTS).contains(&self.count) && self.index < self.count;
        (counted && !part.is_empty()).then_some(self)
    }
}

/// Returns how many fragments a payload of `len` bytes has, and the length of all but the last one, if a frame has room
/// for `room` bytes of payload. `None` if they would be too many.
pub fn split(len: usize, room: usize) -> Option<(u8, usize)> {
    let count = len.div_ceil(room.max(1)).max(2);
    // Fragments of about equal length fill packets evenly.
    let part = len.div_ceil(count);
    let count = u8::try_from(len.div_ceil(part.max(1))).ok()?;
    (2..=MAX_FRAGMENTS)
        .contains(&count)
        .then_some((count, part))
}

#[cfg(test)]
mod tests;
