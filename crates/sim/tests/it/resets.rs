//! Resets follow the bytes before them across moves of flows from one connection to the next (PROTOCOL CLOSE-3, BOND-15).

use std::time::Duration;

use quictun_sim::{
    AppId, AppOutcome, IncomingState, Outage, OutgoingState, ReadStep, Script, Seed, SimulatedDial,
    WriteStep, config,
};

use crate::tunnel_pair::{MS, SECOND, TunnelPair, limited};

/// Bytes that an application sends before its reset: more than the buffers of the link hold.
const BYTES: u64 = 400_000;

const TTL: Duration = Duration::from_mins(30);

/// Creates a pair whose link is dead from one second after the start on, for `lasts`.
fn pair(seed: u64, lasts: Duration) -> TunnelPair {
    let mut link = limited(500_000, 40 * MS);
    link.loss = 0.02;
    let from = 3 * SECOND;
    let until = from + lasts;
    link.outages.push(Outage { from, until });
    let seed = Seed::fixed(seed);
    let mut client = config::client_speaking(config::NATIVE, seed.value());
    let mut server = config::server(seed.value());
    client.role.bond_ttl = TTL;
    server.role.bond_ttl = TTL;
    let mut pair = TunnelPair::with(seed, client, server, link.clone(), link);
    pair.connect();
    pair
}

fn open(pair: &mut TunnelPair, client: Script, server: Script) -> AppId {
    let host = pair.network.host(pair.server);
    host.serve("target", SimulatedDial::connects(), server);
    pair.network.open(pair.client, "target", client)
}

fn target(pair: &TunnelPair) -> AppOutcome {
    let target = pair.network.dialled(pair.server, "target");
    target.expect("dialled").clone()
}

/// Runs a flow whose application at the server (`early_answer`) or at the client sends, and resets its connection
/// `before` the outage or in it. Checks that the other application gets everything, and then the reset.
fn check(seed: u64, early_answer: bool, before: Duration, lasts: Duration) {
    let mut pair = pair(seed, lasts);
    let elapsed = pair.network.elapsed();
    let wait = (3 * SECOND).saturating_sub(before + elapsed);
    let acts = [
        WriteStep::Wait(wait),
        WriteStep::Send(BYTES),
        WriteStep::Abort,
    ];
    let busy = [WriteStep::Send(3_000_000)];
    let (mut client, mut server) = (Script::client(1), Script::server(1));
    if early_answer {
        (client.write, server.write) = (busy.to_vec(), acts.to_vec());
        server.read = vec![ReadStep::Bytes(10_000), ReadStep::Never];
    } else {
        (client.write, server.write) = (acts.to_vec(), busy.to_vec());
        client.read = vec![ReadStep::Bytes(10_000), ReadStep::Never];
    }
    let app = open(&mut pair, client, server);
    pair.network.run_for(lasts + 60 * SECOND);
    let client = pair.network.outcome(app).clone();
    let other = if early_answer { client } else { target(&pair) };
    assert_eq!(
        (other.received, other.incoming, other.outgoing),
        (BYTES, IncomingState::Reset, OutgoingState::Reset),
        "seed {seed}, early answer {early_answer}, {before:?} before an outage of {lasts:?}"
    );
    pair.check_nothing_left();
}

#[test]
fn a_reset_and_the_bytes_before_it_outlive_the_loss_of_their_connection() {
    for early_answer in [false, true] {
        for before in 0..12 {
            // From a reset while the bytes are under way to one that the sender has almost completed.
            check(
                before,
                early_answer,
                u32::try_from(before).expect("small") * 100 * MS,
                20 * SECOND,
            );
        }
    }
}

#[test]
fn a_reset_and_the_bytes_before_it_outlive_a_silence_in_which_flows_move() {
    for early_answer in [false, true] {
        for before in 0..12 {
            check(
                before,
                early_answer,
                u32::try_from(before).expect("small") * 100 * MS,
                4 * SECOND,
            );
        }
    }
}

// PROTOCOL BOND-14, CLOSE-7: the server confirmed the first bytes with its answer.
#[test]
fn the_reset_of_a_short_flow_arrives_without_another_round_trip() {
    let round_trip = 40 * MS;
    let link = limited(500_000, round_trip);
    let mut client = config::client_speaking(config::NATIVE, 1);
    let mut server = config::server(1);
    client.role.bond_ttl = TTL;
    server.role.bond_ttl = TTL;
    let mut pair = TunnelPair::with(Seed::fixed(1), client, server, link.clone(), link);
    pair.connect();
    let (mut client, server) = (Script::client(1), Script::server(1));
    let waits = 500 * MS;
    client.write = vec![
        WriteStep::Send(100),
        WriteStep::Wait(waits),
        WriteStep::Abort,
    ];
    open(&mut pair, client, server);
    pair.network.run_for(waits.saturating_sub(MS));
    let sent = |pair: &mut TunnelPair| {
        let host = pair.network.host(pair.client);
        host.engine().totals().datagrams_sent
    };
    let before = sent(&mut pair);
    pair.network.run_for(2 * MS);
    let packets = sent(&mut pair) - before;
    assert_eq!(packets, 1, "the reset and the report of the end");
    pair.network.run_for(round_trip);
    let target = target(&pair);
    assert_eq!(
        (target.received, target.incoming),
        (100, IncomingState::Reset)
    );
}

// PROTOCOL BOND-15.
#[test]
fn a_reset_of_a_detached_flow_follows_on_the_next_connection() {
    for early_answer in [false, true] {
        let mut pair = pair(1, 60 * SECOND);
        let acts = [
            WriteStep::Wait(30 * SECOND),
            WriteStep::Send(5000),
            WriteStep::Abort,
        ];
        let (mut client, mut server) = (Script::client(1), Script::server(1));
        if early_answer {
            server.write = acts.to_vec();
        } else {
            client.write = acts.to_vec();
        }
        let app = open(&mut pair, client, server);
        pair.network.run_for(120 * SECOND);
        let client = pair.network.outcome(app).clone();
        let other = if early_answer { client } else { target(&pair) };
        assert_eq!(
            (other.received, other.incoming),
            (5000, IncomingState::Reset),
            "early answer {early_answer}"
        );
        pair.check_nothing_left();
    }
}

#[test]
fn an_application_that_resets_before_the_target_answers_loses_nothing() {
    let mut pair = pair(1, Duration::ZERO);
    let host = pair.network.host(pair.server);
    let after = SimulatedDial::Connects { after: SECOND };
    host.serve("late", after, Script::server(1));
    let script = Script::client(1).write([WriteStep::Send(100_000), WriteStep::Abort]);
    pair.network.open(pair.client, "late", script);
    pair.network.run_for(10 * SECOND);
    let late = pair.network.dialled(pair.server, "late").expect("dialled");
    assert_eq!(
        (late.received, late.incoming),
        (100_000, IncomingState::Reset)
    );
    pair.check_nothing_left();
}
