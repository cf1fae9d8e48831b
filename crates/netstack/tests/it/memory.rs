//! Flows without traffic have no buffers, busy flows have large ones, and all buffers together stay within the limit.

use std::time::Duration;

use quictun_netstack::{Config, FlowEnding};

use crate::peer::Connection;
use crate::simulation::{StackSimulation, v4, v6, wire};

const SECOND: Duration = Duration::from_secs(1);

fn all_received(bytes: u64) -> impl Fn(&StackSimulation) -> bool {
    move |sim| sim.peer.connections.iter().all(|one| one.received == bytes)
}

#[test]
fn a_thousand_idle_flows_have_no_buffers_and_work_when_woken() {
    let mut sim = StackSimulation::new(Config::default(), wire(), 1);
    for number in 0..1000 {
        let index = sim.connect(if number % 2 == 0 { v4() } else { v6() }, 200);
        sim.peer.connections[index].stays = true;
    }
    assert!(sim.run(SECOND * 9, all_received(200)));
    sim.run(SECOND * 9, |_| false);
    assert_eq!(sim.stack.counters().slept, 1000);
    // Free buffers are kept for the next flows.
    assert!(
        sim.stack.usage().buffer_bytes <= 16 << 20,
        "{:?}",
        sim.stack.usage()
    );
    assert_eq!(sim.stack.usage().flows, 1000);
    // The flows are woken twice by the application, then finished.
    for round in 2..=3 {
        for index in 0..1000 {
            sim.peer.connections[index].to_send = 200 * round;
            sim.touch(index);
        }
        assert!(sim.run(SECOND * 9, all_received(200 * round)));
        sim.run(SECOND * 9, |_| false);
        assert_eq!(sim.stack.counters().slept, 1000 * round);
    }
    for index in 0..1000 {
        sim.peer.connections[index].stays = false;
        sim.touch(index);
    }
    let done = |sim: &StackSimulation| sim.peer.connections.iter().all(Connection::is_done);
    assert!(sim.run(SECOND * 9, done));
    sim.run(SECOND * 9, |_| false);
    assert_eq!(sim.stack.usage().flows, 0);
}

#[test]
fn a_flow_that_sends_nothing_returns_its_buffers_sooner() {
    for (bytes, idle_after) in [(0, SECOND / 4), (200, SECOND)] {
        let mut sim = StackSimulation::new(Config::default(), wire(), 1);
        let index = sim.connect(v4(), bytes);
        sim.peer.connections[index].stays = true;
        let start = sim.now;
        assert!(sim.run(SECOND * 9, |sim| sim.stack.counters().slept == 1));
        let took = sim.now.saturating_duration_since(start);
        assert!(
            (idle_after..idle_after + SECOND / 10).contains(&took),
            "with {bytes} bytes after {took:?}"
        );
    }
}

#[test]
fn a_write_by_the_service_wakes_a_flow() {
    let mut sim = StackSimulation::new(Config::default(), wire(), 1);
    let index = sim.connect(v6(), 0);
    sim.peer.connections[index].stays = true;
    sim.run(SECOND * 3600, |_| false);
    assert_eq!(sim.stack.counters().slept, 1);
    let flow = sim.service.offered[0];
    let text: Vec<u8> = (0..500).map(|at| crate::peer::pattern(0, at)).collect();
    assert_eq!(sim.stack.write(sim.now, flow, &text), Ok(500));
    assert!(sim.run(SECOND, all_received(500)));
    assert!(sim.peer.connections[0].intact);
    sim.run(SECOND * 5, |_| false);
    assert_eq!(sim.stack.counters().slept, 2);
    // Finishing wakes the flow as well.
    sim.stack.finish(sim.now, flow).unwrap();
    assert!(sim.run(SECOND, |sim| sim.peer.connections[0].saw_end));
}

#[test]
fn a_keep_alive_probe_is_answered_and_wakes_no_flow() {
    let mut sim = StackSimulation::new(Config::default(), wire(), 1);
    let index = sim.connect(v4(), 100);
    sim.peer.connections[index].stays = true;
    sim.run(SECOND * 5, |_| false);
    assert_eq!(sim.stack.counters().slept, 1);
    sim.peer.keep_alive(index, SECOND);
    sim.touch(index);
    let before = sim.packets;
    sim.run(SECOND * 10, |_| false);
    assert!(
        sim.packets >= before + 8,
        "{} answers",
        sim.packets - before
    );
    assert_eq!(sim.stack.counters().slept, 1);
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
    let mut sim = StackSimulation::new(config, wire(), 1);
    for _ in 0..12 {
        sim.connect(v4(), 200_000);
    }
    let done = |sim: &StackSimulation| {
        assert!(sim.stack.usage().buffer_bytes <= limit);
        sim.peer.connections.iter().all(Connection::is_done)
    };
    assert!(sim.run(SECOND * 600, done), "{:?}", sim.stack.counters());
}

#[test]
fn idle_flows_lend_their_buffers() {
    let config = Config {
        window: 64 * 1024,
        memory: 2 * 64 * 1024,
        idle_after: Duration::from_hours(1),
        ..Config::default()
    };
    let mut sim = StackSimulation::new(config, wire(), 1);
    // Fifty flows open one after the other and stay open: more than there are buffers for.
    for _ in 0..50 {
        let index = sim.connect(v4(), 100);
        sim.peer.connections[index].stays = true;
        sim.run(SECOND * 400, |_| false);
    }
    assert!(all_received(100)(&sim));
    assert!(sim.stack.counters().slept > 0);
    for index in 0..50 {
        sim.peer.connections[index].to_send = 300;
        sim.touch(index);
        sim.run(SECOND * 400, |_| false);
    }
    assert!(all_received(300)(&sim));
    assert!(
        sim.service
            .endings
            .iter()
            .all(|(_, ending)| *ending == FlowEnding::Finished)
    );
}
