use std::time::{Duration, Instant};

use super::*;
use crate::poller::{Key, Poller, WaitPlan};

const SOON: Duration = Duration::from_secs(20);

fn port(address: &str) -> (UdpPort, SocketAddr) {
    let socket = bind(address.parse().expect("an address"), false).expect("a port");
    let address = socket.local_addr().expect("a bound socket");
    (
        UdpPort::new(socket, 1 << 20, true).expect("options"),
        address,
    )
}

/// Makes a batch as an engine would.
fn batch(to: SocketAddr, size: usize, segment: Option<usize>) -> (Datagrams, Vec<u8>) {
    let datagrams = Datagrams {
        destination: to,
        source: None,
        ecn: None,
        size,
        segment_size: segment,
    };
    let bytes = (0..=250).cycle().take(size).collect();
    (datagrams, bytes)
}

/// Receives until there are `count` datagrams.
fn receive(port: &mut UdpPort, count: usize) -> Vec<ReceivedDatagram> {
    let mut poller = Poller::new().expect("a poller");
    poller
        .add_input(&*port, Key::Udp)
        .expect("watching the port");
    let (until, mut ready) = (Instant::now() + SOON, Vec::new());
    let mut all = Vec::new();
    while all.len() < count {
        poller
            .wait(Some(until), WaitPlan::default(), &mut ready)
            .expect("epoll waits");
        assert!(!ready.is_empty(), "{} of {count} arrived", all.len());
        while port
            .receive(&mut |datagram| all.push(datagram))
            .expect("a readable socket")
        {}
    }
    all
}

#[test]
fn renewal_moves_to_another_ephemeral_port() {
    let ((mut from, before), (mut to, target)) = (port("127.0.0.1:0"), port("127.0.0.1:0"));
    let (datagrams, bytes) = batch(target, 100, None);
    // The system may choose the same port again, but not every time.
    let ports = [0; 4].map(|_| {
        from.renew().expect("a socket can be disconnected");
        assert_ne!(from.send(&datagrams, &bytes), SendOutcome::Full);
        let remote = receive(&mut to, 1)[0].remote;
        assert_eq!(remote.ip(), before.ip());
        let (answer, bytes) = batch(remote, 100, None);
        assert_ne!(to.send(&answer, &bytes), SendOutcome::Full);
        assert_eq!(receive(&mut from, 1)[0].remote, target);
        remote.port()
    });
    assert!(ports.iter().any(|&port| port != before.port()), "{ports:?}");
}

#[test]
fn a_batch_arrives_as_its_datagrams() {
    let ((mut from, sender), (mut to, target)) = (port("127.0.0.1:0"), port("127.0.0.1:0"));
    let (datagrams, bytes) = batch(target, 250, Some(100));
    assert_ne!(from.send(&datagrams, &bytes), SendOutcome::Full);
    let all = receive(&mut to, 3);
    let parts: Vec<&[u8]> = all.iter().map(|datagram| &datagram.data[..]).collect();
    assert_eq!(parts, bytes.chunks(100).collect::<Vec<_>>());
    for datagram in all {
        assert_eq!(datagram.remote, sender);
        assert_eq!(datagram.local_ip, Some(target.ip()));
    }
}

#[test]
fn a_dual_stack_socket_reports_ipv4_peers_as_ipv4() {
    let socket = bind("[::]:0".parse().expect("an address"), false).expect("a socket");
    let local = socket.local_addr().expect("a bound socket");
    let mut both = UdpPort::new(socket, 1 << 20, true).expect("options");
    let (mut four, target) = port("127.0.0.1:0");
    let (datagrams, bytes) = batch(target, 10, None);
    assert_eq!(both.send(&datagrams, &bytes), SendOutcome::Done);
    let came = receive(&mut four, 1);
    assert_eq!(came[0].remote, (Ipv4Addr::LOCALHOST, local.port()).into());
    let (datagrams, bytes) = batch(came[0].remote, 10, None);
    assert_eq!(four.send(&datagrams, &bytes), SendOutcome::Done);
    let back = receive(&mut both, 1);
    assert_eq!(back[0].remote, target);
    assert_eq!(back[0].local_ip, Some(Ipv4Addr::LOCALHOST.into()));
}

#[test]
fn a_batch_that_the_kernel_cannot_segment_is_sent_as_single_datagrams() {
    /// More segments than any kernel takes in one call.
    const PIECES: usize = 200;
    let ((mut from, _), (mut to, target)) = (port("127.0.0.1:0"), port("127.0.0.1:0"));
    let (datagrams, bytes) = batch(target, PIECES, Some(1));
    assert_eq!(from.send(&datagrams, &bytes), SendOutcome::Unsegmented);
    assert!(!from.segments());
    let report = from.report();
    assert_eq!(
        (report.gso, report.gso_fallbacks, report.send_errors),
        (false, 1, 0)
    );
    let all = receive(&mut to, PIECES);
    assert!(all.iter().all(|datagram| datagram.data.len() == 1));
}

#[test]
fn a_batch_that_has_no_route_does_not_end_segmentation() {
    let (mut from, _) = port("127.0.0.1:0");
    let (datagrams, bytes) = batch("192.0.2.1:0".parse().expect("an address"), 250, Some(100));
    assert_eq!(from.send(&datagrams, &bytes), SendOutcome::Done);
    assert!(from.segments());
    let report = from.report();
    assert_eq!((report.gso_fallbacks, report.send_errors), (0, 3));
}

#[test]
fn a_datagram_that_cannot_be_sent_is_lost_and_counted() {
    let (mut from, _) = port("127.0.0.1:0");
    let (datagrams, bytes) = batch("192.0.2.1:0".parse().expect("an address"), 10, None);
    assert_eq!(from.send(&datagrams, &bytes), SendOutcome::Done);
    assert_eq!(from.report().send_errors, 1);
}

#[test]
fn a_datagram_belongs_to_the_worker_that_its_connection_id_names() {
    let short = |worker| [0x40, worker, 0, 0, 0, 0, 0, 0, 0];
    for (worker, me, workers, expected) in [
        (3, 0, 4, Some(3)),
        (0, 3, 4, Some(0)),
        (3, 3, 4, None),
        // The named worker does not exist, so the receiving worker handles the datagram.
        (4, 0, 4, None),
        (3, 0, 1, None),
    ] {
        let other = other_worker(&short(worker), me, workers);
        assert_eq!(other, expected, "{worker} at {me} of {workers}");
    }
    assert_eq!(other_worker(&[], 0, 4), None);
    // The bond of a worker that a previous process had. Other packets that name no worker stay: a stateless reset does.
    let mut routed = vec![0; 30];
    (routed[0], routed[5], routed[6]) = (0xc0, 18, 7);
    assert_eq!(other_worker(&routed, 0, 4), Some(3));
    assert_eq!(other_worker(&routed, 3, 4), None);
    assert_eq!(other_worker(&routed, 0, 1), None);
}
