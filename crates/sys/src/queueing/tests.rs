use super::*;
use crate::network::CableEnd;
use crate::network::tests::namespaces;
use std::net::UdpSocket;

const BUCKET: TokenBucket = TokenBucket {
    // The rate does not fit into 32 bits.
    rate: 5_000_000_000,
    overhead: 24,
    burst: 100_000,
    limit: 1_000_000,
};

#[test]
fn a_shaped_device_counts_sent_and_dropped_packets() {
    let name = "queueing::tests::a_shaped_device_counts_sent_and_dropped_packets";
    let Some((a, b)) = namespaces(name) else {
        return;
    };
    let end = |name, last| CableEnd {
        name,
        mac: [2, 0, 0, 0, 0, last],
    };
    let (here, there) = (end("a0", 1), end("b0", 2));
    // One packet per second, and room for one more: of ten packets, one leaves and eight are dropped.
    let slow = TokenBucket {
        rate: 2000,
        burst: 2000,
        limit: 1100,
        ..BUCKET
    };
    a.within(|| {
        let mut network = Network::open()?;
        network.add_cable(here, there, &b)?;
        network.shape("a0", None, Some(&slow))?;
        let twice = network.shape("a0", None, Some(&slow)).expect_err("twice");
        assert_eq!(twice.kind(), io::ErrorKind::AlreadyExists, "{twice}");
        network.add_address("a0", "100.64.9.1".parse().expect("an address"), 24)?;
        Ok(())
    })
    .expect("a cable");
    b.within(|| Network::open()?.set_up("b0"))
        .expect("the other end");
    a.within(|| {
        // Set the device up last: the kernel notices only after a while that the other end is up, and drops packets
        // until then.
        let mut network = Network::open()?;
        network.set_up("a0")?;
        let to = "100.64.9.2".parse().expect("an address");
        network.add_neighbour("a0", to, there.mac)?;
        let socket = UdpSocket::bind("100.64.9.1:0")?;
        for _ in 0..10 {
            socket.send_to(&[0; 958], "100.64.9.2:9")?;
        }
        let found = Network::open()?.disciplines("a0")?;
        let [bucket] = &found[..] else {
            panic!("{found:?}");
        };
        assert_eq!(bucket.kind, "tbf");
        // Each packet has 958 + 8 + 20 + 14 bytes. IPv6 may have sent something, too.
        assert!((1..=2).contains(&(bucket.bytes / 1000)), "{bucket:?}");
        assert!((1..=3).contains(&bucket.packets), "{bucket:?}");
        assert!((7..=9).contains(&bucket.dropped), "{bucket:?}");
        Ok(())
    })
    .expect("the counters");
}

#[test]
fn missing_devices_and_disciplines_are_not_found() {
    let Some((a, _)) = namespaces("queueing::tests::missing_devices_and_disciplines_are_not_found")
    else {
        return;
    };
    a.within(|| {
        let mut network = Network::open()?;
        let missing = network.shape("a0", None, Some(&BUCKET));
        let error = missing.expect_err("no such device");
        assert_eq!(error.kind(), io::ErrorKind::NotFound, "{error}");
        let index = network.index("lo")?;
        let unknown = network.add_discipline(index, "quictun", TC_H_ROOT, 1 << 16, |none| none);
        let error = unknown.expect_err("an unknown discipline");
        assert_eq!(error.kind(), io::ErrorKind::NotFound, "{error}");
        network.shape("lo", None, Some(&BUCKET))
    })
    .expect("a loopback with a rate");
}

/// The bytes are those that `tc qdisc add dev lo root netem delay 20ms loss 1% limit 5000` sends, except for the
/// latency, which is in an attribute of its own.
#[test]
fn netem_options_match_those_of_tc() {
    let netem = Netem {
        delay: Duration::from_millis(20),
        loss: 0.01,
        duplicate: 0.0,
        limit: 5000,
        seed: 1,
    };
    let options = netem_options(&netem);
    assert_eq!(options[4..8], 5000_u32.to_ne_bytes());
    assert_eq!(options[8..12], 42_949_673_u32.to_ne_bytes());
    assert_eq!(options[12..], [0; 12]);
    assert_eq!(nanos(netem.delay), 20_000_000);
    for (share, all) in [(0.0, 0), (0.5, 1 << 31), (1.0, u32::MAX)] {
        assert_eq!(of_all(share), all);
    }
}

proptest::proptest! {
    #[test]
    fn any_message_is_read_without_panic(bytes: Vec<u8>) {
        discipline(&bytes);
    }
}
