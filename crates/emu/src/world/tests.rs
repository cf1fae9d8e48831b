use std::fs;
use std::io::Write as _;
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use quictun_skip::as_own_root;
use quictun_sys::FrameCounter;

use super::*;

/// Returns whether this test may create namespaces. If not, the test has run in a child process that may, or was
/// skipped with a message.
pub(crate) fn permitted(test: &str) -> bool {
    if NetNamespace::new().is_ok() {
        return true;
    }
    as_own_root(test);
    false
}

#[test]
fn both_sides_have_the_documented_addresses_and_mtu() {
    if !permitted("world::tests::both_sides_have_the_documented_addresses_and_mtu") {
        return;
    }
    let plan = WorldOptions {
        mtu: 1400,
        segment_limit: Some(100_000),
        ..WorldOptions::default()
    };
    let world = World::build(&plan).expect("build world");
    let sides = [
        (world.near(), world.near_addresses()),
        (world.far(), world.far_addresses()),
    ];
    for (network, addresses) in sides {
        for address in addresses {
            network
                .within(|| UdpSocket::bind((address, 0)))
                .unwrap_or_else(|error| panic!("{address}: {error}"));
        }
        let mtu = network
            .within(|| fs::read_to_string("/proc/sys/net/ipv6/conf/link0/mtu"))
            .expect("IPv6 sysctl");
        assert_eq!(mtu.trim(), "1400");
        let neighbours = network
            .within(|| fs::read_to_string("/proc/thread-self/net/arp"))
            .expect("ARP table");
        assert!(neighbours.contains("02:71:75:69:"), "{neighbours}");
    }
    let silent = world
        .router()
        .within(|| fs::read_to_string("/proc/sys/net/ipv6/conf/near/disable_ipv6"))
        .expect("IPv6 sysctl");
    assert_eq!(silent.trim(), "1");
    let spoken = world
        .router()
        .within(|| Network::open()?.addresses())
        .expect("list addresses");
    assert!(spoken.is_empty(), "router has addresses: {spoken:?}");
}

#[test]
fn the_offload_setting_decides_which_device_segments_a_stream() {
    if !permitted("world::tests::the_offload_setting_decides_which_device_segments_a_stream") {
        return;
    }
    for (offload, cut, merge) in [
        (Offload::Full, true, false),
        (Offload::Receive, false, true),
        (Offload::None, false, false),
    ] {
        let plan = WorldOptions {
            offload,
            ..WorldOptions::default()
        };
        let world = World::build(&plan).expect("build world");
        for network in [world.near(), world.far()] {
            let feature = |name| {
                network
                    .within(|| Ethtool::open(DEVICE)?.feature(name))
                    .expect("read feature")
            };
            assert_eq!(feature("tx-tcp-segmentation"), Some(cut), "{offload:?}");
            assert_eq!(feature("tx-udp-segmentation"), Some(cut), "{offload:?}");
            assert_eq!(feature("rx-gro"), Some(merge), "{offload:?}");
        }
    }
}

/// Sends `bytes` until they arrive, and returns their origin. The first datagram may be lost while the kernel is still
/// switching the devices on.
fn cross(from: &UdpSocket, to: &UdpSocket, address: SocketAddr, bytes: &[u8]) -> SocketAddr {
    let mut buffer = [0; 16];
    for _ in 0..200 {
        from.send_to(bytes, address).expect("send");
        if let Ok((length, origin)) = to.recv_from(&mut buffer) {
            assert_eq!(&buffer[..length], bytes);
            return origin;
        }
    }
    panic!("nothing arrives at {address}");
}

