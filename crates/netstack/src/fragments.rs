//! Fragments of datagrams that are longer than a packet of the device.
//!
//! The kernel of this host cuts a datagram and sends its fragments in order, and the device keeps the order. So a fragment
//! that does not continue its datagram ends it. No fragment can overlap another one (RFC 5722).

use std::collections::VecDeque;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use crate::config::MAX_PACKET;
use crate::counters::PacketRefusal;
use crate::segment::IpFragment;

/// Datagrams that have arrived in part, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Fragments(VecDeque<PartialDatagram>);

#[derive(Debug)]
struct PartialDatagram {
    ends: (IpAddr, IpAddr),
    id: u32,
    bytes: Vec<u8>,
    until: Instant,
}

impl Fragments {
    /// Takes a fragment of the datagram between these addresses. Returns the payload of the datagram once it is whole.
    pub(crate) fn take(
        &mut self,
        now: Instant,
        ends: (IpAddr, IpAddr),
        fragment: IpFragment,
        part: &[u8],
    ) -> Result<Option<Vec<u8>>, PacketRefusal> {
        let is_same = |it: &PartialDatagram| (it.ends, it.id) == (ends, fragment.id);
        let known = self.0.iter().position(is_same);
        let known = known.and_then(|at| self.0.remove(at));
        let mut partial = match known {
            Some(known) if fragment.offset > 0 && now < known.until => known,
            _ => PartialDatagram {
                ends,
                id: fragment.id,
                bytes: Vec::new(),
                until: now + LIFETIME,
            },
        };
        if partial.bytes.len() != fragment.offset || fragment.offset + part.len() > MAX_PACKET {
            return Err(PacketRefusal::Fragment);
        }
        partial.bytes.extend_from_slice(part);
        if !fragment.more {
            return Ok(Some(partial.bytes));
        }
        if self.0.len() >= PARTIAL_MAX {
            self.0.pop_front();
        }
        self.0.push_back(partial);
        Ok(None)
    }

    #[cfg(any(test, feature = "check"))]
    pub(crate) fn is_bounded(&self) -> bool {
        let fits = |it: &PartialDatagram| it.bytes.len() <= MAX_PACKET;
        self.0.len() <= PARTIAL_MAX && self.0.iter().all(fits)
    }
}

/// Time within which the fragments of a datagram have to follow the first. The kernel sends them together.
const LIFETIME: Duration = Duration::from_secs(2);

/// Largest number of datagrams that have arrived in part, of up to 64 KiB each. Two processors of this host that send at
/// the same moment make two.
const PARTIAL_MAX: usize = 16;
