//! The same seed gives the same run: every datagram, its time and its length.
//!
//! This holds in every process, with and without optimisation: `golden.txt` is committed, and both `cargo test -p
//! quictun-sim` and `cargo test --release -p quictun-sim` must agree with it. After an intended change of the engine or
//! of links, write it again with `QUICTUN_BLESS=1 cargo test -p quictun-sim --test it determinism`.

use std::fmt::Write as _;
use std::path::PathBuf;

use quictun_sim::engine::Account;
use quictun_sim::{
    CrossTraffic, HostEngine, LinkConfig, Network, ReadStep, Reorder, Script, Seed, SimulatedDial,
    Tcp, TranscriptDetail, WriteStep, config,
};

use crate::guests::{Guests as _, OriginalOptions};
use crate::tunnel_pair::{MS, PROTOCOLS, SECOND, TunnelPair, limited};

fn rough() -> LinkConfig {
    LinkConfig {
        loss: 0.03,
        jitter: 2 * MS,
        duplicate: 0.02,
        reorder: Reorder {
            share: 0.02,
            extra: 5 * MS,
        },
        ..limited(1_000_000, 30 * MS)
    }
}

fn transcript(seed: u64, protocols: &[&[u8]]) -> String {
    let mut pair = TunnelPair::new(Seed::fixed(seed), protocols, rough());
    pair.network.set_detail(TranscriptDetail::Datagrams);
    for number in 0..5u64 {
        let token = format!("flow {number}");
        let writes = [WriteStep::Send(100_000), WriteStep::Finish];
        let server = Script::server(number).write(writes);
        pair.network.host(pair.server).serve(
            &token,
            SimulatedDial::Connects { after: 5 * MS },
            server,
        );
        pair.network
            .open(pair.client, &token, Script::client(number).write(writes));
        pair.network.run_for(100 * MS);
    }
    pair.network.run_for(20 * SECOND);
    let client = pair.client;
    pair.network.command(client, HostEngine::close);
    pair.network.run_for(SECOND);
    pair.network.transcript().to_string()
}

#[test]
fn a_run_repeats_itself_to_the_nanosecond_and_the_byte() {
    for protocols in PROTOCOLS {
        let first = transcript(1, protocols);
        assert!(first.lines().count() > 1000);
        assert!(
            first == transcript(1, protocols),
            "two runs of one seed differ"
        );
        assert!(
            first != transcript(2, protocols),
            "another seed changes nothing"
        );
    }
}

/// The flows hold more batches of datagrams than they may, so that their data is copied.
#[test]
fn a_run_with_stalled_downloads_repeats_itself_wherever_its_memory_is() {
    let run = || {
        let link = limited(1_250_000_000, MS / 5);
        let mut client = config::client_speaking(config::NATIVE, 7);
        client.transport.account = Account::new(64 << 20);
        let server = config::server(7);
        let mut pair = TunnelPair::with(Seed::fixed(7), client, server, link.clone(), link);
        pair.network.set_detail(TranscriptDetail::Datagrams);
        let host = pair.network.host(pair.server);
        let pour = Script::server(2).write([WriteStep::Send(u64::MAX / 4)]);
        host.serve("pour", SimulatedDial::connects(), pour);
        for _ in 0..20 {
            let stalled = Script::client(2).read([ReadStep::Pause(1000 * SECOND)]);
            pair.network.open(pair.client, "pour", stalled);
        }
        pair.network.open(pair.client, "pour", Script::client(2));
        pair.network.run_for(SECOND / 10);
        digest(&pair.network.transcript().to_string())
    };
    let first = run();
    // With these blocks in place, the allocations of the next run have other addresses.
    let elsewhere: Vec<Vec<u8>> = (1..1000).map(|length| vec![0; 97 * length]).collect();
    assert_eq!(first, run(), "two runs of one seed differ");
    drop(elsewhere);
}

