//! A flow or connection that a server no longer allows ends at once, with its own code. Nothing else ends (PROTOCOL
//! section 6).

use quictun_sim::engine::{ConnectionId, Ending, EngineEvent, Event, LossReason, RequestedFlow};
use quictun_sim::{Script, Seed, SimulatedDial, WriteStep, config};
use quictun_wire::code::{CloseCode, FlowCode};

use crate::tunnel_pair::{MS, PROTOCOLS, SECOND, TunnelPair, wire};

/// Creates a client with two flows that last for ten seconds, each to its own target.
fn pair(protocols: &[&[u8]]) -> TunnelPair {
    let mut pair = TunnelPair::new(Seed::fixed(1), protocols, wire(20 * MS));
    pair.connect();
    for target in ["kept", "revoked"] {
        let host = pair.network.host(pair.server);
        host.serve(target, SimulatedDial::connects(), Script::echo());
        let script = Script::echoed(1);
        let script = script.write([
            WriteStep::Send(1000),
            WriteStep::Wait(10 * SECOND),
            WriteStep::Finish,
        ]);
        pair.network.open(pair.client, target, script);
    }
    pair.network.run_for(SECOND);
    pair
}

fn asked(pair: &mut TunnelPair, token: &str) -> RequestedFlow {
    let asked = pair.network.server(pair.server).requested_flows();
    let found = asked.into_iter().find(|asked| asked.token == token);
    found.expect("the flow is open")
}

fn connection(pair: &mut TunnelPair) -> ConnectionId {
    pair.network.host(pair.server).engine().connection_reports()[0].id
}

#[test]
fn a_revoked_flow_is_reset_on_both_sides_and_its_neighbour_continues() {
    for protocols in PROTOCOLS {
        let mut pair = pair(protocols);
        let revoked = asked(&mut pair, "revoked");
        assert_eq!(revoked.connection, connection(&mut pair));
        let server = pair.server;
        pair.network.command(server, |engine, now| {
            engine.server().revoke_flow(now, revoked.flow);
            // A second call has no further effect.
            engine.server().revoke_flow(now, revoked.flow);
        });
        pair.network.run_for(15 * SECOND);
        let closed = pair.closed(pair.client);
        let ending = |token: &str| {
            let closed = closed.iter().find(|summary| summary.token == token);
            closed.expect("the flow is over").ending
        };
        assert_eq!(
            ending("revoked"),
            Ending::PeerReset(Some(FlowCode::Revoked))
        );
        assert_eq!(ending("kept"), Ending::Finished);
        let there = pair.network.dialled(pair.server, "revoked");
        assert!(there.expect("the target was dialled").was_reset());
        pair.check_nothing_left();
    }
}

/// Connects a client and a server whose bonds keep flows for a minute.
fn bonded_pair() -> TunnelPair {
    let mut client = config::client_speaking(config::NATIVE, 1);
    let mut server = config::server(1);
    (client.role.bond_ttl, server.role.bond_ttl) = (60 * SECOND, 60 * SECOND);
    let mut pair = TunnelPair::with(Seed::fixed(1), client, server, wire(20 * MS), wire(20 * MS));
    pair.connect();
    pair
}

// PROTOCOL BOND-18.
#[test]
fn a_flow_that_waits_is_revoked_as_one_that_is_carried() {
    let mut pair = bonded_pair();
    let server = pair.server;
    for target in ["kept", "revoked"] {
        let host = pair.network.host(server);
        host.serve(target, SimulatedDial::connects(), Script::echo());
        let script = Script::echoed(1);
        let script = script.write([
            WriteStep::Send(1000),
            WriteStep::Wait(10 * SECOND),
            WriteStep::Finish,
        ]);
        pair.network.open(pair.client, target, script);
    }
    pair.network.run_for(SECOND);
    pair.network.black_hole(pair.client, server, 3 * SECOND);
    let lost = connection(&mut pair);
    pair.network.command(server, |engine, now| {
        engine.break_connection(now, lost);
    });
    let revoked = asked(&mut pair, "revoked");
    assert_eq!(revoked.connection, lost);
    pair.network.command(server, |engine, now| {
        engine.server().revoke_flow(now, revoked.flow);
    });
    pair.network.run_for(MS);
    let there = |pair: &TunnelPair, target| {
        let there = pair.network.dialled(server, target);
        there.expect("the target was dialled").clone()
    };
    assert!(there(&pair, "revoked").was_reset(), "not reset at once");
    assert!(!there(&pair, "kept").is_over());
    pair.network.run_for(20 * SECOND);
    let closed = pair.closed(pair.client);
    let ending = |token: &str| {
        let closed = closed.iter().find(|summary| summary.token == token);
        closed.expect("the flow is over").ending
    };
    assert_eq!(ending("revoked"), Ending::PeerRefused(FlowCode::Revoked));
    assert_eq!(ending("kept"), Ending::Finished);
    pair.check_nothing_left();
}

