//! A client that uses its streams in every way that the library permits.

use quictun_sim::{HostId, Random, Script, Seed, SimulatedDial, WriteStep, config};
use quinn_proto::{Dir, StreamId, VarInt};

use crate::guests::Guests as _;
use crate::tunnel_pair::{MS, SECOND, TunnelPair, limited, request};

#[test]
fn no_sequence_of_stream_operations_harms_the_server() {
    for seed in Seed::wanted(0..150) {
        run(Seed::of_test("no_sequence_of_stream_operations", seed));
    }
}

fn run(seed: Seed) {
    let mut random = seed.random(200);
    let protocols = random.pick(&[config::NATIVE, config::COMPAT]);
    let mut link = limited(1_250_000, 20 * MS);
    link.loss = random.pick(&[0.0, 0.05]);
    let mut pair = TunnelPair::new(seed, protocols, link.clone());
    let sends = Script::server(1).write([
        WriteStep::Send(200_000),
        WriteStep::ReceivedEnd,
        WriteStep::Finish,
    ]);
    let host = pair.network.host(pair.server);
    host.serve("echo", SimulatedDial::connects(), Script::echo());
    host.serve(
        "slow",
        SimulatedDial::Connects { after: SECOND },
        Script {
            expects: None,
            ..sends
        },
    );
    host.serve("never", SimulatedDial::Never, Script::echo());
    let bare = pair.network.add_bare("hostile", protocols, pair.server);
    pair.network.link(bare, pair.server, link.clone(), link);
    pair.network
        .run_until(10 * SECOND, |network| network.bare(bare).is_connected());
    let mut streams = Vec::new();
    for _ in 0..random.within(10, 150) {
        act(&mut pair, bare, &mut random, &mut streams, protocols);
        pair.network.run_for(random.time(MS / 10, 100 * MS));
    }
    pair.network.run_for(15 * SECOND);
    assert_eq!(
        pair.network.bare(bare).lost(),
        None,
        "the connection itself obeys the protocol"
    );
    if random.chance(1, 2) {
        let now = pair.network.now();
        let connection = pair.network.bare(bare).connection();
        connection.close(now, VarInt::from_u32(0), bytes::Bytes::new());
    } else {
        pair.network.move_host(bare);
        pair.network
            .set_link(bare, pair.server, |link| link.loss = 1.0);
    }
    // The client falls silent, or its last packets may be lost. The server forgets it in both cases.
    pair.network.run_for(70 * SECOND);
    pair.check_nothing_left();
    let reports = pair.network.host(pair.server).engine().connection_reports();
    assert_eq!(reports.len(), 1, "only the honest client is left");
    let script = Script::echoed(1).write([WriteStep::Send(100), WriteStep::Finish]);
    let app = pair.network.open(pair.client, "echo", script);
    pair.network.run_for(5 * SECOND);
    assert!(pair.network.outcome(app).is_clean());
}

/// Performs one random operation of a hostile client.
fn act(
    pair: &mut TunnelPair,
    bare: HostId,
    random: &mut Random,
    streams: &mut Vec<StreamId>,
    protocols: &[&[u8]],
) {
    let peer = pair.network.bare(bare);
    let some = |random: &mut Random, streams: &[StreamId]| {
        (!streams.is_empty()).then(|| random.pick(streams))
    };
    match random.within(0, 9) {
        0 | 1 => {
            if let Some(stream) = peer.connection().streams().open(Dir::Bi) {
                streams.push(stream);
                let token = random.pick(&["echo", "slow", "never", "unknown"]);
                let mut request = request(protocols, token);
                request.truncate(
                    usize::try_from(random.within(0, 2 * request.len() as u64)).expect("small"),
                );
                write(pair, bare, stream, &request);
            }
        }
        2 | 3 => {
            if let Some(stream) = some(random, streams) {
                let length = random.magnitude(1, 30_000);
                let bytes: Vec<u8> = (0..length).map(|_| random.any().to_le_bytes()[0]).collect();
                write(pair, bare, stream, &bytes);
            }
        }
        4 => {
            if let Some(stream) = some(random, streams) {
                // An error means that the stream has ended already.
                drop(peer.connection().send_stream(stream).finish());
            }
        }
        5 => {
            if let Some(stream) = some(random, streams) {
                let code = VarInt::from_u32(u32::try_from(random.within(0, 20)).expect("small"));
                drop(peer.connection().send_stream(stream).reset(code));
            }
        }
        6 => {
            if let Some(stream) = some(random, streams) {
                let code = VarInt::from_u32(u32::try_from(random.within(0, 20)).expect("small"));
                drop(peer.connection().recv_stream(stream).stop(code));
            }
        }
        _ => {
            if let Some(stream) = some(random, streams) {
                peer.read(stream);
            }
        }
    }
}

fn write(pair: &mut TunnelPair, bare: HostId, stream: StreamId, bytes: &[u8]) {
    // A write that flow control rejects, or to a stream that has ended, is as good as any other hostile write.
    drop(
        pair.network
            .bare(bare)
            .connection()
            .send_stream(stream)
            .write(bytes),
    );
}
