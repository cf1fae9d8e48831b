//! SYN floods and port scans are bounded, and answered or refused.

use std::net::SocketAddr;
use std::time::Duration;

use quictun_netstack::{Config, Event, Stack};

use crate::peer::Connection;
use crate::raw::{ACK, FIN, RST, RawSegment, SYN, give, take};
use crate::simulation::{StackSimulation, base, v4, wire};

fn source(number: u32) -> SocketAddr {
    let [_, a, b, c] = (number / 50_000 + 0x0a00_0001).to_be_bytes();
    let port = 1024 + u16::try_from(number % 50_000).unwrap();
    SocketAddr::from(([10, a, b, c], port))
}

#[test]
fn a_flood_of_syns_is_bounded_and_forgotten() {
    let mut now = base();
    let config = Config::default();
    let (opening, patience) = (config.max_opening, config.offer_timeout);
    let mut stack = Stack::new(config, 1, now).unwrap();
    for number in 0..20_000 {
        give(&mut stack, now, &RawSegment::new(source(number), v4(), SYN));
        now += Duration::from_micros(10);
    }
    assert_eq!(stack.usage().opening, opening);
    assert_eq!(stack.counters().too_many_flows, 20_000 - opening as u64);
    assert_eq!(stack.usage().buffer_bytes, 0, "an offer has buffers");
    assert_eq!(take(&mut stack, now).len(), 0, "an offer was answered");
    now += patience;
    stack.handle_timeout(now);
    assert_eq!(stack.usage().flows, 0);
    let resets = take(&mut stack, now);
    assert!(
        resets
            .iter()
            .all(|raw| raw.flags == RST | ACK && raw.ack == 1001)
    );
    assert_eq!(resets.len(), opening);
    let mut events = 0;
    while stack.poll_event().is_some() {
        events += 1;
    }
    assert_eq!(events, 2 * opening);
    // There is room for new flows again.
    give(&mut stack, now, &RawSegment::new(source(1), v4(), SYN));
    assert!(matches!(stack.poll_event(), Some(Event::Offered { .. })));
}

#[test]
fn accepted_flows_whose_application_is_gone_are_forgotten() {
    let mut now = base();
    let config = Config::default();
    let patience = config.open_timeout;
    let mut stack = Stack::new(config, 1, now).unwrap();
    for number in 0..1000 {
        give(&mut stack, now, &RawSegment::new(source(number), v4(), SYN));
        let Some(Event::Offered { flow, .. }) = stack.poll_event() else {
            panic!()
        };
        stack.accept(now, flow).unwrap();
    }
    let answers = take(&mut stack, now);
    assert_eq!(answers.len(), 1000);
    assert!(
        answers
            .iter()
            .all(|raw| raw.flags == SYN | ACK && raw.ack == 1001)
    );
    let until = now + patience + Duration::from_secs(1);
    let mut repeated = 0;
    while let Some(at) = stack.next_timeout().filter(|at| *at <= until) {
        now = at;
        stack.handle_timeout(now);
        repeated += take(&mut stack, now)
            .iter()
            .filter(|raw| raw.flags == SYN | ACK)
            .count();
    }
    assert_eq!(stack.usage().flows, 0);
    assert!((2000..=6000).contains(&repeated), "{repeated} repetitions");
}

#[test]
fn a_scan_of_all_ports_is_refused_one_by_one() {
    let now = base();
    let mut stack = Stack::new(Config::default(), 1, now).unwrap();
    for port in 1..=u16::MAX {
        let mut to = v4();
        to.set_port(port);
        give(&mut stack, now, &RawSegment::new(source(7), to, SYN));
        let Some(Event::Offered { flow, target, .. }) = stack.poll_event() else {
            panic!()
        };
        assert_eq!(target, to);
        stack.refuse(flow).unwrap();
        let answers = take(&mut stack, now);
        assert_eq!(answers.len(), 1);
        assert_eq!(
            (answers[0].flags, answers[0].from, answers[0].ack),
            (RST | ACK, to, 1001)
        );
    }
    assert_eq!(stack.usage(), quictun_netstack::StackUsage::default());
    // Of 65 535 outdated deadlines, only few are still queued.
    assert!(
        stack
            .next_timeout()
            .is_none_or(|at| at <= now + Duration::from_secs(30))
    );
}

#[test]
fn segments_of_no_flow_are_reset_and_resets_are_not() {
    let now = base();
    let mut stack = Stack::new(Config::default(), 1, now).unwrap();
    let stray = RawSegment {
        ack: 77,
        payload: vec![1, 2, 3],
        ..RawSegment::new(source(1), v4(), ACK)
    };
    give(&mut stack, now, &stray);
    give(
        &mut stack,
        now,
        &RawSegment {
            flags: FIN,
            ..stray.clone()
        },
    );
    give(
        &mut stack,
        now,
        &RawSegment {
            flags: RST,
            ..stray.clone()
        },
    );
    give(
        &mut stack,
        now,
        &RawSegment {
            flags: RST | ACK,
            ..stray
        },
    );
    let answers: Vec<_> = take(&mut stack, now)
        .iter()
        .map(|raw| (raw.flags, raw.seq, raw.ack))
        .collect();
    assert_eq!(answers, [(RST, 77, 0), (RST | ACK, 0, 1004)]);
    assert_eq!(stack.counters().strays, 4);
    assert_eq!(stack.poll_event(), None);
}

#[test]
fn a_storm_of_strays_fills_no_memory() {
    let now = base();
    let mut stack = Stack::new(Config::default(), 1, now).unwrap();
    for number in 0..10_000 {
        give(&mut stack, now, &RawSegment::new(source(number), v4(), ACK));
    }
    assert_eq!(take(&mut stack, now).len(), 4096);
    assert_eq!(stack.counters().replies_dropped, 10_000 - 4096);
}

#[test]
fn flows_beyond_the_limit_wait_and_get_through() {
    let config = Config {
        max_flows: 10,
        ..Config::default()
    };
    let mut sim = StackSimulation::new(config, wire(), 5);
    for _ in 0..11 {
        sim.connect(v4(), 100);
    }
    let done = |sim: &StackSimulation| sim.peer.connections.iter().all(Connection::is_done);
    assert!(sim.run(Duration::from_mins(1), done));
    assert!(sim.stack.counters().too_many_flows >= 1);
}
