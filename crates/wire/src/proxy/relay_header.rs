//! The header of a datagram between an application and a SOCKS5 proxy (RFC 1928 section 7).
//!
//! ```text
//! reserved (2) = 0, fragment (1) = 0, address type, address, port, payload
//! ```
//!
//! In a datagram of the application, the address is the target. In an answer it is the target as the application has
//! written it, so that the application recognizes it.

use super::{socks5, target};
use crate::target::Target;

/// The bytes before the address: no fragment.
const START: [u8; 3] = [0; 3];

/// The address in the header of a datagram.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RelayHeader {
    /// Address type, address and port, as the application has written them.
    address: Box<[u8]>,
}

impl RelayHeader {
    /// Reads the header at the front of an application's datagram. Returns it with the target and the payload. `None`
    /// means that a proxy drops the datagram: it is malformed, or a fragment.
    pub fn decode(datagram: &[u8]) -> Option<(Self, Target, &[u8])> {
        let rest = datagram.strip_prefix(&START)?;
        let read = socks5::address(rest).ok()??;
        let target = Target::parse(&target("udp", &read.host, read.port)).ok()?;
        let (address, payload) = rest.split_at_checked(read.length)?;
        let address = address.into();
        Some((Self { address }, target, payload))
    }

    /// Encodes an answer with this header.
    pub fn encode(&self, payload: &[u8]) -> Vec<u8> {
        [&START, &*self.address, payload].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // RFC 1928 section 7.
    #[test]
    fn a_datagram_names_its_target_and_its_answer_has_the_same_header() {
        for (address, text) in [
            (&b"\x01\xc0\x00\x02\x07\x00\x35"[..], "udp:192.0.2.7:53"),
            (b"\x03\x09a.EXAMPLE\x00\x35", "udp:a.example:53"),
            (
                b"\x04\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\x01\x00\x35",
                "udp:[2001:db8::1]:53",
            ),
        ] {
            for payload in [&b"query"[..], b""] {
                let datagram = [&[0, 0, 0], address, payload].concat();
                let (header, target, carried) = RelayHeader::decode(&datagram).expect(text);
                assert_eq!((target.to_string().as_str(), carried), (text, payload));
                let answer = [&[0, 0, 0], address, b"answer"].concat();
                assert_eq!(header.encode(b"answer"), answer);
            }
        }
    }

    #[test]
    fn fragments_and_malformed_headers_are_dropped() {
        let whole = b"\0\0\0\x01\xc0\x00\x02\x07\x00\x35";
        assert!(RelayHeader::decode(whole).is_some());
        for cut in 0..whole.len() {
            assert_eq!(RelayHeader::decode(&whole[..cut]), None, "{cut} bytes");
        }
        // A byte of each part: reserved, fragment, address type. Then port 0, and names that are none.
        for (at, byte) in [(0, 1), (1, 1), (2, 1), (2, 0x81), (3, 0), (3, 2), (9, 0)] {
            let mut bad = whole.to_vec();
            bad[at] = byte;
            assert_eq!(RelayHeader::decode(&bad), None, "{at}");
        }
        for name in [&b"\0"[..], b"\x01 ", b"\x02\xff\xfe", b"\x03a:1"] {
            let bad = [&[0, 0, 0, 3], name, &[0, 53]].concat();
            assert_eq!(RelayHeader::decode(&bad), None, "{name:?}");
        }
    }
}
