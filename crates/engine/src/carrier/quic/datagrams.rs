//! Converts the library's transmits.

use crate::datagrams::Datagrams;

pub(super) fn from_library(transmit: &quinn_proto::Transmit) -> Datagrams {
    Datagrams {
        destination: transmit.destination,
        source: transmit.src_ip,
        ecn: transmit.ecn.map(|ecn| ecn as u8),
        size: transmit.size,
        segment_size: transmit.segment_size,
    }
}
