//! Shows the progress of a run: one line that is updated on a terminal, otherwise one line per cell.

use std::io::{self, Write as _};
use std::time::{Duration, Instant};

use quictun_args::terminal::say;
use quictun_control::terminal::columns;
use quictun_lab::{Cell, Metric, PlannedCell, Scenario};

/// Width of tables without a terminal, and the limits of their width. All in columns.
const USUAL_WIDTH: usize = 80;
const LEAST_WIDTH: usize = 40;
const MOST_WIDTH: usize = 160;

/// Moves the cursor to the beginning of the line and clears the line.
const ANEW: &str = "\r\x1b[K";

/// Metrics that summarize a cell. The first one that the cell has is shown.
const HEADLINES: [(Metric, &str); 8] = [
    (Metric::ReceiverMbitPerS, "Mbit/s"),
    (Metric::BackgroundDownMbitPerS, "Mbit/s"),
    (Metric::BackgroundUpMbitPerS, "Mbit/s"),
    (Metric::TotalMs, "ms in all"),
    (Metric::LatencyP50Us, "us p50"),
    (Metric::TransactionsPerS, "transactions/s"),
    (Metric::TransferS, "s"),
    (Metric::ReceiverMbPerS, "MB/s"),
];

/// Returns the width of a report on standard output, in columns.
pub(crate) fn report_width() -> usize {
    columns(&io::stdout()).map_or(USUAL_WIDTH, |width| width.clamp(LEAST_WIDTH, MOST_WIDTH))
}

/// Returns the width of the terminal on standard output, or `None` if it is not a terminal.
pub(crate) fn list_width() -> Option<usize> {
    columns(&io::stdout())
}

/// Formats a time in minutes and seconds.
pub(crate) fn minutes(time: Duration) -> String {
    let seconds = time.as_secs();
    format!("{}:{:02} min", seconds / 60, seconds % 60)
}

/// Shows the progress of a run. Dropping it clears its line on a terminal.
pub(crate) struct Progress<'a> {
    scenario: &'a Scenario,
    begin: Instant,
    /// The estimated duration of each cell.
    estimates: Vec<Duration>,
    /// Width of the terminal on standard error. `None` if standard error is not a terminal.
    terminal: Option<usize>,
    /// The main figure of the last cell.
    last: String,
    /// Maximum widths of the labels of cases and of the ids of arms.
    names: [usize; 2],
}

impl<'a> Progress<'a> {
    pub(crate) fn new(
        scenario: &'a Scenario,
        cells: &[PlannedCell],
        quick: bool,
        begin: Instant,
    ) -> Self {
        let longest = |ids: Vec<&str>| ids.iter().map(|id| id.chars().count()).max();
        let cases = scenario.cases.iter().map(|case| &*case.label).collect();
        let arms = scenario.arms.iter().map(|arm| &*arm.id).collect();
        Self {
            scenario,
            begin,
            estimates: cells
                .iter()
                .map(|planned| scenario.estimate(planned, quick))
                .collect(),
            terminal: columns(&io::stderr()),
            last: String::new(),
            names: [longest(cases).unwrap_or(0), longest(arms).unwrap_or(0)],
        }
    }

    /// Prints a line that remains.
    pub(crate) fn say(&self, line: &str) {
        self.clear();
        say(line);
    }

    /// Shows that the cell with this number, counted from 0, begins.
    pub(crate) fn begins(&self, number: usize, cell: &Cell) {
        if let Some(width) = self.terminal {
            let line = self.line(number, cell, self.begin.elapsed());
            let line: String = line.chars().take(width.saturating_sub(1)).collect();
            put(&format!("{ANEW}{line}"));
        }
    }

    /// Shows that the cell with this number has ended.
    pub(crate) fn ended(&mut self, number: usize, cell: &Cell) {
        self.last = figure(cell);
        if self.terminal.is_none() {
            say(&self.row(number, cell, self.begin.elapsed()));
        } else if !cell.valid {
            self.say(&format!("{}: {}", self.named(cell), remarks(cell)));
        }
    }

    fn clear(&self) {
        if self.terminal.is_some() {
            put(ANEW);
        }
    }

    /// Formats the line for a terminal, such as `[20/60] 1:05 min left; 1%, tunnel, block 2; last 552.3 Mbit/s`.
    fn line(&self, number: usize, cell: &Cell, elapsed: Duration) -> String {
        let of = self.estimates.len();
        let last = match &*self.last {
            "" => String::new(),
            last => format!("; last {last}"),
        };
        format!(
            "[{:>digits$}/{of}] {} left; {}{last}",
            number + 1,
            minutes(self.left(number, elapsed)),
            self.named(cell),
            digits = of.to_string().len(),
        )
    }

