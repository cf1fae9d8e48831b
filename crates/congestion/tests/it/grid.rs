//! One sender on links with loss, as committed tables: a change of a controller shows up as a difference of text.
//!
//! After an intended change, write the new tables with `QUICTUN_BLESS=1 cargo test -p quictun-congestion --test it
//! grid`.

use std::cell::RefCell;
use std::fmt::Write as _;
use std::path::PathBuf;

use crate::cell::{LinkResult, LossPlace, LossyLink};
use crate::floors;

const OUTCOME: &str = "steady %  10 s %  90 % after s  wait p95 ms  dropped %";

#[test]
fn links_with_loss_are_filled_as_the_table_says() {
    let mut table = format!("Mbit/s  rtt ms  loss %  {OUTCOME}\n");
    for mbit in [20, 100, 600] {
        for rtt_ms in [1, 20, 100, 200] {
            for loss in [0.0, 0.001, 0.005, 0.01, 0.02, 0.05] {
                let case = LossyLink::new(mbit, rtt_ms, loss);
                let cell = LinkResult::worst(&case);
                floors::check(&case, &cell);
                writeln!(table, "{case}  {cell}").expect("writing to a string");
            }
        }
    }
    compare("grid.txt", &table);
}

/// Loss on either side of the bottleneck, single and in bursts, with short and long buffers. The test covers only
/// some of the links, because fast ones are expensive to simulate.
#[test]
fn the_kind_of_loss_and_the_buffer_matter_as_the_table_says() {
    let mut table = format!("Mbit/s  rtt ms  loss %  burst  place   buffer  {OUTCOME}\n");
    for mbit in [20, 100] {
        for rtt_ms in [1, 20, 100, 200] {
            for (loss, place, buffer) in ALONE {
                add(&mut table, mbit, rtt_ms, (loss, 1.0), (place, buffer));
            }
            for loss in BURSTS {
                for place in [LossPlace::Before, LossPlace::After] {
                    add(&mut table, mbit, rtt_ms, loss, (place, 1.0));
                }
            }
        }
    }
    for rtt_ms in [1, 20, 100, 200] {
        add(
            &mut table,
            600,
            rtt_ms,
            (0.05, 8.0),
            (LossPlace::After, 1.0),
        );
    }
    compare("kinds.txt", &table);
}

/// Share of single losses, the place at which they happen, and the size of the buffer.
const ALONE: [(f64, LossPlace, f64); 6] = [
    (0.0, LossPlace::After, 0.5),
    (0.0, LossPlace::After, 4.0),
    (0.01, LossPlace::Before, 1.0),
    (0.05, LossPlace::Before, 1.0),
    (0.05, LossPlace::After, 0.5),
    (0.05, LossPlace::After, 4.0),
];

/// Share of losses in bursts, and the mean length of the bursts.
const BURSTS: [(f64, f64); 4] = [(0.01, 3.0), (0.01, 8.0), (0.05, 3.0), (0.05, 8.0)];

fn add(table: &mut String, mbit: u64, rtt_ms: u32, loss: (f64, f64), queue: (LossPlace, f64)) {
    let case = LossyLink {
        burst: loss.1,
        place: queue.0,
        buffer: queue.1,
        ..LossyLink::new(mbit, rtt_ms, loss.0)
    };
    let cell = LinkResult::worst(&case);
    floors::check(&case, &cell);
    let place = match case.place {
        LossPlace::Before => "before",
        LossPlace::After => "after",
    };
    let (burst, buffer) = (case.burst, case.buffer);
    writeln!(
        table,
        "{case}  {burst:>5.0}  {place:<6}  {buffer:>6.1}  {cell}"
    )
    .expect("writing to a string");
}

thread_local! {
    static MISSED: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Notes a `cell` of a table that misses its minimum. [`compare`] fails the test once all cells are known.
pub(crate) fn expect(held: bool, cell: String) {
    if !held {
        MISSED.with_borrow_mut(|missed| missed.push(cell));
    }
}

/// Compares a table with the committed table of that name, and asserts that no cell has missed its minimum.
pub(crate) fn compare(name: &str, table: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/it")
        .join(name);
    let missed = MISSED.take().join("\n");
    if std::env::var_os("QUICTUN_BLESS").is_some() {
        std::fs::write(&path, table).expect("the table is written");
    }
    let committed = std::fs::read_to_string(&path).expect("the table is committed");
    assert!(missed.is_empty(), "floors missed:\n{missed}");
    assert!(committed == table, "committed:\n{committed}\nnow:\n{table}");
}
