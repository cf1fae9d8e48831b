//! Datagram input and output for the hosts that use an endpoint of the QUIC library.

use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use bytes::BytesMut;
use quictun_sim::OutgoingPacket;
use quinn_proto::{DatagramEvent, EcnCodepoint, Endpoint, Transmit};

/// Passes a datagram to the endpoint. A response, if any, goes to `out`; other events are returned to the caller.
pub(crate) fn receive(
    endpoint: &mut Endpoint,
    out: &mut Vec<OutgoingPacket>,
    now: Instant,
    (from, local): (SocketAddr, Option<IpAddr>),
    ecn: u8,
    bytes: BytesMut,
) -> Option<DatagramEvent> {
    let mut response = Vec::new();
    let ecn = EcnCodepoint::from_bits(ecn);
    match endpoint.handle(now, from, local, ecn, bytes, &mut response)? {
        DatagramEvent::Response(transmit) => {
            depart(out, &transmit, &response);
            None
        }
        event => Some(event),
    }
}

/// Queues a datagram that the library has written.
pub(crate) fn depart(out: &mut Vec<OutgoingPacket>, transmit: &Transmit, bytes: &[u8]) {
    let ecn = transmit.ecn.map(|ecn| ecn as u8);
    let bytes = BytesMut::from(&bytes[..transmit.size]);
    out.push(OutgoingPacket::udp(transmit.destination, ecn, bytes));
}
