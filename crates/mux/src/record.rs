//! Records (draft-ietf-quic-qmux-02 section 3.2): the length of a payload, and the payload, which is whole frames.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use quictun_wire::varint;

use crate::error::Violation;
use crate::frame::Frame;

/// Length of the longest payload of a record that either side sends, bytes: the default of `max_record_size`.
pub(crate) const RECORD_PAYLOAD_MAX: usize = 16_382;

/// Length of the longest record that [`Mux::poll_transmit`](crate::Mux::poll_transmit) writes, bytes. A TLS record holds
/// it.
pub const RECORD_MAX: usize = PREFIX + RECORD_PAYLOAD_MAX;

/// Length of the prefix of each record that is written, bytes. It is known before the frames are.
const PREFIX: usize = 2;

/// Tag of a variable-length integer of two bytes.
const TWO_BYTES: u16 = 0x4000;

/// Splits the bytes that arrive into records.
#[derive(Debug, Default)]
pub(crate) struct RecordReader {
    /// The first bytes of a record that has not arrived as a whole.
    partial: BytesMut,
}

impl RecordReader {
    /// Returns the payload of the next record, or `None` if `input` is used up.
    ///
    /// A record that lies in `input` as a whole is not copied.
    pub(crate) fn next(&mut self, input: &mut Bytes) -> Result<Option<Bytes>, Violation> {
        if self.partial.is_empty()
            && let Some(prefix) = prefix(input)?
            && input.len() >= prefix.total()
        {
            let mut record = input.split_to(prefix.total());
            record.advance(prefix.length);
            return Ok(Some(record));
        }
        while !input.is_empty() {
            let missing = match prefix(&self.partial)? {
                Some(prefix) => prefix.total() - self.partial.len(),
                None => 1,
            };
            self.partial.put(input.split_to(missing.min(input.len())));
            if let Some(prefix) = prefix(&self.partial)?
                && self.partial.len() == prefix.total()
            {
                let mut record = std::mem::take(&mut self.partial).freeze();
                record.advance(prefix.length);
                return Ok(Some(record));
            }
        }
        Ok(None)
    }

    /// Returns the memory of a record that has arrived in part, bytes.
    pub(crate) fn held(&self) -> usize {
        self.partial.capacity()
    }
}

/// The prefix of a record.
#[derive(Clone, Copy, Debug)]
struct Prefix {
    length: usize,
    payload: usize,
}

impl Prefix {
    fn total(self) -> usize {
        self.length + self.payload
    }
}

/// Reads the prefix of a record. `None` if more bytes are needed.
fn prefix(bytes: &[u8]) -> Result<Option<Prefix>, Violation> {
    let Some((payload, rest)) = varint::decode(bytes) else {
        return Ok(None);
    };
    let payload = usize::try_from(payload).unwrap_or(usize::MAX);
    if payload > RECORD_PAYLOAD_MAX {
        return Err(Violation::encoding(
            "a record is longer than max_record_size",
        ));
    }
    if payload == 0 {
        return Err(Violation::protocol("a record has no frames"));
    }
    let length = bytes.len() - rest.len();
    Ok(Some(Prefix { length, payload }))
}

/// Writes one record into the caller's slot.
#[derive(Debug)]
pub(crate) struct RecordWriter<'a> {
    slot: &'a mut [u8],
    /// Number of bytes that are written, with the prefix.
    length: usize,
}

impl<'a> RecordWriter<'a> {
    /// Begins a record. The slot has room for the prefix.
    pub(crate) fn new(slot: &'a mut [u8]) -> Self {
        let most = slot.len().min(RECORD_MAX);
        Self {
            slot: &mut slot[..most],
            length: PREFIX,
        }
    }

    /// Returns the number of bytes that still fit.
    pub(crate) fn room(&self) -> usize {
        self.slot.len() - self.length
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.length == PREFIX
    }

    /// Appends a frame. Returns false, and appends nothing, if it does not fit.
    pub(crate) fn put(&mut self, frame: &Frame) -> bool {
        let fits = frame.len_max() <= self.room();
        if fits {
            self.write(|out| frame.encode(out));
        }
        fits
    }

    /// Appends the bytes that `encode` writes, for which there is room.
    #[expect(
        clippy::mut_mut,
        reason = "a slice that is a `BufMut` moves its own start"
    )]
    pub(crate) fn write(&mut self, encode: impl FnOnce(&mut &mut [u8])) {
        let mut out = &mut self.slot[self.length..];
        let before = out.len();
        encode(&mut out);
        self.length += before - out.len();
    }

    /// Ends the record. Returns its length, or 0 if it has no frames.
    pub(crate) fn finish(self) -> usize {
        if self.is_empty() {
            return 0;
        }
        let payload = u16::try_from(self.length - PREFIX).unwrap_or(u16::MAX);
        self.slot[..PREFIX].copy_from_slice(&(TWO_BYTES | payload).to_be_bytes());
        self.length
    }
}

#[cfg(test)]
mod tests;
