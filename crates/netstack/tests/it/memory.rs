//! Flows without traffic have no buffers, busy flows have large ones, and all buffers together stay within the limit.

use std::time::Duration;

use quictun_netstack::{Config, Ending};

use crate::peer::Connection;
use crate::world::{World, v4, v6, wire};

const SECOND: Duration = Duration::from_secs(1);

fn all_received(bytes: u64) -> impl Fn(&World) -> bool {
    move |world| {
        world
            .peer
            .connections
            .iter()
            .all(|one| one.received == bytes)
    }
}

#[test]
fn a_thousand_idle_flows_have_no_buffers_and_work_when_woken() {
    let mut world = World::new(Config::default(), wire(), 1);
    for number in 0..1000 {
        let index = world.connect(if number % 2 == 0 { v4() } else { v6() }, 200);
        world.peer.connections[index].stays = true;
    }
    assert!(world.run(SECOND * 9, all_received(200)));
    world.run(SECOND * 9, |_| false);
    assert_eq!(world.stack.counters().slept, 1000);
    // Free buffers are kept for the next flows.
    assert!(
        world.stack.usage().buffer_bytes <= 16 << 20,
        "{:?}",
        world.stack.usage()
    );
    assert_eq!(world.stack.usage().flows, 1000);
    // The flows are woken twice by the application, then finished.
    for round in 2..=3 {
        for index in 0..1000 {
            world.peer.connections[index].to_send = 200 * round;
            world.touch(index);
        }
        assert!(world.run(SECOND * 9, all_received(200 * round)));
        world.run(SECOND * 9, |_| false);
        assert_eq!(world.stack.counters().slept, 1000 * round);
    }
    for index in 0..1000 {
        world.peer.connections[index].stays = false;
        world.touch(index);
    }
    let done = |world: &World| world.peer.connections.iter().all(Connection::is_done);
    assert!(world.run(SECOND * 9, done));
    world.run(SECOND * 9, |_| false);
    assert_eq!(world.stack.usage().flows, 0);
}

#[test]
fn who_connects_and_says_nothing_gives_its_buffers_back_sooner() {
    for (bytes, idle_after) in [(0, SECOND / 4), (200, SECOND)] {
        let mut world = World::new(Config::default(), wire(), 1);
        let index = world.connect(v4(), bytes);
        world.peer.connections[index].stays = true;
        let start = world.now;
        assert!(world.run(SECOND * 9, |world| world.stack.counters().slept == 1));
        let took = world.now.saturating_duration_since(start);
        assert!(
            (idle_after..idle_after + SECOND / 10).contains(&took),
            "with {bytes} bytes after {took:?}"
        );
    }
}

#[test]
fn what_the_service_writes_wakes_a_flow() {
    let mut world = World::new(Config::default(), wire(), 1);
    let index = world.connect(v6(), 0);
    world.peer.connections[index].stays = true;
    world.run(SECOND * 3600, |_| false);
    assert_eq!(world.stack.counters().slept, 1);
    let flow = world.service.offered[0];
    let text: Vec<u8> = (0..500).map(|at| crate::peer::pattern(0, at)).collect();
    assert_eq!(world.stack.write(world.now, flow, &text), Ok(500));
    assert!(world.run(SECOND, all_received(500)));
    assert!(world.peer.connections[0].intact);
    world.run(SECOND * 5, |_| false);
    assert_eq!(world.stack.counters().slept, 2);
    // Finishing wakes the flow as well.
    world.stack.finish(world.now, flow).unwrap();
    assert!(world.run(SECOND, |world| world.peer.connections[0].saw_end));
}

#[test]
fn a_keep_alive_probe_wakes_nobody_and_is_answered() {
    let mut world = World::new(Config::default(), wire(), 1);
    let index = world.connect(v4(), 100);
    world.peer.connections[index].stays = true;
    world.run(SECOND * 5, |_| false);
    assert_eq!(world.stack.counters().slept, 1);
    world.peer.keep_alive(index, SECOND);
    world.touch(index);
    let before = world.packets;
    world.run(SECOND * 10, |_| false);
    assert!(
        world.packets >= before + 8,
        "{} answers",
        world.packets - before
    );
    assert_eq!(world.stack.counters().slept, 1);
}

#[test]
fn more_bulk_than_memory_gets_through_all_the_same() {
    let config = Config {
        window: 64 * 1024,
        memory: 4 * 64 * 1024,
        idle_after: Duration::from_millis(200),
        ..Config::default()
    };
    let limit = config.memory;
    let mut world = World::new(config, wire(), 1);
    for _ in 0..12 {
        world.connect(v4(), 200_000);
    }
    let done = |world: &World| {
        assert!(world.stack.usage().buffer_bytes <= limit);
        world.peer.connections.iter().all(Connection::is_done)
    };
    assert!(
        world.run(SECOND * 600, done),
        "{:?}",
        world.stack.counters()
    );
}

#[test]
fn idle_flows_lend_their_buffers() {
    let config = Config {
        window: 64 * 1024,
        memory: 2 * 64 * 1024,
        idle_after: Duration::from_hours(1),
        ..Config::default()
    };
    let mut world = World::new(config, wire(), 1);
    // Fifty flows open one after the other and stay open: more than there are buffers for.
    for _ in 0..50 {
        let index = world.connect(v4(), 100);
        world.peer.connections[index].stays = true;
        world.run(SECOND * 400, |_| false);
    }
    assert!(all_received(100)(&world));
    assert!(world.stack.counters().slept > 0);
    for index in 0..50 {
        world.peer.connections[index].to_send = 300;
        world.touch(index);
        world.run(SECOND * 400, |_| false);
    }
    assert!(all_received(300)(&world));
    assert!(
        world
            .service
            .endings
            .iter()
            .all(|(_, ending)| *ending == Ending::Finished)
    );
}