#[test]
fn a_run_against_the_original_repeats_itself() {
    let run = || {
        let mut network = Network::new(Seed::fixed(1));
        network.set_detail(TranscriptDetail::Datagrams);
        let original = network.add_original("original", OriginalOptions::default());
        let client = network.add_client("client", config::client(1), original);
        network.link(client, original, rough(), rough());
        network
            .original(original)
            .serve("tcp:echo", SimulatedDial::connects());
        let script = Script::echoed(1).write([
            WriteStep::Send(200_000),
            WriteStep::Received(200_000),
            WriteStep::Finish,
        ]);
        network.open(client, "tcp:echo", script);
        network.run_for(20 * SECOND);
        network.transcript().to_string()
    };
    assert!(run() == run(), "two runs of one seed differ");
}

/// Returns the transcript of a run that is short enough for a person to follow.
fn short() -> String {
    let mut pair = TunnelPair::new(Seed::fixed(5), config::NATIVE, rough());
    pair.network.set_detail(TranscriptDetail::Datagrams);
    let writes = [WriteStep::Send(5_000), WriteStep::Finish];
    let server = Script::server(1).write(writes);
    let dial = SimulatedDial::Connects { after: 5 * MS };
    let host = pair.network.host(pair.server);
    host.serve("both ways", dial, server);
    let script = Script::client(1).write(writes);
    let app = pair.network.open(pair.client, "both ways", script);
    pair.network
        .run_until(20 * SECOND, |network| network.outcome(app).is_over());
    let client = pair.client;
    pair.network.command(client, HostEngine::close);
    pair.network.run_for(SECOND);
    pair.network.transcript().to_string()
}

/// Returns the transcript of a tunnel that shares a bottleneck with TCP and a constant stream.
fn shared() -> String {
    let mut network = Network::new(Seed::fixed(6));
    let server = network.add_server("server", config::server(6));
    let client = network.add_client("client", config::client(6), server);
    let [from, to] = ["from", "to"].map(|name| network.add_plain(name));
    let link = limited(2_500_000, 20 * MS);
    network.dumbbell(&[client, from], &[server, to], link.clone(), link, MS);
    network.add_traffic(from, to, &CrossTraffic::Tcp(Tcp::default()));
    network.add_traffic(to, from, &CrossTraffic::Constant(500_000));
    let sink = Script::server(1);
    network
        .host(server)
        .serve("sink", SimulatedDial::connects(), sink);
    let script = Script::client(1).write([WriteStep::Send(2_000_000), WriteStep::Finish]);
    network.open(client, "sink", script);
    network.set_detail(TranscriptDetail::Datagrams);
    network.run_for(5 * SECOND);
    network.transcript().to_string()
}

/// Returns the FNV-1a hash, which is good enough to distinguish texts and needs only a few lines.
fn digest(text: &str) -> u64 {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    text.bytes().fold(OFFSET, |digest, byte| {
        (digest ^ u64::from(byte)).wrapping_mul(PRIME)
    })
}

#[test]
fn a_run_is_the_committed_one_in_any_process_and_profile() {
    let mut golden = short();
    let long = [
        ("quictun/1", transcript(1, PROTOCOLS[0])),
        ("quic-tun", transcript(1, PROTOCOLS[1])),
        ("beside cross traffic", shared()),
    ];
    for (name, text) in long {
        let (lines, digest) = (text.lines().count(), digest(&text));
        writeln!(golden, "{name}: {lines} lines, FNV-1a {digest:016x}").expect("a string");
    }
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/it/golden.txt");
    if std::env::var_os("QUICTUN_BLESS").is_some() {
        std::fs::write(&path, golden).expect("the transcript is written");
        return;
    }
    let committed = std::fs::read_to_string(&path).expect("the transcript is committed");
    let differs = committed.lines().zip(golden.lines()).find(|(a, b)| a != b);
    if let Some((committed, now)) = differs {
        panic!("committed: {committed}\nnow:       {now}");
    }
    assert_eq!(committed.len(), golden.len());
}
