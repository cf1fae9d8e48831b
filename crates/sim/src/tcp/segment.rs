//! What two ends of a TCP connection tell each other.

use std::fmt;

/// Most SACK blocks in a segment that has timestamps, too (RFC 2018 section 3).
pub(crate) const SACK_MAX: usize = 3;

/// Payload of a full segment: Ethernet's 1500 bytes less the headers of IPv4 and of TCP with timestamps.
pub(crate) const SEGMENT: u32 = 1448;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    /// The connection's number on the host it is from.
    pub(crate) from: u32,
    /// The connection's number on the host it is for.
    pub(crate) connection: u32,
    pub(crate) kind: Kind,
}

/// Sequence numbers are bytes from zero, and do not wrap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Syn,
    SynAck,
    Data {
        sequence: u64,
        length: u32,
    },
    Ack {
        /// Everything below has arrived.
        below: u64,
        /// What has arrived beyond, the latest first; empty ranges fill up.
        sack: [(u64, u64); SACK_MAX],
    },
}

impl Segment {
    pub(crate) fn payload(&self) -> usize {
        match self.kind {
            Kind::Data { length, .. } => length as usize,
            Kind::Syn | Kind::SynAck | Kind::Ack { .. } => 0,
        }
    }

    pub(crate) fn sack_blocks(&self) -> impl Iterator<Item = (u64, u64)> {
        let sack = match self.kind {
            Kind::Ack { sack, .. } => sack,
            Kind::Syn | Kind::SynAck | Kind::Data { .. } => [(0, 0); SACK_MAX],
        };
        sack.into_iter().filter(|block| block.0 < block.1)
    }

    /// Bytes of its options for SACK, with padding.
    pub(crate) fn sack_length(&self) -> usize {
        match self.sack_blocks().count() {
            0 => 0,
            blocks => 4 + 8 * blocks,
        }
    }
}

impl fmt::Display for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            Kind::Syn => f.write_str("SYN"),
            Kind::SynAck => f.write_str("SYN-ACK"),
            Kind::Data { sequence, length } => write!(f, "{length} B at {sequence}"),
            Kind::Ack { below, .. } => {
                write!(f, "ACK {below}")?;
                for (from, until) in self.sack_blocks() {
                    write!(f, ", {from} to {until}")?;
                }
                Ok(())
            }
        }
    }
}
