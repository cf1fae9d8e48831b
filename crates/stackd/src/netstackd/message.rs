//! The calls between the client and netstackd: operations, and the encoding of events and datagrams.
//!
//! | call | carries | answer |
//! |---|---|---|
//! | [`LISTEN`] | number of the item | an event, when there is one: [`encode_event`] |
//! | [`ACCEPT`] | flow | [`OK`] or [`GONE`] |
//! | [`RECV`] | flow, buffer | [`OK`], bytes in the buffer with [`MORE`] or [`END`]; or [`GONE`] |
//! | [`SEND`] | flow, buffer | [`OK`], bytes taken of it; or [`GONE`] |
//! | [`FINISH`] | flow | [`OK`]; [`LATER`]: again after `Writable`; or [`GONE`] |
//! | [`RESET`] | flow | [`OK`] or [`GONE`]; the reset follows what was sent |
//! | [`RECV_DATAGRAMS`] | buffer | length in the buffer, when there are some: [`append_datagram`]; and [`with_dropped`] |
//! | [`SEND_DATAGRAMS`] | length in the buffer, buffer | [`OK`], and [`with_dropped`] |
//! | [`REFUSE_DATAGRAM`] | both addresses | [`OK`] |

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use quictun_ipc::Message;
use quictun_netstack::{Datagram, Event, FlowEnding, MAX_PACKET, StackFlowId};

pub(super) const LISTEN: u16 = 1;
pub(super) const ACCEPT: u16 = 2;
pub(super) const RECV: u16 = 3;
pub(super) const SEND: u16 = 4;
pub(super) const FINISH: u16 = 5;
pub(super) const RESET: u16 = 6;
pub(super) const RECV_DATAGRAMS: u16 = 7;
pub(super) const SEND_DATAGRAMS: u16 = 8;
pub(super) const REFUSE_DATAGRAM: u16 = 9;

pub(super) const OK: u16 = 0;
pub(super) const GONE: u16 = 1;
pub(super) const LATER: u16 = 2;
/// The answer to an invalid call.
pub(super) const MALFORMED: u16 = 3;

/// Flag in the answer to [`RECV`]: the buffer was too short, and there is more to receive.
pub(super) const MORE: u64 = 1 << 32;
/// Flag in the answer to [`RECV`]: the application has finished after these bytes.
pub(super) const END: u64 = 1 << 33;

/// Length of a buffer for datagrams: one of the longest, or eighty that fill a packet.
pub(super) const DATAGRAMS_ROOM: u32 = 128 * 1024;
/// Bytes of datagrams to programs in one call, or one datagram. The stack writes them to the device in one turn or two.
pub(super) const REPLIES_MAX: usize = 32 * 1024;
/// Length of the longest datagram in a buffer.
pub(super) const DATAGRAM_MAX: usize = DATAGRAM_HEAD + MAX_PACKET;
/// Length of the header of a datagram: two addresses with ports, and the length of the payload.
const DATAGRAM_HEAD: usize = 2 * ADDRESS + 2;
const ADDRESS: usize = 18;

/// Priorities of the coroutines.
pub(super) const EVENTS: usize = 0;
pub(super) const CALLS: usize = 1;

const OFFERED: u16 = 1;
const OPEN: u16 = 2;
const READABLE: u16 = 3;
const WRITABLE: u16 = 4;
const ENDED: u16 = 5;

pub(super) fn flow_message(op: u16, flow: StackFlowId) -> Message {
    Message::new(op).with_arg(flow.to_bits())
}

pub(super) fn encode_event(event: Event) -> Message {
    match event {
        Event::Offered {
            flow,
            client,
            target,
        } => with_ends(flow_message(OFFERED, flow), client, target),
        Event::Open(flow) => flow_message(OPEN, flow),
        Event::Readable(flow) => flow_message(READABLE, flow),
        Event::Writable(flow) => flow_message(WRITABLE, flow),
        Event::Ended { flow, ending } => {
            let how = match ending {
                FlowEnding::Finished => 0,
                FlowEnding::Reset => 1,
                FlowEnding::TimedOut => 2,
            };
            flow_message(ENDED, flow).with_sock(how)
        }
    }
}

pub(super) fn with_ends(message: Message, client: SocketAddr, target: SocketAddr) -> Message {
    let mut bytes = [0; 32];
    bytes[..16].copy_from_slice(&octets(client.ip()));
    bytes[16..].copy_from_slice(&octets(target.ip()));
    let message = message.with_sock(u32::from(client.port()) << 16 | u32::from(target.port()));
    // The addresses are exactly as long as the inline payload.
    message.with_bytes(&bytes).unwrap_or(message)
}

pub(super) fn ends_of(message: &Message) -> Option<(SocketAddr, SocketAddr)> {
    let (client, target) = message.bytes().split_first_chunk()?;
    let ports = message.sock();
    let client = SocketAddr::new(address(*client), port(ports >> 16));
    Some((
        client,
        SocketAddr::new(address(*target.first_chunk()?), port(ports)),
    ))
}

