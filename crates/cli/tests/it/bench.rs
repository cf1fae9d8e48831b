//! `quictun bench`: what its flags come to.

use quictun_bench::Action as BenchAction;
use quictun_bench::ipc::{self, Options, Section};
use quictun_bench::netstack::{self, Mode, Polling, WireKind};
use quictun_cli::native::Action;
use quictun_ipc::WaitPolicy;

use crate::world::World;

fn options(line: &str) -> Options {
    match World::default().native(line) {
        Ok(Action::Bench(BenchAction::Ipc(ipc::Action::Measure(options)))) => options,
        other => panic!("{line}: not a measurement: {other:?}"),
    }
}

#[test]
fn the_defaults_are_the_published_concurrencies_in_five_runs() {
    let options = options("bench ipc");
    assert_eq!(options.concurrency, [1, 2, 4, 8, 16, 32, 64, 128, 512]);
    assert_eq!((options.repeats, options.run_ms), (5, 200));
    assert_eq!(options.policy, WaitPolicy::Hybrid);
    assert_eq!((options.sections.len(), options.idle_s), (7, 5));
    assert!(!options.force && !options.json && !options.csv && options.svg.is_none());
}

#[test]
fn every_flag_counts() {
    let line = "bench ipc --concurrency 3,7 --policy polling --repeats 2 --run-ms 10 --only idle,payload --idle-s 60 --csv --svg f.svg --force";
    let options = options(line);
    assert_eq!(options.concurrency, [3, 7]);
    assert_eq!((options.repeats, options.run_ms), (2, 10));
    assert_eq!(options.policy, WaitPolicy::Polling);
    assert_eq!(options.sections, [Section::Payload, Section::Idle]);
    assert_eq!(options.idle_s, 60);
    assert!(options.force && options.csv && !options.json);
    assert_eq!(options.svg.as_deref(), Some(std::path::Path::new("f.svg")));
}

#[test]
fn what_makes_no_sense_is_refused() {
    for line in [
        "bench ipc --concurrency 0",
        "bench ipc --concurrency 5000",
        "bench ipc --policy maybe",
        "bench ipc --repeats 0",
        "bench ipc --only nothing",
        "bench ipc --idle-s 0",
        "bench ipc --json --csv",
        "bench ipc --peer async x hybrid",
        "bench netstack --only nothing",
        "bench netstack --connections 0",
        "bench netstack --bytes 65",
        "bench netstack --wire air",
        "bench netstack --serve 1 read async here tun batch 1 1",
    ] {
        assert!(World::default().native(line).is_err(), "{line}");
    }
}

fn netstack_options(line: &str) -> netstack::Options {
    match World::default().native(line) {
        Ok(Action::Bench(BenchAction::Netstack(netstack::Action::Measure(options)))) => options,
        other => panic!("{line}: not a measurement: {other:?}"),
    }
}

#[test]
fn the_defaults_are_the_published_connections_both_ways() {
    let options = netstack_options("bench netstack");
    assert!(options.bulk && options.svg.is_none());
    assert_eq!(options.modes, [Mode::Read, Mode::Write, Mode::Call]);
    assert_eq!(options.connections, [1, 2, 4, 8, 16, 32]);
    assert_eq!(options.wires, [WireKind::Memory, WireKind::Tun]);
    assert_eq!(options.pollings, [Polling::EachSend, Polling::Batch]);
    assert_eq!((options.bytes, options.flows), (vec![1], vec![1, 8]));
}

#[test]
fn a_part_of_it_is_measured_where_that_is_asked_for() {
    let line = "bench netstack --only call --wire tun --poll batch --connections 3 --bytes 1,64";
    let options = netstack_options(line);
    assert!(!options.bulk);
    assert_eq!(options.modes, [Mode::Call]);
    assert_eq!((options.connections, options.bytes), (vec![3], vec![1, 64]));
    assert_eq!(options.wires, [WireKind::Tun]);
    assert_eq!(options.pollings, [Polling::Batch]);
}
