//! The share of a link that one flow uses, as a committed table: a change of the data path shows up as a text
//! difference.
//!
//! After an intended change, write the new table with `QUICTUN_BLESS=1 cargo test -p quictun-sim --test it throughput`.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use quictun_sim::{Script, Seed, SimulatedDial, WriteStep, config};

use crate::tunnel_pair::{MS, TunnelPair, limited};

/// Maximum difference between a share in a run and in the table, in thousandths of the link's rate.
const TOLERANCE: u64 = 20;

/// Minimum share of a link's capacity after losses, in thousandths. Headers take 41 thousandths.
const LEAST: u64 = 900;

/// The measurements on one link.
struct LinkMeasurement {
    mbit_per_s: u64,
    round_trip: Duration,
    loss_percent: u64,
    /// Thousandths of the link's rate that reached the application in the second half of the run.
    steady: u64,
    /// The same share for the whole run.
    whole: u64,
    queue_mean: Duration,
    queue_max: Duration,
}

#[test]
#[expect(
    clippy::print_stdout,
    reason = "prints the shares and the queues for people who run it"
)]
fn a_grid_of_links_is_used_as_the_table_says() {
    let mut cells = Vec::new();
    for mbit_per_s in [20, 100] {
        for round_trip in [MS, 20 * MS, 100 * MS] {
            for loss_percent in [0, 1, 5] {
                if mbit_per_s == 100 || loss_percent < 5 {
                    cells.push(measure(mbit_per_s, round_trip, loss_percent));
                }
            }
        }
    }
    // The kind of link that the tunnel is made for.
    cells.push(measure(600, 100 * MS, 1));
    let table = render(&cells);
    println!("{table}");
    for cell in &cells {
        assert!(
            cell.steady >= LEAST * (100 - cell.loss_percent) / 100,
            "the flow uses too small a share of a link:\n{table}"
        );
    }
    compare(&table);
}

/// Measures one upload over eight seconds.
fn measure(mbit_per_s: u64, round_trip: Duration, loss_percent: u32) -> LinkMeasurement {
    let rate = mbit_per_s * 1_000_000 / 8;
    let mut up = limited(rate, round_trip);
    up.loss = f64::from(loss_percent) / 100.0;
    let down = limited(rate, round_trip);
    let seed = Seed::fixed(u64::from(loss_percent) + 1);
    let value = seed.value();
    let client = config::client_speaking(config::NATIVE, value);
    let mut pair = TunnelPair::with(seed, client, config::server(value), up, down);
    pair.connect();
    let sink = Script::server(1);
    pair.network
        .host(pair.server)
        .serve("sink", SimulatedDial::connects(), sink);
    let script = Script::client(1).write([WriteStep::Send(u64::MAX / 4)]);
    pair.network.open(pair.client, "sink", script);
    let half = Duration::from_secs(4);
    let received = |pair: &TunnelPair| {
        pair.network
            .dialled(pair.server, "sink")
            .map_or(0, |sink| sink.received)
    };
    pair.network.run_for(half);
    let first = received(&pair);
    pair.network.run_for(half);
    let second = received(&pair) - first;
    let share = |bytes: u64, time: Duration| bytes * 1000 / (rate * time.as_secs());
    let counters = pair.network.counters(pair.client, pair.server);
    LinkMeasurement {
        mbit_per_s,
        round_trip,
        loss_percent: u64::from(loss_percent),
        steady: share(second, half),
        whole: share(first + second, half * 2),
        queue_mean: counters.queued_mean(),
        queue_max: counters.queued_max,
    }
}

fn render(cells: &[LinkMeasurement]) -> String {
    let mut table = String::from(
        "link Mbit/s  rtt ms  loss %  used (steady)  used (8 s)  queue mean ms  queue max ms\n",
    );
    for cell in cells {
        let percent = |thousandths: u64| format!("{}.{} %", thousandths / 10, thousandths % 10);
        let millis = |time: Duration| format!("{:.1}", time.as_secs_f64() * 1000.0);
        writeln!(
            table,
            "{:>11}  {:>6}  {:>6}  {:>13}  {:>10}  {:>13}  {:>12}",
            cell.mbit_per_s,
            cell.round_trip.as_millis(),
            cell.loss_percent,
            percent(cell.steady),
            percent(cell.whole),
            millis(cell.queue_mean),
            millis(cell.queue_max),
        )
        .expect("writing to a string");
    }
    table
}

/// Panics if the table differs too much from the committed one.
fn compare(table: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/it/throughput.txt");
    if std::env::var_os("QUICTUN_BLESS").is_some() {
        std::fs::write(&path, table).expect("the table is written");
        return;
    }
    let committed = std::fs::read_to_string(&path).expect("the table is committed");
    assert_eq!(
        numbers(&committed).len(),
        numbers(table).len(),
        "the tables differ in shape"
    );
    for (old, new) in numbers(&committed).iter().zip(numbers(table)) {
        assert!(
            old.abs_diff(new) <= TOLERANCE,
            "committed:\n{committed}\nnow:\n{table}"
        );
    }
}

/// Returns the used shares in a table, in thousandths.
fn numbers(table: &str) -> Vec<u64> {
    let words = table
        .lines()
        .skip(1)
        .flat_map(str::split_whitespace)
        .collect::<Vec<_>>();
    let shares = words
        .windows(2)
        .filter(|pair| pair[1] == "%")
        .map(|pair| pair[0]);
    shares
        .map(|share| share.replace('.', "").parse().expect("a share of use"))
        .collect()
}
