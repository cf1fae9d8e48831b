//! Rates, and their changes when processes and connections start and end.

use std::time::Duration;

use serde_json::json;

use super::super::fake::{answer, changed, connection, tunnel, with};
use super::super::minute::TrafficDirection;
use super::*;

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn close(rate: Option<f64>, expected: f64) -> bool {
    rate.is_some_and(|rate| (rate - expected).abs() < 1e-6 * expected.max(1.0))
}

fn only<T>(mut items: impl Iterator<Item = T>) -> T {
    let first = items.next().expect("one");
    assert!(items.next().is_none(), "more than one");
    first
}

#[test]
fn a_rate_is_the_difference_of_two_answers_over_the_time_between_them_at_the_process() {
    let mut view = StatusView::default();
    let first = answer(
        10.0,
        &[connection(1, "laptop", 5.0, 1000, 9000)],
        &[tunnel(1, 1, 4.0, 0, 500)],
    );
    view.learn(Ok(first), secs(0));
    assert_eq!(only(view.connections()).rate, TrafficRate::default());
    assert_eq!(only(view.flows()).rate, TrafficRate::default());
    // Two seconds have passed at the process, although the answers arrived three seconds apart.
    let second = answer(
        12.0,
        &[connection(1, "laptop", 7.0, 5000, 9000)],
        &[tunnel(1, 1, 6.0, 100, 2500)],
    );
    view.learn(Ok(second), secs(3));
    let rate = only(view.connections()).rate;
    assert!(
        close(rate.to_tunnel, 2000.0) && close(rate.from_tunnel, 0.0),
        "{rate:?}"
    );
    let rate = only(view.flows()).rate;
    assert!(
        close(rate.to_tunnel, 50.0) && close(rate.from_tunnel, 1000.0),
        "{rate:?}"
    );
    assert_eq!(only(view.flows()).client, "laptop");
    let client = only(view.clients());
    assert!(close(client.rate.to_tunnel, 2000.0), "{:?}", client.rate);
    assert!(close(view.rate.to_tunnel, 2000.0), "{:?}", view.rate);
}

#[test]
fn an_answer_of_the_same_moment_changes_no_rate() {
    let mut view = StatusView::default();
    for (age, bytes) in [(1.0, 0), (2.0, 500), (2.0, 500)] {
        let one = answer(age, &[connection(1, "a", age, bytes, 0)], &[]);
        view.learn(Ok(one), Duration::from_secs_f64(age));
    }
    assert!(close(only(view.connections()).rate.to_tunnel, 500.0));
}

#[test]
fn connections_of_a_peer_are_one_client_and_nameless_ones_go_by_their_address() {
    let mut view = StatusView::default();
    let slow = with(
        connection(3, "", 9.0, 0, 0),
        "remote",
        "[::ffff:198.51.100.7]:1234",
    );
    let silent = with(connection(2, "laptop", 9.0, 0, 0), "unresponsive", true);
    let odd = with(connection(4, "", 9.0, 0, 0), "remote", "\u{1b}[2J");
    let all = [connection(1, "laptop", 9.0, 0, 0), silent, slow, odd];
    view.learn(Ok(answer(10.0, &all, &[])), secs(1));
    let clients: Vec<_> = view.clients().collect();
    let names: Vec<&str> = clients.iter().map(|client| client.name.as_str()).collect();
    assert_eq!(names, ["198.51.100.7", "?[2J", "laptop"]);
    let laptop = clients[2];
    assert_eq!((laptop.connections, laptop.flows), (2, 5));
    assert!(
        close(laptop.rtt, 0.021),
        "only the responding connection counts: {:?}",
        laptop.rtt
    );
    assert_eq!(
        only(view.connections().filter(|it| it.rtt.is_none())).client,
        "laptop"
    );
}

#[test]
fn a_connection_that_is_new_has_counted_since_it_was_opened() {
    let mut view = StatusView::default();
    view.learn(Ok(answer(10.0, &[], &[])), secs(0));
    let new = connection(1, "a", 0.5, 1000, 0);
    view.learn(Ok(answer(11.0, &[new], &[])), secs(1));
    assert!(close(only(view.connections()).rate.to_tunnel, 2000.0));
    assert_eq!(
        view.minute
            .bars(TrafficDirection::Sent, secs(1), 60)
            .chars()
            .last(),
        Some('█')
    );
}

