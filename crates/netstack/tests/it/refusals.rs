//! Refused frames: each kind is counted, and none has an effect.

use quictun_netstack::{
    Config, ConfigError, Counters, HEADER, MAX_PACKET, Offload, Stack, StackUsage,
};

use crate::raw::{RawSegment, SYN, take};
use crate::simulation::{base, v4, v6};

fn client4() -> std::net::SocketAddr {
    "10.0.0.2:4000".parse().unwrap()
}

fn client6() -> std::net::SocketAddr {
    "[fd00::2]:4000".parse().unwrap()
}

/// Passes frames to an unused stack and checks that none has an effect.
fn refused(frames: &[Vec<u8>]) -> Counters {
    let now = base();
    let mut stack = Stack::new(Config::default(), 1, now).unwrap();
    for frame in frames {
        stack.handle_frame(now, &mut frame.clone());
    }
    assert_eq!(stack.usage(), StackUsage::default());
    assert_eq!(stack.poll_event(), None);
    assert_eq!(take(&mut stack, now).len(), 0);
    assert_eq!(stack.counters().received, frames.len() as u64);
    stack.counters()
}

fn framed(packet: &[u8]) -> Vec<u8> {
    [Offload::default().to_bytes().as_slice(), packet].concat()
}

/// The unmodified SYNs, from which the other tests derive their frames, are valid.
#[test]
fn a_good_syn_is_offered() {
    for (from, to) in [(client4(), v4()), (client6(), v6())] {
        let now = base();
        let mut stack = Stack::new(Config::default(), 1, now).unwrap();
        stack.handle_frame(now, &mut RawSegment::new(from, to, SYN).frame());
        assert_eq!(stack.counters().offered, 1);
        // Padding after the packet is not part of it.
        let mut padded = RawSegment::new(from, v4_or_6(to, 80), SYN).frame();
        padded.extend([0; 20]);
        stack.handle_frame(now, &mut padded);
        assert_eq!(stack.counters().offered, 2);
    }
}

fn v4_or_6(mut to: std::net::SocketAddr, port: u16) -> std::net::SocketAddr {
    to.set_port(port);
    to
}

#[test]
fn a_packet_that_is_cut_anywhere_is_malformed() {
    for (from, to) in [(client4(), v4()), (client6(), v6())] {
        let frame = RawSegment::new(from, to, SYN).frame();
        let cuts: Vec<_> = (0..frame.len())
            .map(|length| frame[..length].to_vec())
            .collect();
        assert_eq!(refused(&cuts).malformed, cuts.len() as u64);
    }
}

#[test]
fn lengths_that_contradict_each_other_are_malformed() {
    let good = RawSegment::new(client4(), v4(), SYN).packet();
    let with = |at: usize, value: u8| {
        let mut packet = good.clone();
        packet[at] = value;
        framed(&packet)
    };
    let six = RawSegment::new(client6(), v6(), SYN).packet();
    let six_with = |at: usize, value: u8| {
        let mut packet = six.clone();
        packet[at] = value;
        framed(&packet)
    };
    let frames = [
        with(0, 0x44),
        with(0, 0x4f),
        with(0, 0x55),
        with(2, 0xff),
        with(3, 19),
        with(32, 0x40),
        with(32, 0xf0),
        six_with(4, 1),
        six_with(5, 0),
        six_with(5, 19),
        six_with(52, 0x60),
    ];
    let counters = refused(&frames);
    assert_eq!(
        counters.malformed + counters.bad_checksums,
        frames.len() as u64
    );
    assert!(counters.malformed >= 9, "{counters:?}");
}

#[test]
fn the_devices_offload_header_must_match_the_packet() {
    let packet = RawSegment::new(client4(), v4(), SYN).packet();
    let with = |header: [u8; HEADER]| [header.as_slice(), &packet].concat();
    let [n0, n1] = 1u16.to_ne_bytes();
    let [t0, t1] = 20u16.to_ne_bytes();
    let [c0, c1] = 16u16.to_ne_bytes();
    let frames = [
        // Segmentation for IPv6; a segment size of 0; checksums with a wrong start or offset.
        with([1, 4, 0, 40, n0, n1, t0, t1, c0, c1]),
        with([1, 1, 0, 40, 0, 0, t0, t1, c0, c1]),
        with([1, 0, 0, 0, 0, 0, n0, n1, c0, c1]),
        with([1, 0, 0, 0, 0, 0, t0, t1, n0, n1]),
    ];
    assert_eq!(refused(&frames).malformed, 4);
    // UDP segmentation is not TCP.
    assert_eq!(
        refused(&[with([1, 5, 0, 28, n0, n1, t0, t1, c0, c1])]).not_tcp,
        1
    );
}

