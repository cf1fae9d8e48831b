//! Datagrams that leave together.

use std::net::{IpAddr, SocketAddr};

/// One send call: `size` bytes of the buffer, cut into segments of `segment_size`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagrams {
    /// Where to.
    pub destination: SocketAddr,
    /// From which local address, where it matters.
    pub source: Option<IpAddr>,
    /// The two ECN bits.
    pub ecn: Option<u8>,
    /// Bytes in the buffer.
    pub size: usize,
    /// Length of every datagram but the last; `None`: there is one.
    pub segment_size: Option<usize>,
}

impl Datagrams {
    /// How many datagrams these are.
    pub fn count(&self) -> usize {
        self.segment_size
            .map_or(1, |segment| self.size.div_ceil(segment.max(1)))
    }

    pub(crate) fn from_quinn(transmit: &quinn_proto::Transmit) -> Self {
        Self {
            destination: transmit.destination,
            source: transmit.src_ip,
            ecn: transmit.ecn.map(|ecn| ecn as u8),
            size: transmit.size,
            segment_size: transmit.segment_size,
        }
    }
}