    fn row(&self, number: usize, cell: &Cell, elapsed: Duration) -> String {
        let of = self.estimates.len();
        let [case, arm] = self.names;
        let row = format!(
            "[{:>digits$}/{of}] block {} {:<case$} {:<arm$} {:>14}  {} left  {}",
            number + 1,
            cell.block,
            self.label(cell),
            cell.arm,
            self.last,
            minutes(self.left(number + 1, elapsed)),
            remarks(cell),
            digits = of.to_string().len(),
        );
        row.trim_end().to_owned()
    }

    fn named(&self, cell: &Cell) -> String {
        format!("{}, {}, block {}", self.label(cell), cell.arm, cell.block)
    }

    fn label(&self, cell: &Cell) -> &str {
        let mut cases = self.scenario.cases.iter();
        let case = cases.find(|case| case.id == cell.case);
        case.map_or("", |case| &case.label)
    }

    /// Estimates the time that is left after `done` cells: the sum of the remaining estimates, scaled by the error of
    /// the earlier ones. A tenth of the whole counts as if it had taken the estimated time, so that the first cells
    /// have little influence.
    fn left(&self, done: usize, elapsed: Duration) -> Duration {
        let (before, after) = self.estimates.split_at(done.min(self.estimates.len()));
        let before: Duration = before.iter().sum();
        let after: Duration = after.iter().sum();
        let prior = (before + after) / 10;
        if prior.is_zero() || before.is_zero() {
            return after;
        }
        after.mul_f64((elapsed + prior).as_secs_f64() / (before + prior).as_secs_f64())
    }
}

impl Drop for Progress<'_> {
    fn drop(&mut self) {
        self.clear();
    }
}

fn figure(cell: &Cell) -> String {
    let mut all = HEADLINES.iter();
    let found = all.find_map(|(metric, unit)| Some((cell.metrics.get(metric)?, unit)));
    found.map_or(String::new(), |(value, unit)| format!("{value:.1} {unit}"))
}

fn remarks(cell: &Cell) -> String {
    match (cell.valid, &*cell.flags.join("; ")) {
        (true, "") => String::new(),
        (true, flags) => format!("({flags})"),
        (false, flags) => format!("DOES NOT COUNT: {flags}"),
    }
}

fn put(text: &str) {
    let mut out = io::stderr().lock();
    if out
        .write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .is_err()
    {
        // Standard error has no reader. The run continues.
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quictun_lab::{Schedule, Selection};

    const TEXT: &str = r#"
        name = "small"
        title = "t"
        workload.duration = "600ms"
        sweep.loss = ["0%", "1%"]
        [[arm]]
        id = "a"
        kind = "tcp"
        [[arm]]
        id = "longer"
        kind = "tunnel"
    "#;

    fn cell(arm: &str, flags: &[&str]) -> Cell {
        Cell {
            case: "loss=1%".to_owned(),
            arm: arm.to_owned(),
            block: 2,
            valid: flags.is_empty(),
            flags: flags.iter().map(|flag| (*flag).to_owned()).collect(),
            metrics: [(Metric::ReceiverMbitPerS, 552.26)].into(),
            ..Cell::default()
        }
    }

    #[test]
    fn a_progress_line_states_the_cell_and_the_remaining_time() {
        let scenario = Scenario::parse(TEXT).expect("a scenario");
        let schedule = Schedule::new(&scenario, &Selection::default(), 1).expect("a schedule");
        let cells = &schedule.cells;
        let mut progress = Progress::new(&scenario, cells, false, Instant::now());
        let seconds = Duration::from_secs;
        // The schedule has 28 cells, with an estimate of one second each.
        let line = progress.line(0, &cell("a", &[]), seconds(0));
        assert_eq!(line, "[ 1/28] 0:28 min left; 1%, a, block 2");
        progress.last = figure(&cell("a", &[]));
        // The first fourteen cells took twice as long as estimated.
        let line = progress.line(14, &cell("longer", &[]), seconds(28));
        assert_eq!(
            line,
            "[15/28] 0:25 min left; 1%, longer, block 2; last 552.3 Mbit/s"
        );
        let row = progress.row(13, &cell("a", &["late"]), seconds(28));
        assert_eq!(
            row,
            "[14/28] block 2 1% a        552.3 Mbit/s  0:25 min left  DOES NOT COUNT: late"
        );
    }
}
