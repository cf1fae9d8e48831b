//! The largest datagrams that reach a server.
//!
//! A server answers a datagram of an unknown version of QUIC with the versions that it knows, whatever its size is (RFC
//! 9000 section 6). So each size is one such datagram, which no host may fragment.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::ops::Range;
use std::time::Duration;

use quictun_io::udp_port::{any_address, bind, never_fragment, path_mtu};

use super::LargestPacket;

/// Smallest datagram that a server answers, and that every path of QUIC carries (RFC 9000 section 14.1).
const SMALLEST: u16 = 1200;

/// Bounds of the time to wait for an answer. A handshake takes longer than a round trip.
const WAIT_MIN: Duration = Duration::from_millis(50);
const WAIT_MAX: Duration = Duration::from_secs(1);

/// Number of datagrams of one size that must be lost until the size counts as too large.
const ATTEMPTS: usize = 2;

/// Bytes of the headers of IP and UDP.
const HEADERS_V4: u32 = 20 + 8;
const HEADERS_V6: u32 = 40 + 8;

/// A version that no server knows, because it is reserved (RFC 9000 section 15).
const UNKNOWN_VERSION: [u8; 4] = [0x1a, 0x2a, 0x3a, 0x4a];

/// First byte of a packet with a long header.
const LONG_HEADER: u8 = 0xc0;

/// The bytes of the version, and those of the two connection ids with their lengths, which answers repeat.
const VERSION: Range<usize> = 1..5;
const IDS: Range<usize> = 5..23;

/// Number of other packets that may come before an answer.
const OTHERS_MAX: usize = 64;

/// Returns the largest packet that reaches `server`, or `None` if it answers none. `handshake` is the duration of one.
pub(super) fn largest(
    server: SocketAddr,
    handshake: Duration,
) -> io::Result<Option<LargestPacket>> {
    let socket = bind(any_address(server.is_ipv6()), false)?;
    never_fragment(&socket)?;
    socket.connect(server)?;
    socket.set_read_timeout(Some(handshake.clamp(WAIT_MIN, WAIT_MAX)))?;
    let most = path_mtu(None)(server).max(SMALLEST);
    let payload = search(most, |size| passes(&socket, size));
    let headers = if server.is_ipv4() {
        HEADERS_V4
    } else {
        HEADERS_V6
    };
    Ok(payload.map(|payload| LargestPacket {
        packet: u32::from(payload) + headers,
        payload,
    }))
}

/// Returns the largest size up to `most` that passes, or `None` if not even [`SMALLEST`] does.
fn search(most: u16, mut passes: impl FnMut(u16) -> bool) -> Option<u16> {
    if passes(most) {
        return Some(most);
    }
    // All sizes up to `fits` pass, and `exceeds` does not.
    let (mut fits, mut exceeds) = (SMALLEST, most);
    if most <= SMALLEST || !passes(fits) {
        return None;
    }
    while exceeds - fits > 1 {
        let middle = fits + (exceeds - fits) / 2;
        if passes(middle) {
            fits = middle;
        } else {
            exceeds = middle;
        }
    }
    Some(fits)
}

fn passes(socket: &UdpSocket, size: u16) -> bool {
    let probe = probe(size);
    // A datagram that the system does not send is too large.
    (0..ATTEMPTS).any(|_| socket.send(&probe).is_ok() && is_answered(socket, &probe))
}

/// Returns a packet with an unknown version. Its connection ids contain its size.
fn probe(size: u16) -> Vec<u8> {
    let [high, low] = size.to_be_bytes();
    let id_with_length = [8, b'q', b'u', b'i', b'c', b't', b'u', high, low];
    let mut packet = vec![LONG_HEADER];
    packet.extend(UNKNOWN_VERSION);
    packet.extend([id_with_length; 2].concat());
    packet.resize(usize::from(size), 0);
    packet
}

/// Waits for the answer to a probe. Answers to earlier probes are ignored.
fn is_answered(socket: &UdpSocket, probe: &[u8]) -> bool {
    let mut packet = [0; SMALLEST as usize];
    for _ in 0..OTHERS_MAX {
        let Ok(length) = socket.recv(&mut packet) else {
            return false;
        };
        let found = &packet[..length];
        let is_long = found.first().is_some_and(|first| first & 0x80 != 0);
        // Version Negotiation has the version 0 (RFC 9000 section 17.2.1).
        let is_negotiation = is_long && found.get(VERSION) == Some(&[0; 4]);
        if is_negotiation && found.get(IDS) == probe.get(IDS) {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_search_finds_the_largest_size_with_few_probes() {
        for (most, limit, found) in [
            (1472, 1472, Some(1472)),
            (1472, 1471, Some(1471)),
            (1472, 1372, Some(1372)),
            (1472, 1200, Some(1200)),
            (1472, 1199, None),
            (1200, 1200, Some(1200)),
            (1200, 1199, None),
            (65_507, 8972, Some(8972)),
        ] {
            let mut probes = 0;
            let passes = |size| {
                probes += 1;
                size <= limit
            };
            assert_eq!(search(most, passes), found, "{most} {limit}");
            assert!(probes <= 18, "{probes} probes");
        }
    }

    #[test]
    fn only_the_answer_to_this_probe_counts() {
        let server = UdpSocket::bind("127.0.0.1:0").expect("a port");
        let client = UdpSocket::bind("127.0.0.1:0").expect("a port");
        client
            .connect(server.local_addr().expect("bound"))
            .expect("connected");
        server
            .connect(client.local_addr().expect("bound"))
            .expect("connected");
        client.set_read_timeout(Some(WAIT_MIN)).expect("a time-out");
        let answer = |size| {
            let mut answer = probe(size)[..IDS.end].to_vec();
            answer[VERSION].fill(0);
            answer
        };
        for wrong in [answer(1300), probe(1400), vec![], vec![0x80]] {
            server.send(&wrong).expect("sent");
        }
        assert!(!is_answered(&client, &probe(1400)));
        server.send(&answer(1300)).expect("sent");
        server.send(&answer(1400)).expect("sent");
        assert!(is_answered(&client, &probe(1400)));
    }
}
