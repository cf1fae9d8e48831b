//! The segments of a TCP connection.

use std::fmt;

/// Maximum SACK blocks in a segment that also has the timestamp option (RFC 2018 section 3).
pub(crate) const SACK_MAX: usize = 3;

/// Payload of a full segment: Ethernet's 1500 bytes minus the headers of IPv4 and of TCP with timestamps.
pub(crate) const SEGMENT: u32 = 1448;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TcpSegment {
    /// The connection's number on the sending host.
    pub(crate) from: u32,
    /// The connection's number on the receiving host.
    pub(crate) connection: u32,
    pub(crate) kind: SegmentKind,
}

/// The content of a segment. Sequence numbers count bytes from zero and do not wrap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SegmentKind {
    Syn,
    SynAck,
    Data {
        sequence: u64,
        length: u32,
    },
    Ack {
        /// Everything below this sequence number has arrived.
        below: u64,
        /// Ranges that have arrived beyond `below`, the latest first, padded with empty ranges.
        sack: [(u64, u64); SACK_MAX],
    },
    /// The connection is over, or not known.
    Reset,
}

impl TcpSegment {
    pub(crate) fn payload(&self) -> usize {
        match self.kind {
            SegmentKind::Data { length, .. } => length as usize,
            SegmentKind::Syn
            | SegmentKind::SynAck
            | SegmentKind::Ack { .. }
            | SegmentKind::Reset => 0,
        }
    }

    pub(crate) fn sack_blocks(&self) -> impl Iterator<Item = (u64, u64)> {
        let sack = match self.kind {
            SegmentKind::Ack { sack, .. } => sack,
            SegmentKind::Syn
            | SegmentKind::SynAck
            | SegmentKind::Data { .. }
            | SegmentKind::Reset => [(0, 0); SACK_MAX],
        };
        sack.into_iter().filter(|block| block.0 < block.1)
    }

    /// Returns the length of the SACK option with its padding, bytes.
    pub(crate) fn sack_length(&self) -> usize {
        match self.sack_blocks().count() {
            0 => 0,
            blocks => 4 + 8 * blocks,
        }
    }
}

impl fmt::Display for TcpSegment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            SegmentKind::Syn => f.write_str("SYN"),
            SegmentKind::SynAck => f.write_str("SYN-ACK"),
            SegmentKind::Reset => f.write_str("RST"),
            SegmentKind::Data { sequence, length } => write!(f, "{length} B at {sequence}"),
            SegmentKind::Ack { below, .. } => {
                write!(f, "ACK {below}")?;
                for (from, until) in self.sack_blocks() {
                    write!(f, ", {from} to {until}")?;
                }
                Ok(())
            }
        }
    }
}
