//! A connection that has carried data one way is as fast the other way.

use quictun_sim::{Dial, Script, Seed, Write, config};

use crate::world::{MS, SECOND, World, limited};

const RATE: u64 = 75_000_000;

/// Least share of the link, in percent, over a second that begins a second after the first byte.
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
            let stalled = Script::client(2).read([quictun_sim::Read::Pause(1000 * SECOND)]);
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

fn world(number: u64) -> World {
    let seed = Seed::fixed(number);
    let link = limited(RATE, 20 * MS);
    let mut world = World::new(seed, config::NATIVE, link);
    world.connect();
    world
}

/// The share of the link, in percent, that `received` grows by.
fn share(world: &mut World, received: impl Fn(&World) -> u64) -> u64 {
    world.network.run_for(SECOND);
    let before = received(world);
    world.network.run_for(SECOND);
    (received(world) - before) * 100 / RATE
}
