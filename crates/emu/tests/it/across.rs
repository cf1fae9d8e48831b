use std::io::{Read as _, Write as _};
use std::net::{IpAddr, TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::Duration;

use quictun_emu::{DirectionAudit, EmulatorConfig, LossUnit};
use quictun_link::LinkConfig;
use quictun_sys::{BufferSide, socket_buffer_force};

use crate::networks::{FAR, Networks};

const DATAGRAMS: u64 = 4000;

/// Bytes in each datagram.
const LENGTH: usize = 900;

/// Limit for every operation; on a working machine none takes longer.
const TIMEOUT: Duration = Duration::from_mins(1);

fn plan(link: LinkConfig) -> EmulatorConfig {
    EmulatorConfig {
        up: link.clone(),
        down: link,
        seed: 9,
        coalesce: Duration::from_micros(50),
        loss_unit: LossUnit::Segment,
    }
}

fn lossy(loss: f64) -> LinkConfig {
    LinkConfig {
        rate: Some(100_000_000),
        overhead: 38,
        delay: Duration::from_millis(1),
        loss,
        ..LinkConfig::default()
    }
}

/// Sends `bytes` bytes over TCP to each address of the far end, and compares every byte there.
fn stream(networks: &Networks, bytes: usize) {
    for address in FAR {
        let address: IpAddr = address.parse().expect("valid address");
        let listener = networks
            .far
            .within(|| TcpListener::bind((address, 0)))
            .expect("bind");
        let port = listener.local_addr().expect("local address").port();
        let sent: Vec<u8> = (0..=252).cycle().take(bytes).collect();
        let mut near = networks
            .near
            .within(|| TcpStream::connect((address, port)))
            .expect("connect over the link");
        let (mut far, _) = listener.accept().expect("accept");
        far.set_read_timeout(Some(TIMEOUT)).expect("set timeout");
        near.set_write_timeout(Some(TIMEOUT)).expect("set timeout");
        let copy = sent.clone();
        let writer = thread::spawn(move || near.write_all(&copy).expect("send"));
        let mut got = Vec::new();
        far.read_to_end(&mut got).expect("receive");
        writer.join().expect("no panic");
        assert!(
            got == sent,
            "{address}: {} of {} bytes",
            got.len(),
            sent.len()
        );
    }
}

/// Counts the datagrams that have arrived, and checks every byte of them.
fn drain(socket: &UdpSocket) -> u64 {
    let mut datagram = [0; 2000];
    let mut got = 0;
    while let Ok(length) = socket.recv(&mut datagram) {
        assert_eq!(length, LENGTH);
        assert!(datagram[..LENGTH].iter().all(|byte| *byte == datagram[0]));
        got += 1;
    }
    got
}

/// Asserts that only the link lost packets, and that every packet is accounted for.
fn assert_accounted(audit: &DirectionAudit) {
    let counts = &audit.counts;
    assert_eq!(counts.unintended.total(), 0, "{:?}", counts.unintended);
    assert_eq!(counts.segments_in, audit.link.sent);
    let originals = counts.segments_out - counts.copies_out;
    assert_eq!(originals + counts.under_way, audit.link.delivered);
    let [low, high] = audit.loss_interval;
    let agrees = |asked| (low..=high).contains(&asked);
    assert!(audit.loss_asked.is_none_or(agrees), "{audit}");
}

#[test]
fn streams_cross_a_lossy_link_byte_for_byte() {
    let Some(networks) = Networks::new("streams_cross_a_lossy_link_byte_for_byte") else {
        return;
    };
    for (offload, per_frame) in [(true, 2), (false, 1)] {
        networks.set_features(&[
            ("tx-tcp-segmentation", offload),
            ("tx-tcp6-segmentation", offload),
            ("tx-checksum-ip-generic", offload),
            ("rx-checksum", offload),
        ]);
        let running = networks.start(plan(lossy(0.01)));
        stream(&networks, 4 << 20);
        let audit = running.stop();
        assert_accounted(&audit.up);
        assert_accounted(&audit.down);
        assert!(audit.up.link.random > 0, "{audit}");
        let counts = &audit.up.counts;
        assert!(
            counts.segments_in >= counts.frames_in * per_frame,
            "super-packets must be cut: {audit}"
        );
        assert_eq!(networks.bad_checksums(), 0);
    }
}

#[test]
fn datagrams_are_lost_at_the_configured_rate_and_none_is_damaged() {
    let name = "datagrams_are_lost_at_the_configured_rate_and_none_is_damaged";
    let Some(networks) = Networks::new(name) else {
        return;
    };
    let link = LinkConfig {
        loss: 0.05,
        ..LinkConfig::default()
    };
    let running = networks.start(plan(link));
    let [address, _] = FAR.map(|address| address.parse::<IpAddr>().expect("valid address"));
    let far = networks
        .far
        .within(|| UdpSocket::bind((address, 0)))
        .expect("bind");
    let near = networks
        .near
        .within(|| UdpSocket::bind(("0.0.0.0", 0)))
        .expect("bind");
    near.connect(far.local_addr().expect("local address"))
        .expect("connect");
    // Makes room for several batches, if the system grants it.
    socket_buffer_force(&far, BufferSide::Receive, 1 << 20).expect("set buffer");
    far.set_read_timeout(Some(Duration::from_millis(50)))
        .expect("set timeout");
    let mut got = 0;
    for number in 0..DATAGRAMS {
        let fill = [number.to_le_bytes()[0]; LENGTH];
        near.send(&fill).expect("send");
        // Sends in batches that fit every buffer, and waits until the batch has arrived or its rest is lost.
        if number % 50 == 49 {
            got += drain(&far);
        }
    }
    // Packets in flight when the link ends are lost, and this machine may pause for a while.
    far.set_read_timeout(Some(Duration::from_secs(2)))
        .expect("set timeout");
    got += drain(&far);
    let audit = running.stop();
    assert_accounted(&audit.up);
    // The hosts' own packets, such as router solicitations, may also be lost.
    let own = audit.up.link.sent - DATAGRAMS;
    let lost = audit.up.link.random;
    assert!(
        (lost - own.min(lost)..=lost).contains(&(DATAGRAMS - got)),
        "{got}: {audit}"
    );
    assert!(own < 100, "{audit}");
    assert_eq!(networks.bad_checksums(), 0);
}

#[test]
fn no_packet_arrives_before_its_delay() {
    let Some(networks) = Networks::new("no_packet_arrives_before_its_delay") else {
        return;
    };
    let delay = Duration::from_millis(20);
    let link = LinkConfig {
        delay,
        ..LinkConfig::default()
    };
    let running = networks.start(plan(link));
    let address: IpAddr = FAR[1].parse().expect("valid address");
    let listener = networks
        .far
        .within(|| TcpListener::bind((address, 0)))
        .expect("bind");
    let port = listener.local_addr().expect("local address").port();
    let start = std::time::Instant::now();
    networks
        .near
        .within(|| TcpStream::connect((address, port)))
        .expect("connect over the link");
    assert!(start.elapsed() >= delay * 2);
    assert_accounted(&running.stop().up);
}
