//! One sender on links with loss, as a table that is committed: a change of a controller shows up as a
//! difference of text.
//!
//! After a change that is meant, write the new table with `QUICTUN_BLESS=1 cargo test -p quictun-congestion
//! --test it grid`.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use crate::links::{auto, link, sender};
use crate::world::World;

/// What one sender got out of one link in ten seconds.
struct Cell {
    /// Of what the link carries after its loss: from the middle to the end, and in all.
    steady: f64,
    whole: f64,
    /// Seconds until nine tenths of it arrive.
    filled_s: f64,
    /// Wait of 95 of 100 packets, and share of them that the queue dropped.
    wait_ms: f64,
    dropped: f64,
}

/// Where packets are lost.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    Before,
    After,
}

fn measure(mbit: u64, rtt_ms: f64, loss: f64, buffer: f64, place: Place) -> Cell {
    let mut one = sender(auto, rtt_ms, 0.0);
    match place {
        Place::Before => one.loss_before = loss,
        Place::After => one.loss_after = loss,
    }
    one.loss_back = loss;
    let mut world = World::new(link(mbit, rtt_ms, buffer), 1, vec![one]);
    let end = Duration::from_secs(10);
    world.run_until(end);
    let flow = &world.flows[0];
    let most = mbit as f64 * 125_000.0 * (1.0 - loss);
    let slot_s = world.slot.as_secs_f64();
    let full = |bytes: &u64| *bytes as f64 / slot_s >= 0.9 * most;
    let filled = flow.series.iter().position(full).unwrap_or(9999);
    Cell {
        steady: flow.rate(world.slot, end / 2, end) / most,
        whole: flow.rate(world.slot, Duration::ZERO, end) / most,
        filled_s: (filled + 1) as f64 * slot_s,
        wait_ms: world.wait_ms(0.95),
        dropped: world.bottleneck.counters().queue_full as f64 / flow.sent as f64,
    }
}

/// The longest wait that is no standing queue.
fn wait_most_ms(rtt_ms: f64) -> f64 {
    (0.35 * rtt_ms).max(5.0)
}

#[test]
fn links_with_loss_are_filled_as_the_table_says() {
    let mut table = String::from(
        "Mbit/s  rtt ms  loss %  steady %  10 s %  90 % after s  wait p95 ms  dropped %\n",
    );
    for mbit in [20, 100, 600] {
        for rtt_ms in [1.0, 20.0, 100.0, 200.0] {
            for loss in [0.0, 0.001, 0.005, 0.01, 0.02, 0.05] {
                let cell = measure(mbit, rtt_ms, loss, 1.0, Place::After);
                let what = format!("{mbit} Mbit/s, {rtt_ms} ms, loss {loss}");
                assert!(cell.steady >= 0.95, "{what}: {} of the link", cell.steady);
                assert!(
                    cell.wait_ms <= wait_most_ms(rtt_ms),
                    "{what}: {} ms",
                    cell.wait_ms
                );
                if rtt_ms <= 100.0 {
                    assert!(
                        cell.filled_s <= 0.8 + 1e-9,
                        "{what}: filled after {} s",
                        cell.filled_s
                    );
                }
                writeln!(
                    table,
                    "{mbit:>6}  {rtt_ms:>6}  {:>6.1}  {:>8.1}  {:>6.1}  {:>12.2}  {:>11.1}  {:>9.2}",
                    loss * 100.0,
                    cell.steady * 100.0,
                    cell.whole * 100.0,
                    cell.filled_s,
                    cell.wait_ms,
                    cell.dropped * 100.0,
                )
                .expect("writing to a string");
            }
        }
    }
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/it/grid.txt");
    if std::env::var_os("QUICTUN_BLESS").is_some() {
        std::fs::write(&path, table).expect("the table is written");
        return;
    }
    let committed = std::fs::read_to_string(&path).expect("the table is committed");
    assert!(committed == table, "committed:\n{committed}\nnow:\n{table}");
}

#[test]
fn neither_the_place_of_loss_nor_the_buffer_matters_much() {
    for rtt_ms in [20.0, 100.0] {
        for loss in [0.0, 0.01, 0.05] {
            for (buffer, place) in [
                (0.5, Place::After),
                (4.0, Place::After),
                (1.0, Place::Before),
                (0.5, Place::Before),
            ] {
                let cell = measure(100, rtt_ms, loss, buffer, place);
                let before = place == Place::Before;
                let what = format!("{rtt_ms} ms, loss {loss} (before: {before}), buffer {buffer}");
                assert!(cell.steady >= 0.95, "{what}: {} of the link", cell.steady);
                assert!(
                    cell.wait_ms <= wait_most_ms(rtt_ms),
                    "{what}: {} ms",
                    cell.wait_ms
                );
                assert!(cell.dropped <= 0.01, "{what}: {} dropped", cell.dropped);
            }
        }
    }
}
