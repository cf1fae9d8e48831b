//! The packets that a network records form a pcapng file. The tests parse it with a small reader of their own.

use std::collections::BTreeMap;

use quictun_sim::{
    CrossTraffic, LinkConfig, Network, Script, Seed, SimulatedDial, Tcp, WriteStep, config,
};

use crate::tunnel_pair::{MS, SECOND, TunnelPair, limited};

/// The content of a pcapng file.
#[derive(Debug, Default)]
struct CaptureFile {
    interfaces: Vec<String>,
    key_log: String,
    packets: Vec<CapturedPacket>,
}

/// One packet of a pcapng file.
#[derive(Debug)]
struct CapturedPacket {
    interface: usize,
    nanos: u64,
    original: usize,
    bytes: Vec<u8>,
    comment: Option<String>,
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn length(bytes: &[u8], at: usize) -> usize {
    word(bytes, at) as usize
}

fn options(mut bytes: &[u8]) -> BTreeMap<u16, Vec<u8>> {
    let mut options = BTreeMap::new();
    while bytes.len() >= 4 {
        let half = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let (code, length) = (half(0), usize::from(half(2)));
        options.insert(code, bytes[4..4 + length].to_vec());
        bytes = &bytes[4 + length.next_multiple_of(4)..];
    }
    assert!(bytes.is_empty(), "options must end with their block");
    options
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

fn read(mut bytes: &[u8]) -> CaptureFile {
    let mut file = CaptureFile::default();
    assert_eq!((word(bytes, 0), word(bytes, 8)), (0x0a0d_0d0a, 0x1a2b_3c4d));
    while !bytes.is_empty() {
        let total = length(bytes, 4);
        assert_eq!(total % 4, 0);
        assert_eq!(length(bytes, total - 4), total, "lengths of a block differ");
        let body = &bytes[8..total - 4];
        match word(bytes, 0) {
            1 => {
                assert_eq!(word(body, 0), 101, "link type is not raw IP");
                let options = options(&body[8..]);
                assert_eq!(options[&9], [9], "timestamps must be in nanoseconds");
                file.interfaces.push(text(&options[&2]));
            }
            10 => {
                assert!(file.packets.is_empty(), "keys must precede the packets");
                assert_eq!(word(body, 0), 0x544c_534b, "not a TLS key log");
                file.key_log = text(&body[8..8 + length(body, 4)]);
            }
            6 => {
                let captured = length(body, 12);
                let options = options(&body[20 + captured.next_multiple_of(4)..]);
                file.packets.push(CapturedPacket {
                    interface: length(body, 0),
                    nanos: (u64::from(word(body, 4)) << 32) + u64::from(word(body, 8)),
                    original: length(body, 16),
                    bytes: body[20..20 + captured].to_vec(),
                    comment: options.get(&1).map(|comment| text(comment)),
                });
            }
            _ => assert_eq!(word(bytes, 0), 0x0a0d_0d0a, "unknown block type"),
        }
        bytes = &bytes[total..];
    }
    file
}

/// Returns the RFC 1071 checksum over a header, which is zero if the header contains its correct checksum.
fn checksum(header: &[u8]) -> u16 {
    let pairs = header.chunks_exact(2);
    let sum: u32 = pairs
        .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])))
        .sum();
    !u16::try_from((sum & 0xffff) + (sum >> 16)).expect("a short header")
}

fn lossy() -> LinkConfig {
    LinkConfig {
        loss: 0.02,
        ..limited(2_000_000, 20 * MS)
    }
}

fn check(file: &CaptureFile, network: &Network) {
    let count = |filter: &dyn Fn(&CapturedPacket) -> bool| {
        let count = file.packets.iter().filter(|seen| filter(seen)).count();
        u64::try_from(count).expect("few packets")
    };
    assert_eq!(count(&|_| true), network.packets());
    assert!(file.packets.is_sorted_by_key(|seen| seen.nanos));
    let last = file.packets.last().expect("packets").nanos;
    assert!(u128::from(last) <= network.elapsed().as_nanos());
    for seen in &file.packets {
        assert!(seen.interface < file.interfaces.len());
        assert_eq!(checksum(&seen.bytes[..20]), 0, "checksum of the IP header");
        let total = u16::from_be_bytes([seen.bytes[2], seen.bytes[3]]);
        assert_eq!(usize::from(total), seen.original);
    }
}

#[test]
fn a_tunnel_is_recorded_with_its_losses_and_the_keys_to_read_it() {
    let mut pair = TunnelPair::new(Seed::fixed(1), config::NATIVE, lossy());
    pair.network.record();
    let writes = [WriteStep::Send(300_000), WriteStep::Finish];
    let server = Script::server(1).write([WriteStep::Finish]);
    let host = pair.network.host(pair.server);
    host.serve("sink", SimulatedDial::connects(), server);
    let client = Script::client(1).write(writes);
    pair.network.open(pair.client, "sink", client);
    pair.network.run_for(10 * SECOND);
    let file = read(&pair.network.pcapng());
    check(&file, &pair.network);
    assert_eq!(file.interfaces, ["client -> server", "server -> client"]);
    let (client, server) = (pair.client, pair.server);
    for (interface, [from, to]) in [[client, server], [server, client]].into_iter().enumerate() {
        let drops = file.packets.iter().filter(|seen| {
            let dropped = seen.comment.as_deref() == Some("dropped: Random");
            seen.interface == interface && dropped
        });
        let counted = pair.network.counters(from, to).random;
        assert_eq!(u64::try_from(drops.count()), Ok(counted));
    }
    assert!(pair.network.counters(client, server).random > 0);
    for label in [
        "CLIENT_HANDSHAKE_TRAFFIC_SECRET ",
        "SERVER_HANDSHAKE_TRAFFIC_SECRET ",
        "CLIENT_TRAFFIC_SECRET_0 ",
        "SERVER_TRAFFIC_SECRET_0 ",
    ] {
        let lines = file.key_log.lines().filter(|line| line.starts_with(label));
        assert_eq!(lines.count(), 1, "{}", file.key_log);
    }
}

#[test]
fn tcp_is_recorded_as_headers() {
    let mut network = Network::new(Seed::fixed(1));
    network.record();
    let (from, to) = (network.add_plain("from"), network.add_plain("to"));
    network.link(from, to, lossy(), lossy());
    network.add_traffic(from, to, &CrossTraffic::Tcp(Tcp::default()));
    network.run_for(SECOND);
    let file = read(&network.pcapng());
    check(&file, &network);
    let mut blocks = 0;
    for seen in &file.packets {
        let data_offset = usize::from(seen.bytes[20 + 12] >> 4) * 4;
        assert_eq!(seen.bytes.len(), 20 + data_offset, "headers must be whole");
        blocks = blocks.max(data_offset);
        let payload = seen.original - seen.bytes.len();
        assert!(payload == 0 || payload == 1448);
    }
    assert_eq!(blocks, 20 + 12 + 4 + 3 * 8, "three SACK blocks");
}
