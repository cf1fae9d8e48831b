//! Datagrams that are sent in one batch.

use std::net::{IpAddr, SocketAddr};

/// The datagrams of one send call: `size` bytes of the buffer, cut into segments of `segment_size`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagrams {
    /// Address of the peer.
    pub destination: SocketAddr,
    /// The local address to send from, if a particular one is required.
    pub source: Option<IpAddr>,
    /// The two ECN bits.
    pub ecn: Option<u8>,
    /// Number of bytes in the buffer.
    pub size: usize,
    /// Length of every datagram except the last. `None` if there is only one datagram.
    pub segment_size: Option<usize>,
}

impl Datagrams {
    /// Returns the number of datagrams.
    pub fn count(&self) -> usize {
        self.segment_size
            .map_or(1, |segment| self.size.div_ceil(segment.max(1)))
    }

    /// Returns the last datagram, and its part of `bytes`.
    pub(crate) fn last<'a>(&self, bytes: &'a [u8]) -> (Self, &'a [u8]) {
        let segment = self.segment_size.unwrap_or(self.size).max(1);
        let last = bytes.chunks(segment).last().unwrap_or_default();
        let alone = Self {
            size: last.len(),
            segment_size: None,
            ..*self
        };
        (alone, last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_of_several_datagrams_is_shorter_and_a_single_one_is_the_whole_batch() {
        let many = Datagrams {
            destination: ([192, 0, 2, 1], 7500).into(),
            source: None,
            ecn: None,
            size: 2500,
            segment_size: Some(1000),
        };
        let (last, bytes) = many.last(&[7; 2500]);
        assert_eq!(
            (last.size, last.segment_size, bytes.len()),
            (500, None, 500)
        );
        let one = Datagrams { size: 900, ..many };
        assert_eq!(one.last(&[7; 900]).1.len(), 900);
    }
}