#[test]
fn fragments_other_protocols_and_giants_are_counted() {
    let fragment = |bits: u8, low: u8| {
        let mut packet = RawSegment::new(client4(), v4(), SYN).packet();
        packet[6] = bits;
        packet[7] = low;
        resum(&mut packet);
        framed(&packet)
    };
    assert_eq!(
        refused(&[fragment(0x20, 0), fragment(0, 1), fragment(0x1f, 0xff)]).fragments,
        3
    );
    let mut six = RawSegment::new(client6(), v6(), SYN).packet();
    (six[6], six[40]) = (44, 6);
    assert_eq!(refused(&[framed(&six)]).fragments, 1);
    let mut four = RawSegment::new(client4(), v4(), SYN).packet();
    four[9] = 1;
    resum(&mut four);
    six[6] = 58;
    assert_eq!(refused(&[framed(&four), framed(&six)]).not_tcp, 2);
    let mut giant = RawSegment::new(client6(), v6(), SYN).frame();
    giant.resize(HEADER + MAX_PACKET + 1, 0);
    assert_eq!(refused(&[giant]).oversized, 1);
}

fn resum(packet: &mut [u8]) {
    packet[10..12].fill(0);
    let sum = !crate::offload::fold(crate::offload::sum(&packet[..20]));
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
}

#[test]
fn a_wrong_checksum_is_accepted_only_if_the_device_has_verified_it() {
    let mut packet = RawSegment::new(client4(), v4(), SYN).packet();
    packet[36] ^= 1;
    let mut header = packet.clone();
    header[36] ^= 1;
    header[10] ^= 1;
    assert_eq!(
        refused(&[framed(&packet), framed(&header)]).bad_checksums,
        2
    );
    let now = base();
    let mut stack = Stack::new(Config::default(), 1, now).unwrap();
    let vouched = [[2, 0, 0, 0, 0, 0, 0, 0, 0, 0].as_slice(), &packet].concat();
    stack.handle_frame(now, &mut vouched.clone());
    assert_eq!(stack.counters().offered, 1);
}

#[test]
fn addresses_that_no_host_can_have_are_spoofed() {
    let pairs = [
        ("0.0.0.0:4000", "203.0.113.9:80"),
        ("127.0.0.1:4000", "203.0.113.9:80"),
        ("224.0.0.1:4000", "203.0.113.9:80"),
        ("255.255.255.255:4000", "203.0.113.9:80"),
        ("10.0.0.2:0", "203.0.113.9:80"),
        ("10.0.0.2:4000", "203.0.113.9:0"),
        ("10.0.0.2:4000", "224.0.0.1:80"),
        ("10.0.0.2:4000", "127.0.0.1:80"),
        ("10.0.0.2:80", "10.0.0.2:80"),
        ("[::]:4000", "[2001:db8::9]:80"),
        ("[::1]:4000", "[2001:db8::9]:80"),
        ("[ff02::1]:4000", "[2001:db8::9]:80"),
        ("[::ffff:10.0.0.2]:4000", "[2001:db8::9]:80"),
        ("[fd00::2]:4000", "[ff02::1]:80"),
    ];
    let frames: Vec<_> = pairs
        .iter()
        .map(|(from, to)| RawSegment::new(from.parse().unwrap(), to.parse().unwrap(), SYN).frame())
        .collect();
    assert_eq!(refused(&frames).spoofed, pairs.len() as u64);
}

#[test]
fn limits_are_checked_at_the_limit_and_beyond() {
    let ok = Config::default();
    let check = |change: fn(&mut Config)| {
        let mut config = ok.clone();
        change(&mut config);
        config.check()
    };
    assert_eq!(check(|_| ()), Ok(()));
    assert_eq!(check(|c| c.mtu = 1280), Ok(()));
    assert_eq!(check(|c| c.mtu = 1279), Err(ConfigError::Mtu(1279)));
    assert_eq!(check(|c| c.mtu = 65_535), Ok(()));
    assert_eq!(check(|c| c.mtu = 65_536), Err(ConfigError::Mtu(65_536)));
    assert_eq!(check(|c| c.window = 65_536), Ok(()));
    assert_eq!(
        check(|c| c.window = 65_537),
        Err(ConfigError::Window(65_537))
    );
    assert_eq!(
        check(|c| c.window = 32_768),
        Err(ConfigError::Window(32_768))
    );
    assert_eq!(check(|c| c.memory = 1 << 20), Ok(()));
    assert!(check(|c| c.memory = (1 << 20) - 1).is_err());
    assert_eq!(check(|c| c.max_flows = 1 << 20), Ok(()));
    assert!(check(|c| c.max_flows = (1 << 20) + 1).is_err());
    assert!(check(|c| c.max_opening = 0).is_err());
}
