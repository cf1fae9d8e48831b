//! The QUIC frames that an attacker needs: finds the STREAM frames in a packet, and writes frames.

use std::ops::Range;

/// The frame type of PING.
pub const PING: u8 = 0x01;

/// A STREAM frame in the plaintext of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamFrame {
    /// The frame's position in the payload, including its header.
    pub at: Range<usize>,
    /// The stream offset of the frame's first byte.
    pub offset: u64,
    /// The number of stream bytes that the frame carries.
    pub len: u64,
}

impl StreamFrame {
    /// Returns true if the frame carries one of these stream bytes.
    pub fn touches(&self, bytes: &Range<u64>) -> bool {
        self.offset < bytes.end && bytes.start < self.offset + self.len
    }
}

/// Returns the STREAM frames of a packet, up to the first frame that cannot be parsed.
pub fn stream_frames(payload: &[u8]) -> Vec<StreamFrame> {
    let mut reader = Reader { payload, at: 0 };
    let mut found = Vec::new();
    while reader.at < payload.len() {
        match reader.frame() {
            Some(Frame::Stream(frame)) => found.push(frame),
            Some(Frame::Other) => {}
            None => break,
        }
    }
    found
}

/// Appends a STREAM frame with explicit offset and length.
pub fn put_stream(out: &mut Vec<u8>, stream: u64, offset: u64, data: &[u8], fin: bool) {
    out.push(0x0e | u8::from(fin));
    put_varint(out, stream);
    put_varint(out, offset);
    put_varint(out, data.len() as u64);
    out.extend_from_slice(data);
}

/// Appends an integer of at most 2^62 - 1 in the shortest encoding (RFC 9000 section 16).
pub fn put_varint(out: &mut Vec<u8>, value: u64) {
    let (bytes, form) = match value {
        0..0x40 => (1, 0),
        0x40..0x4000 => (2, 0x40),
        0x4000..0x4000_0000 => (4, 0x80),
        _ => (8, 0xc0),
    };
    let start = out.len();
    out.extend_from_slice(&value.to_be_bytes()[8 - bytes..]);
    out[start] |= form;
}

/// Takes an integer from the front of a slice.
pub fn take_varint(from: &mut &[u8]) -> Option<u64> {
    let first = *from.first()?;
    let (bytes, rest) = from.split_at_checked(1 << (first >> 6))?;
    *from = rest;
    let low = bytes[1..].iter();
    Some(low.fold(u64::from(first & 0x3f), |value, byte| {
        value << 8 | u64::from(*byte)
    }))
}

enum Frame {
    Stream(StreamFrame),
    Other,
}

struct Reader<'a> {
    payload: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    /// Skips one frame; returns `None` if it cannot be parsed.
    fn frame(&mut self) -> Option<Frame> {
        let start = self.at;
        let kind = self.varint()?;
        match kind {
            0x00 | 0x01 | 0x1e | 0x1f => {}
            0x02 | 0x03 => self.ack(kind == 0x03)?,
            0x04 => self.varints(3)?,
            0x05 | 0x11 | 0x15 => self.varints(2)?,
            0x06 => {
                self.varint()?;
                self.sized()?;
            }
            0x07 | 0x31 => self.sized()?,
            0x08..=0x0f => return self.stream(start, kind).map(Frame::Stream),
            0x10 | 0x12..=0x14 | 0x16 | 0x17 | 0x19 => self.varints(1)?,
            0x18 => {
                self.varints(2)?;
                let id = usize::from(*self.payload.get(self.at)?);
                self.pass(1 + id + 16)?;
            }
            0x1a | 0x1b => self.pass(8)?,
            0xaf => self.varints(4)?,
            _ => return None,
        }
        Some(Frame::Other)
    }

    fn stream(&mut self, start: usize, kind: u64) -> Option<StreamFrame> {
        self.varint()?;
        let offset = if kind & 0x04 == 0 { 0 } else { self.varint()? };
        let len = if kind & 0x02 == 0 {
            (self.payload.len() - self.at) as u64
        } else {
            self.varint()?
        };
        self.pass(usize::try_from(len).ok()?)?;
        let at = start..self.at;
        Some(StreamFrame { at, offset, len })
    }

    fn ack(&mut self, ecn: bool) -> Option<()> {
        self.varints(2)?;
        let ranges = self.varint()?;
        self.varint()?;
        for _ in 0..ranges {
            self.varints(2)?;
        }
        self.varints(if ecn { 3 } else { 0 })
    }

    fn sized(&mut self) -> Option<()> {
        let len = self.varint()?;
        self.pass(usize::try_from(len).ok()?)
    }

    fn varints(&mut self, count: usize) -> Option<()> {
        for _ in 0..count {
            self.varint()?;
        }
        Some(())
    }

    fn varint(&mut self) -> Option<u64> {
        let mut rest = self.payload.get(self.at..)?;
        let value = take_varint(&mut rest);
        self.at = self.payload.len() - rest.len();
        value
    }

    fn pass(&mut self, bytes: usize) -> Option<()> {
        let end = self.at.checked_add(bytes)?;
        (end <= self.payload.len()).then(|| self.at = end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stream_frames_are_found_after_other_frames() {
        // An ACK of one range, PING, PADDING.
        let mut payload = vec![0x02, 0x05, 0x00, 0x00, 0x02, PING, 0x00];
        let start = payload.len();
        put_stream(&mut payload, 4, 70_000, b"abc", true);
        let at = start..payload.len();
        // The last STREAM frame of a packet may omit its length.
        payload.extend([0x08, 0x08, b'x', b'y']);
        let frames = stream_frames(&payload);
        assert_eq!(
            frames[0],
            StreamFrame {
                at,
                offset: 70_000,
                len: 3
            }
        );
        assert_eq!((frames[1].offset, frames[1].len), (0, 2));
        assert!(frames[0].touches(&(70_002..70_003)) && !frames[0].touches(&(70_003..70_004)));
    }

    #[test]
    fn a_truncated_frame_ends_the_search() {
        let mut payload = Vec::new();
        put_stream(&mut payload, 0, 0, b"abc", false);
        payload.pop();
        assert!(stream_frames(&payload).is_empty());
    }
}
