//! UDP is delivered, answered and refused.

use std::time::Duration;

use quictun_netstack::check::fragments;
use quictun_netstack::{Config, Counters, Datagram, HEADER, Offload, Stack, StackUsage};

use crate::offload::{fold, sum};
use crate::simulation::{base, buffer};

/// Addresses of a program and of a name server, for IPv4 and IPv6.
const PAIRS: [[&str; 2]; 2] = [
    ["10.0.0.2:4000", "203.0.113.53:53"],
    ["[fd00::2]:4000", "[2001:db8::53]:53"],
];

fn stack() -> Stack {
    Stack::new(Config::default(), 1, base()).unwrap()
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
fn a_datagram_is_delivered_and_its_answer_returned() {
    for pair in PAIRS {
        for length in [0, 1, 30, 4096, 65_487] {
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
fn broken_datagrams_are_refused() {
    for pair in PAIRS {
        let good = frame(&datagram(pair, 10));
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
fn datagrams_that_are_not_taken_are_dropped_beyond_a_limit() {
    for length in [0, 10, 60_000] {
        let asked = datagram(PAIRS[0], length);
        let frame = frame(&asked);
        let mut stack = stack();
        let (mut given, mut last) = (0, 0);
        while last == stack.counters().datagrams_dropped {
            last = stack.counters().datagrams_dropped;
            stack.handle_frame(base(), &mut frame.clone());
            given += 1;
        }
        let kept = std::iter::from_fn(|| stack.poll_datagram()).count();
        assert_eq!(kept, given - 1);
        assert!(kept * (length + 128) <= 1 << 20 && (kept + 1) * (length + 128) > 1 << 20);
        // The same limit holds for answers, and there is room again once they have left.
        for _ in 0..2 {
            for _ in 0..10_000 {
                stack.send_datagram(&asked);
            }
            let sent = sent(&mut stack).len();
            assert!(sent > 0 && sent <= kept, "{sent} of {length} bytes");
        }
        stack.handle_frame(base(), &mut frame.clone());
        assert_eq!(stack.next_datagram_len(), Some(length));
    }
}

#[test]
fn the_longest_answer_fits_into_a_packet() {
    for (pair, room) in [(PAIRS[0], 65_507), (PAIRS[1], 65_487)] {
        for length in [room, room + 1] {
            let mut stack = stack();
            stack.send_datagram(&datagram(pair, length));
            assert_eq!(sent(&mut stack).len(), usize::from(length == room));
        }
    }
}

#[test]
fn fragments_in_order_are_joined() {
    for pair in PAIRS {
        for (length, size) in [(60_000, 1480), (65_480, 8), (1, 8), (1500, 1448)] {
            let asked = datagram(pair, length);
            let mut stack = stack();
            // Another program sends at the same time.
            let other = datagram(pair, length + 1);
            let frames = [(&asked, 7), (&other, 8)];
            let [one, two] = frames.map(|(it, id)| fragments(&frame(it), size, id));
            for number in 0..one.len().max(two.len()) {
                for frames in [&one, &two] {
                    if let Some(frame) = frames.get(number) {
                        stack.handle_frame(base(), &mut frame.clone());
                    }
                }
            }
            let mut came: Vec<_> = std::iter::from_fn(|| stack.poll_datagram()).collect();
            came.sort_by_key(|it| it.payload.len());
            assert_eq!(came, [asked, other], "{length} in {size}");
        }
    }
}

#[test]
fn fragments_that_overlap_miss_contradict_or_are_late_make_no_datagram() {
    for pair in PAIRS {
        let whole = fragments(&frame(&datagram(pair, 4000)), 1000, 7);
        let order = |order: &[usize]| {
            let frames: Vec<_> = order.iter().map(|at| whole[*at].clone()).collect();
            refused(&frames)
        };
        for missing in [
            &[1, 2, 3, 4][..],
            &[0, 2, 3, 4],
            &[0, 1, 1, 2, 3, 4],
            &[0, 1, 3, 2, 4],
        ] {
            assert!(order(missing).fragments > 0, "{missing:?}");
        }
        // The same number from another host.
        let mut mixed = whole.clone();
        let [client, target] = pair;
        let host = client.replace("2]:", "3]:").replace("0.2:", "0.3:");
        mixed[2] = fragments(&frame(&datagram([&host, target], 4000)), 1000, 7).remove(2);
        assert_eq!(refused(&mixed).fragments, 3);
        // Another end than that of the checksum.
        let mut altered = whole.clone();
        let at = altered[4].len() - 1;
        altered[4][at] ^= 1;
        assert_eq!(refused(&altered).bad_checksums, 1);
        let mut late = stack();
        for (number, frame) in whole.iter().enumerate() {
            let waited = Duration::from_secs(if number < 2 { 0 } else { 2 });
            late.handle_frame(base() + waited, &mut frame.clone());
        }
        assert_eq!((late.poll_datagram(), late.counters().fragments), (None, 3));
        // A datagram begins anew under its number.
        let mut again = stack();
        for frame in whole[..2].iter().chain(&whole) {
            again.handle_frame(base(), &mut frame.clone());
        }
        assert_eq!(again.poll_datagram(), Some(datagram(pair, 4000)));
    }
}

#[test]
fn the_oldest_datagrams_that_never_become_whole_give_way() {
    let first = |id| fragments(&frame(&datagram(PAIRS[0], 4000)), 1000, id);
    let mut stack = stack();
    for id in 0..17 {
        stack.handle_frame(base(), &mut first(id)[0].clone());
    }
    for id in [0, 16] {
        for frame in &first(id)[1..] {
            stack.handle_frame(base(), &mut frame.clone());
        }
        assert_eq!(stack.poll_datagram().is_some(), id == 16, "{id}");
    }
}

#[test]
fn a_refused_datagram_is_answered_with_an_icmp_error() {
    for [client, target] in PAIRS {
        let mut stack = stack();
        let asked = datagram([client, target], 0);
        let frame = frame(&asked);
        stack.refuse_datagram(base(), asked.client, asked.target);
        let answers = sent(&mut stack);
        assert_eq!(answers.len(), 1);
        let (at, answer) = (udp(&frame), &answers[0]);
        let (icmp, is_v4) = (&answer[at..], at == HEADER + 20);
        assert_eq!(icmp[..2], if is_v4 { [3, 3] } else { [1, 4] });
        assert_eq!(icmp[4..8], [0; 4]);
        // The headers of an empty datagram, with the ports and without the checksum.
        let (quoted, checksum) = icmp[8..].split_at(icmp.len() - 8 - 2);
        assert_eq!(quoted, &frame[HEADER..at + 6]);
        assert_eq!(checksum, [0, 0]);
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

// RFC 4443 section 2.4 (f).
#[test]
fn the_number_of_icmp_errors_is_limited() {
    let mut stack = stack();
    let asked = datagram(PAIRS[1], 0);
    let mut refuse = |ms: u64, times: usize| {
        let now = base() + Duration::from_millis(ms);
        for _ in 0..times {
            stack.refuse_datagram(now, asked.client, asked.target);
        }
        (sent(&mut stack).len(), stack.counters().replies_dropped)
    };
    assert_eq!(refuse(0, 51), (50, 1));
    assert_eq!(refuse(3, 5), (3, 3));
    assert_eq!(refuse(10_000, 60), (50, 13));
}
