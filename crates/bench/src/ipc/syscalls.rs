//! The counterpart on Linux of the original's asynchronous system call: batches through `io_uring`, compared with
//! single calls (B9).
//!
//! As in the original, memory is mapped behind 512 pages in turn and unmapped again. In addition, empty operations
//! measure the cost of entering the kernel alone.

use std::time::Duration;

use anyhow::Result;
use quictun_ipc::cycles;
use quictun_lab::put;
use quictun_sys::{BatchError, Batches, Operation};
use serde_json::{Value, json};

use crate::machine::{bind, ratio};
use crate::spread;

const CONCURRENCY: [u16; 4] = [1, 8, 64, 512];

/// Number of pages, as large as the largest batch.
const PAGES: usize = 512;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SyscallMethod {
    /// One system call per operation.
    Plain,
    /// A batch, for which the kernel is entered once.
    Batch,
    /// A batch that a kernel thread on the other core polls for.
    Polled,
}

impl SyscallMethod {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Plain => "a call each",
            Self::Batch => "io_uring, one core",
            Self::Polled => "io_uring, polled on the other core",
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct SyscallRow {
    pub(crate) way: SyscallMethod,
    pub(crate) maps: bool,
    pub(crate) concurrency: u16,
    /// Cycles per operation: median, minimum, maximum.
    pub(crate) cycles: [f64; 3],
    /// Number of times that the kernel was entered, per operation.
    pub(crate) enters: f64,
}

impl SyscallRow {
    fn what(&self) -> &'static str {
        if self.maps {
            "map and unmap"
        } else {
            "nothing"
        }
    }

    /// Returns the original's cycles and, if it gives them, the number of times that it entered its kernel.
    fn published(&self) -> Option<(u32, Option<f64>)> {
        match (self.maps, self.way, self.concurrency) {
            (true, SyscallMethod::Plain, _) => Some((8172, None)),
            (true, SyscallMethod::Batch, 8) => Some((22732, Some(0.125))),
            (true, SyscallMethod::Batch, 512) => Some((6136, Some(0.025))),
            (true, SyscallMethod::Polled, 8) => Some((20079, Some(0.144))),
            (true, SyscallMethod::Polled, 512) => Some((5286, Some(0.032))),
            _ => None,
        }
    }
}

/// Returns all rows, or the reason why there are none if this process may not use `io_uring`.
pub(crate) fn measure(
    cores: [usize; 2],
    repeats: usize,
    run: Duration,
) -> Result<Result<Vec<SyscallRow>, String>> {
    bind(cores[0])?;
    let mut rows = Vec::new();
    for maps in [true, false] {
        for way in [
            SyscallMethod::Plain,
            SyscallMethod::Batch,
            SyscallMethod::Polled,
        ] {
            let sizes: &[u16] = if way == SyscallMethod::Plain {
                &[1]
            } else {
                &CONCURRENCY
            };
            for &concurrency in sizes {
                let poll_on = (way == SyscallMethod::Polled).then(|| u32::try_from(cores[1]).ok());
                let entries = u32::from(concurrency);
                let mut batches = match Batches::new(entries, PAGES, poll_on.flatten()) {
                    Err(error @ BatchError::Unavailable(_)) => return Ok(Err(error.to_string())),
                    made => made?,
                };
                rows.push(row(&mut batches, way, maps, concurrency, repeats, run)?);
            }
        }
    }
    Ok(Ok(rows))
}

fn row(
    batches: &mut Batches,
    way: SyscallMethod,
    maps: bool,
    concurrency: u16,
    repeats: usize,
    run: Duration,
) -> Result<SyscallRow> {
    let (mut samples, mut operations, mut enters) = (Vec::new(), 0_u64, 0_u64);
    // The first run only warms up.
    for number in 0..=repeats {
        let (done, ticks, entered) = once(batches, way, maps, concurrency, run)?;
        if number > 0 {
            samples.push(ratio(ticks, done));
            operations += done;
            enters += entered;
        }
    }
    Ok(SyscallRow {
        way,
        maps,
        concurrency,
        cycles: spread::of(&samples),
        enters: ratio(enters, operations.max(1)),
    })
}