#[test]
fn a_cable_and_a_router_need_no_emulator_and_only_the_router_forwards() {
    if !permitted(
        "world::tests::a_cable_and_a_router_need_no_emulator_and_only_the_router_forwards",
    ) {
        return;
    }
    for (between, forwards) in [(Interconnect::Cable, false), (Interconnect::Router, true)] {
        let plan = WorldOptions {
            between,
            ..WorldOptions::default()
        };
        let world = World::build(&plan).expect("build world");
        for (from, to) in world
            .near_addresses()
            .into_iter()
            .zip(world.far_addresses())
        {
            let bind = |network: &NetNamespace, address: IpAddr| {
                network.within(|| {
                    let socket = UdpSocket::bind((address, 0))?;
                    socket.set_read_timeout(Some(Duration::from_millis(100)))?;
                    Ok(socket)
                })
            };
            let near = bind(world.near(), from).expect("bind");
            let far = bind(world.far(), to).expect("bind");
            let there = far.local_addr().expect("local address");
            let origin = cross(&near, &far, there, b"across");
            assert_eq!(origin.ip(), from, "{between:?}");
            assert_eq!(cross(&far, &near, origin, b"back"), there);
        }
        let counters = world
            .router()
            .within(|| fs::read_to_string("/proc/thread-self/net/snmp"))
            .expect("read counters");
        let lines: Vec<Vec<&str>> = counters
            .lines()
            .filter(|line| line.starts_with("Ip: "))
            .map(|line| line.split(' ').collect())
            .collect();
        let column = lines[0].iter().position(|name| *name == "ForwDatagrams");
        let count: u64 = lines[1][column.expect("the column")]
            .parse()
            .expect("a number");
        assert_eq!(count > 0, forwards, "{between:?}");
    }
}

#[test]
fn worlds_with_the_same_far_side_use_different_addresses() {
    if !permitted("world::tests::worlds_with_the_same_far_side_use_different_addresses") {
        return;
    }
    let host = NetNamespace::new().expect("create the host's stand-in");
    let plan = WorldOptions {
        far: FarSide::Here,
        ..WorldOptions::default()
    };
    let build = || Ok(World::build(&plan).expect("build world"));
    let first = host.within(build).expect("enter network");
    let second = host.within(build).expect("enter network");
    assert_eq!(first.far_addresses()[0].to_string(), "100.127.0.1");
    assert_eq!(second.far_addresses()[0].to_string(), "100.127.1.1");
    assert_eq!(second.far_addresses()[1].to_string(), "fd71:7569:6374:1::1");
    let mut known = host
        .within(|| Network::open()?.addresses())
        .expect("list addresses");
    known.retain(IpAddr::is_ipv4);
    assert_eq!(known, [first.far_addresses()[0], second.far_addresses()[0]]);
}

/// Sends a stream from the near side to the far side, and returns how many frames above 64 KiB arrived.
fn big_frames(world: &World, from: IpAddr, to: IpAddr) -> u64 {
    let far = world.far();
    let mut counter = far
        .within(|| FrameCounter::open(DEVICE, 65_535 + 14))
        .expect("open counter");
    let listener = far
        .within(|| TcpListener::bind((to, 0)))
        .expect("bind port");
    let address = listener.local_addr().expect("local address");
    let received = std::thread::scope(|scope| {
        let receive = scope.spawn(|| {
            let (mut stream, origin) = listener.accept().expect("accept");
            assert_eq!(origin.ip(), from);
            io::copy(&mut stream, &mut io::sink()).expect("receive")
        });
        let mut stream = world
            .near()
            .within(|| TcpStream::connect(address))
            .expect("connect");
        for _ in 0..32 {
            stream.write_all(&vec![7; 512 * 1024]).expect("send");
        }
        drop(stream);
        receive.join().expect("no panic")
    });
    assert_eq!(received, 32 * 512 * 1024);
    counter.count().expect("read counter")
}

#[test]
fn a_router_forwards_pieces_beyond_64_kib_of_both_families() {
    if !permitted("world::tests::a_router_forwards_pieces_beyond_64_kib_of_both_families") {
        return;
    }
    for (limit, big) in [(185_000, true), (65_536, false)] {
        let plan = WorldOptions {
            between: Interconnect::Router,
            segment_limit: Some(limit),
            ..WorldOptions::default()
        };
        let world = World::build(&plan).expect("build world");
        let ways = world
            .near_addresses()
            .into_iter()
            .zip(world.far_addresses());
        for (from, to) in ways {
            let frames = big_frames(&world, from, to);
            assert_eq!(frames > 0, big, "{to}, {limit}: {frames}");
        }
    }
}
