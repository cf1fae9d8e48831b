//! Tables with a row for each link and load.

use std::fmt;

use anyhow::Context as _;
use quictun_args::terminal::print;
use quictun_link::units::{Delay, Rate, Share};
use serde::Serialize;

use super::cell::{CheckCell, Load};
use super::options::CheckOptions;
use super::report::us;

#[derive(Debug, Serialize)]
pub(super) struct RowKey {
    rate_bit_per_s: u64,
    round_trip_us: u64,
    loss: f64,
    load: &'static str,
    #[serde(skip)]
    cell: CheckCell,
}

impl RowKey {
    pub(super) fn new(cell: CheckCell, load: Load) -> Self {
        Self {
            rate_bit_per_s: cell.rate * 8,
            round_trip_us: us(cell.round_trip),
            loss: cell.loss,
            load: load.word(),
            cell,
        }
    }
}

impl fmt::Display for RowKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rate = Rate(self.cell.rate).to_string();
        let delay = Delay(self.cell.round_trip).to_string();
        let loss = Share(self.loss).to_string();
        write!(f, "{rate:>10} {delay:>8} {loss:>7}  {:<7}", self.load)
    }
}

/// Makes a row for each load on each link. Prints each row as soon as it is known.
pub(super) fn rows<R>(
    plan: &CheckOptions,
    heading: &str,
    line: fn(&R) -> String,
    mut row: impl FnMut(CheckCell, Load) -> anyhow::Result<R>,
) -> anyhow::Result<Vec<R>> {
    print(heading)?;
    let mut rows = Vec::new();
    for &cell in &plan.cells {
        for &load in &plan.loads {
            let row = row(cell, load).with_context(|| format!("at {cell}"))?;
            print(&line(&row))?;
            rows.push(row);
        }
    }
    Ok(rows)
}
