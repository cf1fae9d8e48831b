//! Bytes arrive once and in order, whatever the link does.

use std::time::Duration;

use quictun_link::{LinkConfig, Reorder};
use quictun_netstack::{Config, FlowEnding};

use crate::peer::{Connection, pattern};
use crate::simulation::{StackSimulation, v4, v6, wire};

const MINUTES: Duration = Duration::from_mins(10);

fn without_offload() -> Config {
    Config {
        offload: false,
        ..Config::default()
    }
}

/// Checks that every connection echoes `bytes` and ends properly on both sides.
fn check(
    config: Config,
    link: LinkConfig,
    seed: u64,
    connections: usize,
    bytes: u64,
) -> StackSimulation {
    let link_loses = link.loss > 0.0;
    let mut sim = StackSimulation::new(config, link, seed);
    for number in 0..connections {
        let target = if number % 2 == 0 { v4() } else { v6() };
        let index = sim.connect(target, bytes);
        if link_loses {
            // smoltcp 0.14 may fail to retransmit a lost FIN if more than the FIN is in flight. The stack works around
            // that on its side; the peer has to avoid it.
            sim.peer.connections[index].waits_for = bytes;
        }
    }
    let done = |sim: &StackSimulation| sim.peer.connections.iter().all(Connection::is_done);
    if !sim.run(MINUTES, done) {
        let open = sim.peer.connections.iter().filter(|one| !one.is_done());
        let states: Vec<_> = open
            .map(|one| (one.state(), one.sent, one.received, one.intact))
            .collect();
        panic!(
            "seed {seed}: not done: {states:?}; {:?}",
            sim.stack.counters()
        );
    }
    for one in &sim.peer.connections {
        assert_eq!((one.sent, one.received), (bytes, bytes));
    }
    // Lingering flows end, too.
    sim.run(MINUTES, |sim| sim.stack.usage().flows == 0);
    assert_eq!(sim.stack.usage().flows, 0);
    assert_eq!(sim.stack.usage().opening, 0);
    let finished = sim
        .service
        .endings
        .iter()
        .filter(|(_, ending)| *ending == FlowEnding::Finished);
    assert_eq!(finished.count(), connections);
    sim
}

#[test]
fn two_families_echo_megabytes_with_offload() {
    let sim = check(Config::default(), wire(), 1, 2, 3_000_000);
    assert_eq!(sim.stack.counters().grown, 2);
}

#[test]
fn bulk_leaves_in_super_packets() {
    for target in [v4(), v6()] {
        let mut sim = StackSimulation::new(Config::default(), wire(), 1);
        sim.connect(target, 0);
        sim.peer.connections[0].stays = true;
        assert!(sim.run(MINUTES, |sim| sim.service.opened == 1));
        let flow = sim.service.offered[0];
        let mut written = 0;
        while sim.peer.connections[0].received < 2_000_000 {
            let text: Vec<u8> = (written..2_000_000)
                .take(100_000)
                .map(|at| pattern(0, at))
                .collect();
            written += sim.stack.write(sim.now, flow, &text).unwrap() as u64;
            sim.run(Duration::from_micros(50), |_| false);
        }
        assert!(sim.peer.connections[0].intact);
        // The application's window is 64 kB, which bounds the length of a frame.
        assert!(sim.longest > 60_000, "{} bytes at most", sim.longest);
        assert!(sim.stack.counters().sent * 3 / 2 < sim.packets);
    }
}

#[test]
fn two_families_echo_megabytes_without_offload() {
    let sim = check(without_offload(), wire(), 2, 2, 1_000_000);
    assert_eq!(sim.stack.counters().sent, sim.packets);
    assert_eq!(sim.stack.counters().bad_checksums, 0);
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
    let sim = check(Config::default(), wire(), 3, 2000, 3000);
    assert_eq!(sim.service.opened, 2000);
    assert_eq!(sim.stack.counters().grown, 0);
}

#[test]
fn a_transfer_works_without_window_scaling() {
    let mut sim = StackSimulation::new(Config::default(), wire(), 4);
    // With buffers of up to 64 kB, smoltcp announces a window scale of 0; with larger ones, it announces a higher
    // scale.
    let index = sim.peer.connect(sim.now, v4(), 500_000, 1 << 20);
    sim.touch(index);
    assert!(sim.run(MINUTES, |sim| sim.peer.connections[0].is_done()));
    assert_eq!(sim.peer.connections[0].received, 500_000);
}
