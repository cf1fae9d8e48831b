//! Data that has arrived completely is delivered completely, however the connection ends (PROTOCOL CLOSE-12).

use std::time::Duration;

use quictun_sim::engine::Ending;
use quictun_sim::{
    AppId, HostEngine, IncomingState, OutgoingState, ReadStep, Script, Seed, SimulatedDial,
    WriteStep, config,
};
use quictun_wire::code::FlowCode;

use crate::tunnel_pair::{MS, PROTOCOLS, SECOND, TunnelPair, wire};

/// Size of an upload in bytes: less than the amount at which a flow is stopped.
const BYTES: u64 = 60_000;

/// Returns the script of a target that sends nothing, begins to read after a pause, and then reads slowly.
fn slow_reader(pause: Duration) -> Script {
    let slowly = ReadStep::Slowly {
        bytes: 2_000,
        every: 20 * MS,
    };
    Script {
        buffer: 1000,
        ..Script::server(1)
            .write([WriteStep::Finish])
            .read([ReadStep::Pause(pause), slowly])
    }
}

/// Starts an upload whose target has finished its direction. For the client, the flow is over once the bytes are
/// acknowledged.
fn upload(protocols: &[&[u8]], pause: Duration) -> (TunnelPair, AppId) {
    let mut pair = TunnelPair::new(Seed::fixed(1), protocols, wire(20 * MS));
    pair.connect();
    let server = pair.server;
    pair.network
        .host(server)
        .serve("slow", SimulatedDial::connects(), slow_reader(pause));
    let app = pair.network.open(
        pair.client,
        "slow",
        Script::client(1).write([WriteStep::Send(BYTES), WriteStep::Finish]),
    );
    (pair, app)
}

fn delivered(pair: &TunnelPair, token: &str) -> (u64, IncomingState, OutgoingState) {
    let target = pair.network.dialled(pair.server, token).expect("dialled");
    (target.received, target.incoming, target.outgoing)
}

#[test]
fn a_server_delivers_received_data_after_the_client_closes() {
    for protocols in PROTOCOLS {
        let (mut pair, _) = upload(protocols, SECOND);
        pair.network.run_for(SECOND / 2);
        let (client, server) = (pair.client, pair.server);
        assert!(pair.network.host(client).engine().flow_reports().is_empty());
        pair.network.command(client, HostEngine::close);
        pair.network.run_until(30 * SECOND, |network| {
            network
                .dialled(server, "slow")
                .is_some_and(|target| target.over.is_some())
        });
        let whole = (BYTES, IncomingState::Fin, OutgoingState::Finished);
        assert_eq!(delivered(&pair, "slow"), whole);
        pair.check_nothing_left();
    }
}

#[test]
fn both_ends_deliver_received_data_after_the_connection_falls_silent() {
    let (mut pair, _) = upload(config::NATIVE, 90 * SECOND);
    // Bytes that are never acknowledged do not affect those that have arrived.
    let answer = Script::server(2)
        .write([WriteStep::Send(BYTES), WriteStep::Finish])
        .read([ReadStep::Never]);
    let server = pair.server;
    pair.network
        .host(server)
        .serve("answer", SimulatedDial::connects(), answer);
    let reads = Script::client(2)
        .write([WriteStep::Send(u64::MAX / 4)])
        .read([ReadStep::Pause(90 * SECOND), ReadStep::Bytes(BYTES)]);
    let reader = pair.network.open(pair.client, "answer", reads);
    pair.network.run_for(2 * SECOND);
    for (from, to) in [(pair.client, server), (server, pair.client)] {
        pair.network.set_link(from, to, |link| link.loss = 1.0);
    }
    pair.network.run_for(Duration::from_mins(5));
    let whole = (BYTES, IncomingState::Fin, OutgoingState::Finished);
    assert_eq!(delivered(&pair, "slow"), whole);
    let reader = pair.network.outcome(reader);
    assert_eq!(
        (reader.received, reader.incoming, reader.outgoing),
        (BYTES, IncomingState::Fin, OutgoingState::Reset),
        "the FIN is delivered before the reset of the other direction"
    );
}

#[test]
fn an_incomplete_stream_ends_in_a_reset() {
    let (mut pair, app) = upload(config::NATIVE, SECOND);
    let (client, server) = (pair.client, pair.server);
    // All data arrives, but no FIN.
    let endless = Script::client(1).write([WriteStep::Send(1000)]);
    pair.network
        .host(server)
        .serve("endless", SimulatedDial::connects(), slow_reader(SECOND));
    pair.network.open(client, "endless", endless);
    pair.network.run_for(SECOND / 2);
    pair.network.command(client, HostEngine::close);
    pair.network.run_for(10 * SECOND);
    assert!(pair.network.outcome(app).is_clean());
    assert_eq!(delivered(&pair, "slow").1, IncomingState::Fin);
    let (received, incoming, _) = delivered(&pair, "endless");
    assert_eq!((received, incoming), (1000, IncomingState::Reset));
    pair.check_nothing_left();
}

#[test]
fn an_application_that_takes_nothing_more_is_given_up() {
    let (mut pair, _) = upload(config::NATIVE, Duration::from_hours(9));
    let (client, server) = (pair.client, pair.server);
    pair.network.run_for(SECOND);
    pair.network.command(client, HostEngine::close);
    pair.network.run_for(50 * SECOND);
    assert_eq!(delivered(&pair, "slow").1, IncomingState::Open);
    assert!(!pair.network.host(server).engine().is_drained());
    pair.network.run_for(20 * SECOND);
    let endings: Vec<Ending> = pair
        .closed(server)
        .iter()
        .map(|summary| summary.ending)
        .collect();
    assert_eq!(endings, [Ending::Abandoned(FlowCode::ConnectionLost)]);
    pair.check_nothing_left();
}