/// Returns the operations done within `run`, the ticks that they took, and the number of times that the kernel was
/// entered.
fn once(
    batches: &mut Batches,
    way: SyscallMethod,
    maps: bool,
    concurrency: u16,
    run: Duration,
) -> Result<(u64, u64, u64)> {
    let (from, start, before) = (std::time::Instant::now(), cycles(), batches.enters());
    let (mut done, mut page) = (0_u64, 0);
    let mut batch = Vec::with_capacity(usize::from(concurrency));
    while from.elapsed() < run {
        for unmaps in [false, true] {
            batch.clear();
            batch.extend((page..page + usize::from(concurrency)).map(|page| {
                match (maps, unmaps) {
                    (false, _) => Operation::Nothing,
                    (true, false) => Operation::Map(page),
                    (true, true) => Operation::Unmap(page),
                }
            }));
            if way == SyscallMethod::Plain {
                batch
                    .iter()
                    .try_for_each(|operation| batches.call(*operation))?;
            } else {
                batches.run(&batch)?;
            }
            done += u64::from(concurrency);
        }
        page = (page + usize::from(concurrency)) % PAGES;
    }
    let entered = match way {
        SyscallMethod::Plain => done,
        SyscallMethod::Batch | SyscallMethod::Polled => batches.enters() - before,
    };
    Ok((done, cycles() - start, entered))
}

pub(crate) fn table(rows: &Result<Vec<SyscallRow>, String>) -> String {
    let rows = match rows {
        Err(why) => return format!("\nNo system calls in batches (B9): {why}\n"),
        Ok(rows) if rows.is_empty() => return String::new(),
        Ok(rows) => rows,
    };
    let mut text = format!(
        "\nSystem calls, one by one and in batches (B9)\n\
         {:<34} {:<15} {:>5} {:>8} {:>17} {:>10} {:>9} {:>13}\n",
        "way", "what", "batch", "cycles", "least..most", "enters/op", "published", "their enters"
    );
    for row in rows {
        let [median, least, most] = row.cycles;
        let none = || "-".to_owned();
        let published = row.published();
        let theirs = published.and_then(|(_, enters)| enters);
        put!(
            text,
            "{:<34} {:<15} {:>5} {median:>8.0} {:>17} {:>10.4} {:>9} {:>13}\n",
            row.way.word(),
            row.what(),
            row.concurrency,
            format!("{least:.0}..{most:.0}"),
            row.enters,
            published.map_or_else(none, |(cycles, _)| cycles.to_string()),
            theirs.map_or_else(none, |enters| enters.to_string()),
        );
    }
    text
}

pub(crate) fn csv(rows: &Result<Vec<SyscallRow>, String>) -> String {
    let rows = rows.as_deref().unwrap_or_default();
    if rows.is_empty() {
        return String::new();
    }
    let mut text = String::from(
        "\nsyscall_way,what,batch,cycles_median,cycles_min,cycles_max,enters_per_operation\n",
    );
    for row in rows {
        let [median, least, most] = row.cycles;
        put!(
            text,
            "\"{}\",{},{},{median:.1},{least:.1},{most:.1},{:.6}\n",
            row.way.word(),
            row.what(),
            row.concurrency,
            row.enters
        );
    }
    text
}

pub(crate) fn json(rows: &Result<Vec<SyscallRow>, String>) -> Value {
    let one = |row: &SyscallRow| {
        json!({
            "way": row.way.word(),
            "what": row.what(),
            "batch": row.concurrency,
            "cycles": spread::json(row.cycles),
            "enters_per_operation": row.enters,
            "published_cycles": row.published().map(|(cycles, _)| cycles),
        })
    };
    match rows {
        Err(why) => json!({"unavailable": why}),
        Ok(rows) => rows.iter().map(one).collect(),
    }
}
