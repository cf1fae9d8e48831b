//! The same seed gives the same run: every datagram, its time and its length.

use quictun_sim::engine::Engine;
use quictun_sim::{
    Detail, Dial, LinkConfig, Network, OriginalOptions, Reorder, Script, Seed, Write, config,
};

use crate::world::{MS, PROTOCOLS, SECOND, World, limited};

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
    let mut world = World::new(Seed::fixed(seed), protocols, rough());
    world.network.set_detail(Detail::Datagrams);
    for number in 0..5u64 {
        let token = format!("flow {number}");
        let writes = [Write::Send(100_000), Write::Finish];
        let server = Script::server(number).write(writes);
        world
            .network
            .host(world.server)
            .serve(&token, Dial::Connects { after: 5 * MS }, server);
        world
            .network
            .open(world.client, &token, Script::client(number).write(writes));
        world.network.run_for(100 * MS);
    }
    world.network.run_for(20 * SECOND);
    let client = world.client;
    world.network.command(client, Engine::close);
    world.network.run_for(SECOND);
    world.network.transcript().to_string()
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

#[test]
fn a_run_against_the_original_repeats_itself() {
    let run = || {
        let mut network = Network::new(Seed::fixed(1));
        network.set_detail(Detail::Datagrams);
        let original = network.add_original("original", OriginalOptions::default());
        let client = network.add_client("client", config::client(1), original);
        network.link(client, original, rough(), rough());
        network
            .original(original)
            .serve("tcp:echo", Dial::connects());
        let script = Script::echoed(1).write([
            Write::Send(200_000),
            Write::Received(200_000),
            Write::Finish,
        ]);
        network.open(client, "tcp:echo", script);
        network.run_for(20 * SECOND);
        network.transcript().to_string()
    };
    assert!(run() == run(), "two runs of one seed differ");
}
