//! UDP to one port is delivered and answered; UDP to other ports is refused.

use quictun_netstack::{Config, Counters, Datagram, Event, HEADER, Offload, Stack, StackUsage};

use crate::offload::{fold, sum};
use crate::simulation::{base, buffer};

/// Addresses of a program and of a name server, for IPv4 and IPv6.
const PAIRS: [[&str; 2]; 2] = [
    ["10.0.0.2:4000", "203.0.113.53:53"],
    ["[fd00::2]:4000", "[2001:db8::53]:53"],
];

fn stack() -> Stack {
    let config = Config {
        datagram_port: Some(53),
        ..Config::default()
    };
    Stack::new(config, 1, base()).unwrap()
}

fn datagram([client, target]: [&str; 2], length: usize) -> Datagram {
    Datagram {
        client: client.parse().unwrap(),
        target: target.parse().unwrap(),
        payload: (0..=255).cycle().take(length).collect(),
    }
}

/// Returns all frames that a stack sends.
fn sent(stack: &mut Stack) -> Vec<Vec<u8>> {
    let mut buffer = buffer();
    let mut all = Vec::new();
    while let Some(length) = stack.poll_transmit(base(), &mut buffer) {
        all.push(buffer[..length].to_vec());
    }
    all
}

/// Returns the frame in which a program would send the datagram, made by a stack that sends in the opposite direction.
fn frame(datagram: &Datagram) -> Vec<u8> {
    let mut stack = stack();
    stack.send_datagram(&Datagram {
        client: datagram.target,
        target: datagram.client,
        payload: datagram.payload.clone(),
    });
    sent(&mut stack).remove(0)
}

/// Returns the offset of the UDP header in a frame.
fn udp(frame: &[u8]) -> usize {
    HEADER + if frame[HEADER] >> 4 == 4 { 20 } else { 40 }
}

/// Passes frames to a stack and checks that none is delivered.
fn refused(frames: &[Vec<u8>]) -> Counters {
    let mut stack = stack();
    for frame in frames {
        stack.handle_frame(base(), &mut frame.clone());
    }
    assert_eq!(stack.poll_datagram(), None);
    assert_eq!(stack.usage(), StackUsage::default());
    stack.counters()
}

#[test]
fn a_datagram_to_the_port_is_delivered_and_its_answer_returned() {
    for pair in PAIRS {
        for length in [0, 1, 30, 4096] {
            let asked = datagram(pair, length);
            let frame = frame(&asked);
            let at = udp(&frame);
            let addresses = &frame[HEADER + if at == HEADER + 20 { 12 } else { 8 }..at];
            let covered = sum(addresses) + 17 + (frame.len() - at) as u64;
            assert_eq!(fold(covered + sum(&frame[at..])), 0xffff, "wrong checksum");
            let mut stack = stack();
            stack.handle_frame(base(), &mut frame.clone());
            assert_eq!(stack.poll_datagram(), Some(asked));
            assert_eq!(stack.poll_datagram(), None);
        }
    }
}

#[test]
fn a_checksum_is_verified_unless_it_is_left_to_the_device() {
    for pair in PAIRS {
        let asked = datagram(pair, 100);
        let good = frame(&asked);
        let at = udp(&good);
        let mut wrong = good.clone();
        wrong[at + 20] ^= 1;
        assert_eq!(refused(&[wrong.clone()]).bad_checksums, 1);
        let header = |start: usize, offset: u16| {
            let offload = Offload {
                checksum: quictun_netstack::Checksum::Partial {
                    start: u16::try_from(start - HEADER).unwrap(),
                    offset,
                },
                segment: None,
            };
            [offload.to_bytes().as_slice(), &wrong[HEADER..]].concat()
        };
        let mut stack = stack();
        stack.handle_frame(base(), &mut header(at, 6));
        assert!(stack.poll_datagram().is_some());
        assert_eq!(refused(&[header(at, 16), header(at - 4, 6)]).malformed, 2);
        // A datagram without a checksum, which only IPv4 allows.
        let mut none = good;
        none[at + 6..at + 8].fill(0);
        let mut stack = self::stack();
        stack.handle_frame(base(), &mut none);
        assert_eq!(stack.poll_datagram().is_some(), at == HEADER + 20);
    }
}