/// Ends a flow at the server while the client lacks its last bytes, and revokes it there. With `detached`, it is
/// revoked after the server has lost the connection. Returns how the flow has ended at the client.
fn revoke_before_the_last_bytes_arrive(detached: bool) -> Ending {
    let mut pair = bonded_pair();
    let server = pair.server;
    let host = pair.network.host(server);
    host.serve("revoked", SimulatedDial::connects(), Script::echo());
    let script = Script::echoed(1);
    let script = script.write([
        WriteStep::Send(1000),
        WriteStep::Wait(2 * SECOND),
        WriteStep::Send(1000),
        WriteStep::Finish,
    ]);
    pair.network.open(pair.client, "revoked", script);
    pair.network.run_for(SECOND);
    pair.network.black_hole(server, pair.client, 4 * SECOND);
    pair.network.run_for(2 * SECOND);
    let there = pair.network.dialled(server, "revoked");
    assert!(there.expect("the target was dialled").is_over());
    let flow = asked(&mut pair, "revoked").flow;
    if detached {
        let lost = connection(&mut pair);
        pair.network
            .command(server, |engine, now| engine.break_connection(now, lost));
    }
    pair.network
        .command(server, |engine, now| engine.server().revoke_flow(now, flow));
    assert!(pair.network.server(server).requested_flows().is_empty());
    pair.network.run_for(30 * SECOND);
    let ending = pair.closed(pair.client)[0].ending;
    pair.check_nothing_left();
    ending
}

// The target has ended, and only the tunnel still has its bytes.
#[test]
fn a_revoked_flow_whose_target_has_ended_delivers_no_more() {
    for detached in [false, true] {
        let ending = revoke_before_the_last_bytes_arrive(detached);
        // The client learns of it by a reset, in answer to MOVE, or because nothing is left of the bond.
        assert_ne!(ending, Ending::Finished, "detached: {detached}");
    }
}

#[test]
fn a_flow_that_is_being_dialled_is_refused_and_its_target_finds_no_flow() {
    let mut pair = TunnelPair::new(Seed::fixed(2), config::NATIVE, wire(20 * MS));
    pair.connect();
    let host = pair.network.host(pair.server);
    host.serve("slow", SimulatedDial::Never, Script::echo());
    pair.network.open(
        pair.client,
        "slow",
        Script::echoed(1).write([WriteStep::Finish]),
    );
    pair.network.run_for(SECOND);
    let dialling = asked(&mut pair, "slow");
    assert_eq!(dialling.server_app, "");
    let server = pair.server;
    pair.network.command(server, |engine, now| {
        engine.server().revoke_flow(now, dialling.flow);
    });
    pair.network.run_for(SECOND);
    let closed = pair.closed(pair.client);
    assert_eq!(
        closed[0].ending,
        Ending::PeerRefused(FlowCode::Revoked),
        "{closed:?}"
    );
    pair.check_nothing_left();
}

// PROTOCOL CODE-3.
#[test]
fn a_revoked_connection_ends_with_its_flows_and_its_client_comes_back_slowly() {
    for protocols in PROTOCOLS {
        let mut pair = pair(protocols);
        let first = connection(&mut pair);
        let server = pair.server;
        let flows = pair.network.command(server, |engine, now| {
            engine
                .server()
                .revoke_connection(now, first, CloseCode::Revoked)
        });
        assert_eq!(flows, 2);
        // On the server's side the flows have ended already.
        let endings: Vec<Ending> = pair
            .network
            .command(server, |engine, _| {
                std::iter::from_fn(|| engine.poll_event()).collect::<Vec<_>>()
            })
            .iter()
            .filter_map(|event| match event {
                EngineEvent::Shared(Event::FlowClosed(summary)) => Some(summary.ending),
                _ => None,
            })
            .collect();
        assert_eq!(endings, [Ending::Abandoned(FlowCode::Revoked); 2]);
        pair.network.run_for(SECOND);
        let revoked = |event: &EngineEvent| {
            matches!(
                event,
                EngineEvent::Shared(Event::Disconnected {
                    reason: LossReason::Revoked,
                    flows: 2,
                    ..
                })
            )
        };
        assert_eq!(pair.count(pair.client, revoked), 1);
        assert!(!pair.network.client(pair.client).is_connected());
        for target in ["kept", "revoked"] {
            let there = pair.network.dialled(pair.server, target);
            assert!(there.expect("the target was dialled").was_reset());
        }
        pair.network.run_for(5 * SECOND);
        assert!(pair.network.client(pair.client).is_connected());
        pair.check_nothing_left();
    }
}

#[test]
fn a_new_certificate_is_for_new_connections_and_open_ones_continue() {
    let mut pair = pair(config::NATIVE);
    let crypto = config::server(7).role.crypto;
    let server = pair.server;
    pair.network
        .command(server, |engine, _| {
            engine.server().set_server_crypto(&crypto)
        })
        .expect("a usable configuration");
    let seen = pair.network.server(pair.server);
    let before = seen.connection_reports()[0].id;
    let shown = seen.credentials(before).expect("the connection is up");
    assert!(shown.certificates.is_none() && shown.exporter.is_some());
    pair.network.run_for(12 * SECOND);
    let closed = pair.closed(pair.client);
    assert!(
        closed.len() == 2 && closed.iter().all(|flow| flow.ending == Ending::Finished),
        "{closed:?}"
    );
    assert_eq!(connection(&mut pair), before);
    // A client that connects now is served.
    pair.network.command(server, |engine, now| {
        engine.close_connection(now, before, CloseCode::Shutdown);
    });
    pair.network.run_for(10 * SECOND);
    assert!(pair.network.client(pair.client).is_connected());
    assert_ne!(connection(&mut pair), before);
}
