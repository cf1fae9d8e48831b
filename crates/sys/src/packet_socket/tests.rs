use std::time::{Duration, Instant, SystemTime};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::*;
use crate::{CableEnd, NetNamespace, Network};
use quictun_skip::as_own_root;

/// Opens a packet socket on either end of a cable. `None` if the test ran in a child process that may make devices, or
/// if no process may.
fn ends(test: &str) -> Option<[PacketSocket; 2]> {
    let Ok(namespace) = NetNamespace::new() else {
        as_own_root(&format!("packet_socket::tests::{test}"));
        return None;
    };
    let open = || {
        let end = |name, mac| CableEnd { name, mac };
        let (here, there) = (end("a0", [2, 0, 0, 0, 0, 1]), end("b0", [2, 0, 0, 0, 0, 2]));
        Network::open()?.add_cable(here, there, &NetNamespace::current()?)?;
        for device in ["a0", "b0"] {
            crate::set_sysctl(&format!("net/ipv6/conf/{device}/disable_ipv6"), "1")?;
            Network::open()?.set_up(device)?;
        }
        Ok([PacketSocket::open("a0")?, PacketSocket::open("b0")?])
    };
    Some(namespace.within(open).expect("a cable"))
}

/// Receives the next frame, with a deadline.
fn next(socket: &PacketSocket, room: usize) -> (Reception, Vec<u8>) {
    let mut buffer = vec![0; room];
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let got = socket.receive(&mut buffer).expect("the device is up");
        if got != Reception::Nothing {
            return (got, buffer);
        }
        assert!(Instant::now() < deadline, "no frame came");
        let second = Timespec {
            tv_sec: 1,
            tv_nsec: 0,
        };
        poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&second)).expect("a socket");
    }
}

fn frame(kind: u16, length: usize) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
    frame.extend(kind.to_be_bytes());
    frame.extend((0..=255).cycle().take(length));
    frame
}

#[test]
fn a_frame_arrives_as_it_was_sent_and_only_at_the_other_end() {
    let Some([a, b]) = ends("a_frame_arrives_as_it_was_sent_and_only_at_the_other_end") else {
        return;
    };
    let sent = frame(0x88b5, 500);
    let since_1970 = || SystemTime::UNIX_EPOCH.elapsed().expect("later than 1970");
    let before = since_1970();
    let (head, rest) = sent.split_at(70);
    a.send(VnetHeader::default(), [head, rest]).expect("room");
    let (Reception::Frame { header, at, stamp }, buffer) = next(&b, 2000) else {
        panic!("a frame");
    };
    assert_eq!(header.gso_type, VnetHeader::GSO_NONE);
    assert_eq!(buffer[at], sent);
    let stamp = stamp.expect("Linux stamps");
    assert!((before..=since_1970()).contains(&stamp));
    assert_eq!(a.receive(&mut [0; 2000]).expect("up"), Reception::Nothing);
    assert_eq!(b.drops().expect("counters"), PacketDrops::default());
}

#[test]
fn a_tag_that_the_kernel_took_away_is_put_back() {
    let Some([a, b]) = ends("a_tag_that_the_kernel_took_away_is_put_back") else {
        return;
    };
    let sent = frame(0x8100, 300);
    a.send(VnetHeader::default(), [&sent, &[]]).expect("room");
    let (Reception::Frame { at, .. }, buffer) = next(&b, 2000) else {
        panic!("a frame");
    };
    assert_eq!(buffer[at], sent);
}

#[test]
fn a_frame_that_does_not_fit_is_lost_and_the_next_one_is_not() {
    let Some([a, b]) = ends("a_frame_that_does_not_fit_is_lost_and_the_next_one_is_not") else {
        return;
    };
    for length in [1000, 100] {
        let sent = frame(0x88b5, length);
        a.send(VnetHeader::default(), [&sent, &[]]).expect("room");
    }
    assert_eq!(next(&b, PacketSocket::HEADROOM + 1013).0, Reception::Lost);
    let (Reception::Frame { at, .. }, _) = next(&b, PacketSocket::HEADROOM + 114) else {
        panic!("a frame");
    };
    assert_eq!(at.len(), 114);
}

#[test]
fn a_missing_interface_is_an_error() {
    let Some(_) = ends("a_missing_interface_is_an_error") else {
        return;
    };
    assert!(PacketSocket::open("no-such-device").is_err());
}

#[test]
fn device_drops_are_read_from_their_columns() {
    let text = "Inter-|   Receive   |  Transmit\n face |bytes packets errs drop\n\
                  a0: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n a: 0 0 0 0\n";
    assert_eq!(device_drops(text, "a0"), Some([4, 12]));
    assert_eq!(device_drops(text, "a"), None, "cut short");
    assert_eq!(device_drops(text, "b0"), None);
}