#[test]
fn datagrams_to_other_ports_too_long_or_broken_are_refused() {
    for [client, target] in PAIRS {
        let mut other = datagram([client, target], 10);
        other.target.set_port(54);
        let other = frame(&other);
        assert_eq!(refused(&[other]).not_tcp, 1);
        assert_eq!(
            refused(&[frame(&datagram([client, target], 4097))]).oversized,
            1
        );
        let good = frame(&datagram([client, target], 10));
        let cuts = (HEADER..good.len()).map(|length| good[..length].to_vec());
        let cuts: Vec<_> = cuts.collect();
        assert_eq!(refused(&cuts).malformed, cuts.len() as u64);
        let mut short = good;
        let at = udp(&short);
        short[at + 5] = 7;
        assert_eq!(refused(&[short]).malformed, 1);
    }
}

#[test]
fn without_a_port_all_datagrams_are_refused_and_unfetched_ones_are_dropped() {
    let frame = frame(&datagram(PAIRS[0], 10));
    let mut deaf = Stack::new(Config::default(), 1, base()).unwrap();
    deaf.handle_frame(base(), &mut frame.clone());
    assert_eq!(deaf.poll_datagram(), None);
    assert_eq!(deaf.counters().not_tcp, 1);
    let mut stack = stack();
    for _ in 0..257 {
        stack.handle_frame(base(), &mut frame.clone());
        stack.send_datagram(&datagram(PAIRS[0], 10));
    }
    assert_eq!(stack.counters().datagrams_dropped, 2);
    assert_eq!(sent(&mut stack).len(), 256);
    assert_eq!(std::iter::from_fn(|| stack.poll_datagram()).count(), 256);
    // One byte more than fits into a packet.
    for (pair, room) in [(PAIRS[0], 65_507), (PAIRS[1], 65_487)] {
        for length in [room, room + 1] {
            stack.send_datagram(&datagram(pair, length));
            assert_eq!(sent(&mut stack).len(), usize::from(length == room));
        }
    }
}

// NETSTACK.md, the command of `quictun run`.
#[test]
fn a_refused_datagram_is_answered_with_an_icmp_error_and_reported_once() {
    for served in [Some(53), None] {
        for [client, target] in PAIRS {
            let config = Config {
                datagram_port: served,
                ..Config::default()
            };
            let mut stack = Stack::new(config, 1, base()).unwrap();
            let mut other = datagram([client, target], 1000);
            other.target.set_port(443);
            let frame = frame(&other);
            for _ in 0..2 {
                stack.handle_frame(base(), &mut frame.clone());
            }
            let (client, target) = (other.client, other.target);
            let refused = Some(Event::DatagramRefused { client, target });
            assert_eq!((stack.poll_event(), stack.poll_event()), (refused, None));
            let answers = sent(&mut stack);
            assert_eq!(answers.len(), 2);
            let (at, quoted) = (udp(&frame), &frame[HEADER..udp(&frame) + 8]);
            let answer = &answers[0];
            let (icmp, is_v4) = (&answer[at..], at == HEADER + 20);
            assert_eq!(icmp[..2], if is_v4 { [3, 3] } else { [1, 4] });
            assert_eq!(icmp[4..8], [0; 4]);
            assert_eq!(&icmp[8..], quoted);
            // The answer comes from the target.
            let addresses = if is_v4 { 12 } else { 8 };
            let (from, to) = answer[HEADER + addresses..at].split_at(if is_v4 { 4 } else { 16 });
            let (sender, receiver) = frame[HEADER + addresses..at].split_at(from.len());
            assert_eq!((from, to), (receiver, sender));
            let pseudo = if is_v4 {
                0
            } else {
                sum(&answer[HEADER + 8..at]) + 58 + icmp.len() as u64
            };
            assert_eq!(fold(pseudo + sum(icmp)), 0xffff, "wrong checksum");
        }
    }
}
