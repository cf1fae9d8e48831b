//! A connection that has carried data in one direction is as fast in the other direction.

use quictun_sim::engine::Account;
use quictun_sim::{Dial, Read, Script, Seed, Write, config};

use crate::world::{MS, SECOND, World, limited};

const RATE: u64 = 75_000_000;

/// Minimum share of the link, in percent, during the second that begins one second after the start of the flow.
const LEAST: u64 = 80;

#[test]
fn a_download_after_an_upload_fills_the_link() {
    for (number, abort) in [(1, false), (2, true)] {
        let mut world = world(number);
        let mut up = vec![Write::Wait(SECOND), Write::Send(150_000_000)];
        up.push(if abort { Write::Abort } else { Write::Finish });
        let sink = Script::server(1).write([Write::ReceivedEnd, Write::Finish]);
        let host = world.network.host(world.server);
        host.serve("sink", Dial::connects(), sink);
        let pour = Script::server(2).write([Write::Send(u64::MAX / 4)]);
        host.serve("pour", Dial::connects(), pour);
        world
            .network
            .open(world.client, "sink", Script::client(1).write(up));
        world.network.run_for(5 * SECOND);
        let app = world.network.open(world.client, "pour", Script::client(2));
        let share = share(&mut world, |world| world.network.outcome(app).received);
        assert!(share >= LEAST, "abort {abort}: {share} % of the link");
    }
}

#[test]
fn an_upload_beside_stalled_downloads_fills_the_link() {
    for flows in [1, 1000] {
        let mut world = world(3);
        let host = world.network.host(world.server);
        let pour = Script::server(2).write([Write::Send(u64::MAX / 4)]);
        host.serve("pour", Dial::connects(), pour);
        host.serve("sink", Dial::connects(), Script::server(1));
        for _ in 0..flows {
            let stalled = Script::client(2).read([Read::Pause(1000 * SECOND)]);
            world.network.open(world.client, "pour", stalled);
        }
        world.network.run_for(5 * SECOND);
        let script = Script::client(1).write([Write::Send(u64::MAX / 4)]);
        world.network.open(world.client, "sink", script);
        let share = share(&mut world, |world| {
            let sink = world.network.dialled(world.server, "sink");
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
        // The memory is full of data that waits: the flow goes on, slowly.
        (8 << 20, 20, 1),
    ];
    for (budget, flows, least) in cases {
        let link = limited(rate, round_trip);
        let mut client = config::client_speaking(config::NATIVE, 4);
        client.transport.account = Account::new(budget);
        let server = config::server(4);
        let mut world = World::with(Seed::fixed(4), client, server, link.clone(), link);
        world.connect();
        let host = world.network.host(world.server);
        let pour = Script::server(2).write([Write::Send(u64::MAX / 4)]);
        host.serve("pour", Dial::connects(), pour);
        for _ in 0..flows {
            let stalled = Script::client(2).read([Read::Pause(1000 * SECOND)]);
            world.network.open(world.client, "pour", stalled);
        }
        world.network.run_for(SECOND / 2);
        let script = Script::client(2);
        let app = world.network.open(world.client, "pour", script);
        world.network.run_for(SECOND / 10);
        let before = world.network.outcome(app).received;
        world.network.run_for(SECOND / 10);
        let received = world.network.outcome(app).received - before;
        let share = received * 10 * 100 / rate;
        let case = format!("{budget} bytes of memory, {flows} stalled");
        assert!(share >= least, "{case}: {share} % of the link");
        assert_eq!(world.closed(world.client).len(), 0, "{case}: a flow ended");
    }
}

fn world(number: u64) -> World {
    let seed = Seed::fixed(number);
    let link = limited(RATE, 20 * MS);
    let mut world = World::new(seed, config::NATIVE, link);
    world.connect();
    world
}

/// Returns the growth of `received` over a second that begins in one second, as a share of the link in percent.
fn share(world: &mut World, received: impl Fn(&World) -> u64) -> u64 {
    world.network.run_for(SECOND);
    let before = received(world);
    world.network.run_for(SECOND);
    (received(world) - before) * 100 / RATE
}