pub(super) fn decode_event(message: &Message) -> Option<Event> {
    let flow = StackFlowId::from_bits(message.arg());
    Some(match message.op() {
        OFFERED => {
            let (client, target) = ends_of(message)?;
            Event::Offered {
                flow,
                client,
                target,
            }
        }
        OPEN => Event::Open(flow),
        READABLE => Event::Readable(flow),
        WRITABLE => Event::Writable(flow),
        ENDED => Event::Ended {
            flow,
            ending: match message.sock() {
                0 => FlowEnding::Finished,
                1 => FlowEnding::Reset,
                2 => FlowEnding::TimedOut,
                _ => return None,
            },
        },
        _ => return None,
    })
}

/// Returns the length of a datagram in a buffer.
pub(super) fn datagram_len(payload: usize) -> usize {
    DATAGRAM_HEAD + payload
}

/// Adds to the argument of an answer how many datagrams the stack has dropped so far, modulo 2^32.
pub(super) fn with_dropped(length: u64, dropped: u64) -> u64 {
    length | (dropped << 32)
}

/// Returns the length in the argument of an answer, and the number of dropped datagrams.
pub(super) fn length_and_dropped(argument: u64) -> (u64, u32) {
    let dropped = u32::try_from(argument >> 32).unwrap_or_default();
    (argument & u64::from(u32::MAX), dropped)
}

/// Appends a datagram to the content of a buffer. One that is too long for a packet is left out.
pub(super) fn append_datagram(bytes: &mut Vec<u8>, datagram: &Datagram) {
    let Ok(length) = u16::try_from(datagram.payload.len()) else {
        return;
    };
    for end in [datagram.client, datagram.target] {
        bytes.extend(octets(end.ip()));
        bytes.extend(end.port().to_be_bytes());
    }
    bytes.extend(length.to_be_bytes());
    bytes.extend(&datagram.payload);
}

/// Takes the next datagram from the content of a buffer. Returns `None` at the end, or where no honest process would have
/// ended a datagram.
pub(super) fn next_datagram(bytes: &mut &[u8]) -> Option<Datagram> {
    let (head, rest) = bytes.split_first_chunk::<DATAGRAM_HEAD>()?;
    let (ends, length) = head.split_last_chunk()?;
    let length = usize::from(u16::from_be_bytes(*length));
    let (payload, rest) = rest.split_at_checked(length)?;
    let end = |at: &[u8]| {
        let (ip, port) = at.split_first_chunk()?;
        let port = u16::from_be_bytes(*port.first_chunk()?);
        Some(SocketAddr::new(address(*ip), port))
    };
    *bytes = rest;
    Some(Datagram {
        client: end(&ends[..ADDRESS])?,
        target: end(&ends[ADDRESS..])?,
        payload: payload.to_vec(),
    })
}

/// Encodes an IPv4 address as a mapped IPv6 address. The stack never reports mapped addresses itself.
fn octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

fn address(octets: [u8; 16]) -> IpAddr {
    Ipv6Addr::from(octets).to_canonical()
}

#[expect(clippy::cast_possible_truncation, reason = "two ports in one number")]
fn port(ports: u32) -> u16 {
    ports as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_and_datagrams_arrive_as_they_were_sent() {
        let flow = StackFlowId::from_bits(7 << 32 | 3);
        let v4 = ["192.0.2.1:1", "198.51.100.9:65535"];
        let v6 = ["[2001:db8::1]:443", "[::1]:53"];
        let mut events = vec![
            Event::Open(flow),
            Event::Readable(flow),
            Event::Writable(flow),
        ];
        for ending in [
            FlowEnding::Finished,
            FlowEnding::Reset,
            FlowEnding::TimedOut,
        ] {
            events.push(Event::Ended { flow, ending });
        }
        for [client, target] in [v4, v6] {
            let [client, target] = [client, target].map(|text| text.parse().expect("an address"));
            events.push(Event::Offered {
                flow,
                client,
                target,
            });
            let payloads = [0, 3, 65_535].map(|length| vec![7; length]);
            let datagrams = payloads.map(|payload| Datagram {
                client,
                target,
                payload,
            });
            let mut bytes = Vec::new();
            for datagram in &datagrams {
                append_datagram(&mut bytes, datagram);
            }
            let all = |mut bytes: &[u8]| -> Vec<_> {
                std::iter::from_fn(|| next_datagram(&mut bytes)).collect()
            };
            assert_eq!(all(&bytes), datagrams);
            assert_eq!(all(&bytes[..bytes.len() - 1]), datagrams[..2]);
            let refused = with_ends(Message::new(REFUSE_DATAGRAM), client, target);
            assert_eq!(ends_of(&refused), Some((client, target)));
        }
        for event in events {
            assert_eq!(decode_event(&encode_event(event)), Some(event));
        }
    }

    #[test]
    fn messages_that_are_not_events_are_rejected() {
        assert_eq!(decode_event(&Message::new(9)), None);
        assert_eq!(decode_event(&Message::new(OFFERED)), None);
        assert_eq!(decode_event(&Message::new(ENDED).with_sock(3)), None);
    }
}
