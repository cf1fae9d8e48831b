//! A connection that has carried data in one direction is as fast in the other direction.

use quictun_sim::engine::Account;
use quictun_sim::{ReadStep, Script, Seed, SimulatedDial, WriteStep, config};

use crate::tunnel_pair::{MS, SECOND, TunnelPair, limited};

const RATE: u64 = 75_000_000;

/// Minimum share of the link, in percent, during the second that begins one second after the start of the flow.
const LEAST: u64 = 80;

#[test]
fn a_download_after_an_upload_fills_the_link() {
    for (number, abort) in [(1, false), (2, true)] {
        let mut pair = pair(number);
        let mut up = vec![WriteStep::Wait(SECOND), WriteStep::Send(150_000_000)];
        up.push(if abort {
            WriteStep::Abort
        } else {
            WriteStep::Finish
        });
        let sink = Script::server(1).write([WriteStep::ReceivedEnd, WriteStep::Finish]);
        let host = pair.network.host(pair.server);
        host.serve("sink", SimulatedDial::connects(), sink);
        let pour = Script::server(2).write([WriteStep::Send(u64::MAX / 4)]);
        host.serve("pour", SimulatedDial::connects(), pour);
        pair.network
            .open(pair.client, "sink", Script::client(1).write(up));
        pair.network.run_for(5 * SECOND);
        let app = pair.network.open(pair.client, "pour", Script::client(2));
        let share = share(&mut pair, |pair| pair.network.outcome(app).received);
        assert!(share >= LEAST, "abort {abort}: {share} % of the link");
    }
}

#[test]
fn an_upload_beside_stalled_downloads_fills_the_link() {
    for flows in [1, 1000] {
        let mut pair = pair(3);
        let host = pair.network.host(pair.server);
        let pour = Script::server(2).write([WriteStep::Send(u64::MAX / 4)]);
        host.serve("pour", SimulatedDial::connects(), pour);
        host.serve("sink", SimulatedDial::connects(), Script::server(1));
        for _ in 0..flows {
            let stalled = Script::client(2).read([ReadStep::Pause(1000 * SECOND)]);
            pair.network.open(pair.client, "pour", stalled);
        }
        pair.network.run_for(5 * SECOND);
        let script = Script::client(1).write([WriteStep::Send(u64::MAX / 4)]);
        pair.network.open(pair.client, "sink", script);
        let share = share(&mut pair, |pair| {
            let sink = pair.network.dialled(pair.server, "sink");
            sink.map_or(0, |sink| sink.received)
        });
        assert!(share >= LEAST, "{flows} stalled: {share} % of the link");
    }
}

// PROTOCOL MEMORY-2. On a link this fast a flow receives a whole window before its peer gets the HOLD frame.
#[test]
fn a_download_beside_stalled_downloads_fills_a_fast_link() {
    let (rate, round_trip) = (1_250_000_000, MS / 5);
    let cases = [
        (1 << 30, 1, LEAST),
        (1 << 30, 100, LEAST),
        (64 << 20, 1, 70),
        (64 << 20, 20, 70),
        // The memory is full of data that waits: the flow continues, slowly.
        (8 << 20, 20, 1),
    ];
    for (budget, flows, least) in cases {
        let link = limited(rate, round_trip);
        let mut client = config::client_speaking(config::NATIVE, 4);
        client.transport.account = Account::new(budget);
        let server = config::server(4);
        let mut pair = TunnelPair::with(Seed::fixed(4), client, server, link.clone(), link);
        pair.connect();
        let host = pair.network.host(pair.server);
        let pour = Script::server(2).write([WriteStep::Send(u64::MAX / 4)]);
        host.serve("pour", SimulatedDial::connects(), pour);
        for _ in 0..flows {
            let stalled = Script::client(2).read([ReadStep::Pause(1000 * SECOND)]);
            pair.network.open(pair.client, "pour", stalled);
        }
        pair.network.run_for(SECOND / 2);
        let script = Script::client(2);
        let app = pair.network.open(pair.client, "pour", script);
        pair.network.run_for(SECOND / 20);
        let before = pair.network.outcome(app).received;
        pair.network.run_for(SECOND / 20);
        let received = pair.network.outcome(app).received - before;
        let share = received * 20 * 100 / rate;
        let case = format!("{budget} bytes of memory, {flows} stalled");
        assert!(share >= least, "{case}: {share} % of the link");
        assert_eq!(pair.closed(pair.client).len(), 0, "{case}: a flow ended");
    }
}

// PROTOCOL CONTROL-7. The server ignores HOLD for a stream whose MOVE it has not read, and sends a window before it reads
// HOLD.
#[test]
fn a_flow_that_reads_slowly_holds_little_however_often_it_moves() {
    for (number, loss) in [(1, 0.0), (2, 0.3), (3, 0.3), (4, 0.3), (5, 0.3)] {
        let link = limited(1_250_000_000, MS / 5);
        let mut up = link.clone();
        up.loss = loss;
        let mut client = config::client_speaking(config::NATIVE, 4);
        let mut server = config::server(4);
        (client.role.bond_ttl, server.role.bond_ttl) = (60 * SECOND, 60 * SECOND);
        client.transport.account = Account::new(1 << 30);
        let mut pair = TunnelPair::with(Seed::fixed(number), client, server, up, link);
        pair.connect();
        let host = pair.network.host(pair.server);
        let pour = Script::server(2).write([WriteStep::Send(u64::MAX / 4)]);
        host.serve("pour", SimulatedDial::connects(), pour);
        let (bytes, every) = (40_000, MS);
        let slow = Script::client(2).read([ReadStep::Slowly { bytes, every }]);
        pair.network.open(pair.client, "pour", slow);
        for step in 1..40 {
            pair.network.run_for(step * MS);
            pair.network
                .command(pair.client, |engine, now| engine.client().reconnect(now));
        }
        let case = format!("seed {number}, loss {loss}");
        assert_eq!(pair.closed(pair.client).len(), 0, "{case}: the flow ended");
        let engine = pair.network.host(pair.client).engine();
        let received = engine.flow_resources().received;
        assert!(received < 16 << 20, "{case}: {received} bytes wait");
    }
}

fn pair(number: u64) -> TunnelPair {
    let seed = Seed::fixed(number);
    let link = limited(RATE, 20 * MS);
    let mut pair = TunnelPair::new(seed, config::NATIVE, link);
    pair.connect();
    pair
}

/// Returns the growth of `received` over a second that begins in one second, as a share of the link in percent.
fn share(pair: &mut TunnelPair, received: impl Fn(&TunnelPair) -> u64) -> u64 {
    pair.network.run_for(SECOND);
    let before = received(pair);
    pair.network.run_for(SECOND);
    (received(pair) - before) * 100 / RATE
}
