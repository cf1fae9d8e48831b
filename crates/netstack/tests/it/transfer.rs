//! Bytes arrive once and in order, whatever the link does.

use std::time::Duration;

use quictun_link::{LinkConfig, Reorder};
use quictun_netstack::{Config, Ending};

use crate::peer::{Connection, pattern};
use crate::world::{World, v4, v6, wire};

const MINUTES: Duration = Duration::from_mins(10);

fn without_offload() -> Config {
    Config {
        offload: false,
        ..Config::default()
    }
}

/// Checks that every connection echoes `bytes` and ends properly on both sides.
fn check(config: Config, link: LinkConfig, seed: u64, connections: usize, bytes: u64) -> World {
    let link_loses = link.loss > 0.0;
    let mut world = World::new(config, link, seed);
    for number in 0..connections {
        let target = if number % 2 == 0 { v4() } else { v6() };
        let index = world.connect(target, bytes);
        if link_loses {
            // smoltcp 0.14 may fail to retransmit a lost FIN if more than the FIN is in flight. The stack works around
            // that on its side; the peer has to avoid it.
            world.peer.connections[index].waits_for = bytes;
        }
    }
    let done = |world: &World| world.peer.connections.iter().all(Connection::is_done);
    if !world.run(MINUTES, done) {
        let open = world.peer.connections.iter().filter(|one| !one.is_done());
        let states: Vec<_> = open
            .map(|one| (one.state(), one.sent, one.received, one.intact))
            .collect();
        panic!(
            "seed {seed}: not done: {states:?}; {:?}",
            world.stack.counters()
        );
    }
    for one in &world.peer.connections {
        assert_eq!((one.sent, one.received), (bytes, bytes));
    }
    // Lingering flows end, too.
    world.run(MINUTES, |world| world.stack.usage().flows == 0);
    assert_eq!(world.stack.usage().flows, 0);
    assert_eq!(world.stack.usage().opening, 0);
    let finished = world
        .service
        .endings
        .iter()
        .filter(|(_, ending)| *ending == Ending::Finished);
    assert_eq!(finished.count(), connections);
    world
}

#[test]
fn two_families_echo_megabytes_with_offload() {
    let world = check(Config::default(), wire(), 1, 2, 3_000_000);
    assert_eq!(world.stack.counters().grown, 2);
}

#[test]
fn bulk_leaves_in_super_packets() {
    for target in [v4(), v6()] {
        let mut world = World::new(Config::default(), wire(), 1);
        world.connect(target, 0);
        world.peer.connections[0].stays = true;
        assert!(world.run(MINUTES, |world| world.service.opened == 1));
        let flow = world.service.offered[0];
        let mut written = 0;
        while world.peer.connections[0].received < 2_000_000 {
            let text: Vec<u8> = (written..2_000_000)
                .take(100_000)
                .map(|at| pattern(0, at))
                .collect();
            written += world.stack.write(world.now, flow, &text).unwrap() as u64;
            world.run(Duration::from_micros(50), |_| false);
        }
        assert!(world.peer.connections[0].intact);
        // The application's window is 64 kB, which bounds the length of a frame.
        assert!(world.longest > 60_000, "{} bytes at most", world.longest);
        assert!(world.stack.counters().sent * 3 / 2 < world.packets);
    }
}

#[test]
fn two_families_echo_megabytes_without_offload() {
    let world = check(without_offload(), wire(), 2, 2, 1_000_000);
    assert_eq!(world.stack.counters().sent, world.packets);
    assert_eq!(world.stack.counters().bad_checksums, 0);
}

#[test]
fn loss_and_reordering_lose_nothing() {
    for seed in 0..20 {
        let link = LinkConfig {
            delay: Duration::from_millis(2),
            loss: 0.02,
            duplicate: 0.01,
            reorder: Reorder {
                share: 0.03,
                extra: Duration::from_millis(1),
            },
            ..LinkConfig::default()
        };
        let config = if seed % 2 == 0 {
            Config::default()
        } else {
            without_offload()
        };
        check(config, link, seed, 4, 150_000);
    }
}

#[test]
fn two_thousand_flows_at_a_time() {
    let world = check(Config::default(), wire(), 3, 2000, 3000);
    assert_eq!(world.service.opened, 2000);
    assert_eq!(world.stack.counters().grown, 0);
}

#[test]
fn a_window_that_is_not_scaled_does() {
    let mut world = World::new(Config::default(), wire(), 4);
    // With buffers of up to 64 kB, smoltcp announces a window scale of 0; with larger ones, it announces a higher
    // scale.
    let index = world.peer.connect(world.now, v4(), 500_000, 1 << 20);
    world.touch(index);
    assert!(world.run(MINUTES, |world| world.peer.connections[0].is_done()));
    assert_eq!(world.peer.connections[0].received, 500_000);
}