#[test]
fn a_restart_begins_all_counters_anew_and_leaves_the_bars() {
    let mut view = StatusView::default();
    for (age, bytes) in [(1_u32, 0), (2, 1_000_000)] {
        let age = f64::from(age);
        let one = answer(age, &[connection(1, "a", age, bytes, 0)], &[]);
        view.learn(Ok(one), Duration::from_secs_f64(age));
    }
    let anew = |uptime, age, bytes| {
        let all = [connection(1, "a", age, bytes, 0)];
        changed(uptime, &all, &[], |status| status["pid"] = json!(4712))
    };
    view.learn(Ok(anew(0.5, 1.5, 100)), secs(4));
    let restarted = only(view.connections());
    assert_eq!(restarted.rate, TrafficRate::default());
    assert_eq!(restarted.minute.loss(), None);
    view.learn(Ok(anew(1.5, 2.5, 2_000_100)), secs(5));
    assert!(close(only(view.connections()).rate.to_tunnel, 2e6));
    // One second of the old process, two unknown ones, and one of the new process.
    assert_eq!(
        view.minute
            .bars(TrafficDirection::Sent, secs(5), 60)
            .trim_start(),
        "▅  █"
    );
    // Counters of the same process that decrease, which quictun's never do.
    view.learn(Ok(anew(2.5, 3.5, 5)), secs(6));
    assert_eq!(only(view.connections()).rate, TrafficRate::default());
}

#[test]
fn an_unreachable_process_is_shown_with_its_time_until_it_returns() {
    let mut view = StatusView::default();
    let one = |age: u32, bytes| {
        let age = f64::from(age);
        answer(age, &[connection(1, "a", age, bytes, 0)], &[])
    };
    view.learn(Ok(one(1, 0)), secs(1));
    view.learn(Err("refused".to_owned()), secs(2));
    view.learn(Err("timed out".to_owned()), secs(5));
    let no_answer = view.no_answer.clone().expect("an unreachable process");
    assert_eq!(
        (no_answer.since, no_answer.why.as_str()),
        (secs(2), "timed out")
    );
    assert_eq!(view.connections().count(), 1, "the latest known state");
    assert_eq!(view.end(secs(5)), secs(5));
    view.learn(Ok(one(7, 6000)), secs(7));
    assert_eq!(view.no_answer, None);
    assert!(close(only(view.connections()).rate.to_tunnel, 1000.0));
}

#[test]
fn a_worker_that_is_silent_hides_its_connections_and_keeps_their_counters() {
    let mut view = StatusView::default();
    let one = |age: f64, bytes| connection(1, "a", age, bytes, 0);
    view.learn(Ok(answer(1.0, &[one(1.0, 0)], &[])), secs(1));
    let silent = changed(2.0, &[], &[], |status| {
        status["workers_silent"] = json!([1]);
    });
    view.learn(Ok(silent), secs(2));
    assert_eq!((view.connections().count(), view.clients().count()), (0, 0));
    view.learn(Ok(answer(3.0, &[one(3.0, 4000)], &[])), secs(3));
    assert!(close(only(view.connections()).rate.to_tunnel, 2000.0));
    // A connection that is gone while its worker answers is forgotten.
    view.learn(Ok(answer(4.0, &[], &[])), secs(4));
    view.learn(Ok(answer(5.0, &[one(5.0, 4000)], &[])), secs(5));
    assert!(close(only(view.connections()).rate.to_tunnel, 800.0));
}

#[test]
fn loss_covers_the_last_minute() {
    let mut view = StatusView::default();
    let one = |second: u32, packets: u64, lost: u64| {
        let age = f64::from(second);
        let one = connection(1, "a", age, u64::from(second), 0);
        let one = with(with(one, "packets_sent", packets), "packets_lost", lost);
        answer(age, &[one], &[])
    };
    view.learn(Ok(one(1, 1_000_000, 500_000)), secs(1));
    assert_eq!(only(view.connections()).minute.loss(), None);
    view.learn(Ok(one(2, 1_001_000, 500_010)), secs(2));
    assert!(close(only(view.connections()).minute.loss(), 0.01));
    assert!(close(only(view.clients()).minute.loss(), 0.01));
    view.learn(Ok(one(90, 1_001_000, 500_010)), secs(90));
    assert_eq!(
        only(view.connections()).minute.loss(),
        None,
        "nothing was sent"
    );
}

#[test]
fn a_clients_history_outlives_its_connection() {
    let mut view = StatusView::default();
    let at = |second: u32, id, age: f64, bytes| {
        let all = [connection(id, "a", age, bytes, 0)];
        (answer(f64::from(second), &all, &[]), secs(second.into()))
    };
    for (answer, now) in [
        at(1, 1, 1.0, 0),
        at(2, 1, 2.0, 1_000_000),
        at(3, 2, 1.0, 1_000_000),
    ] {
        view.learn(Ok(answer), now);
    }
    let bars = only(view.clients())
        .minute
        .bars(TrafficDirection::Both, secs(3), 60);
    assert_eq!(bars.trim_start(), "██");
    assert_eq!(
        only(view.connections())
            .minute
            .bars(TrafficDirection::Both, secs(3), 60)
            .trim_start(),
        "█"
    );
    view.learn(Ok(answer(100.0, &[], &[])), secs(100));
    assert!(view.clients.is_empty(), "forgotten after a minute");
}
