//! The validity of a run: the link's configured and actual behaviour, and the state of the machine meanwhile.

use crate::findings::Findings;
use crate::record::{Cell, DirectionAccount};
use crate::stats::median;
use crate::writing::{quantity, shown, with_readable_times};

/// Returns one row per case, after the heading.
pub(super) fn table(findings: &Findings<'_>) -> Vec<Vec<String>> {
    let head = [
        "case",
        "measurements that count",
        "loss asked",
        "loss found",
        "p99 delay beyond schedule, worst run",
        "frames too late, worst run",
        "emulator busy, worst run",
        "packets dropped by accident, worst run",
        "processor time stolen, worst run",
        "processors idle, worst run",
    ];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for case in &findings.scenario.cases {
        let cells = findings
            .run
            .cells
            .iter()
            .filter(|cell| cell.case == case.id);
        let cells: Vec<&Cell> = cells.collect();
        if !cells.is_empty() {
            let outcomes = findings.run.outcomes().into_iter();
            let here: Vec<bool> = outcomes
                .filter(|((of, ..), _)| *of == case.id)
                .map(|(_, valid)| valid)
                .collect();
            let valid = here.iter().filter(|valid| **valid).count();
            rows.push(row(&case.label, &cells, [valid, here.len()]));
        }
    }
    rows
}

fn row(label: &str, cells: &[&Cell], [valid, all]: [usize; 2]) -> Vec<String> {
    let cells: Vec<&&Cell> = cells
        .iter()
        .filter(|cell| cell.valid || valid == 0)
        .collect();
    // Most traffic goes upwards, so loss is taken from that direction. Lateness and load are those of the worse
    // direction.
    let ups: Vec<&DirectionAccount> = cells
        .iter()
        .filter_map(|cell| Some(&cell.link.as_ref()?.up))
        .collect();
    let most = |value: fn(&DirectionAccount) -> f64| {
        let links = cells.iter().filter_map(|cell| cell.link.as_ref());
        let values = links.flat_map(|link| [value(&link.up), value(&link.down)]);
        values.fold(f64::NAN, f64::max)
    };
    let or_none = |value: f64, unit: &str, scale: f64| {
        if value.is_nan() {
            "-".to_owned()
        } else {
            format!("{}{unit}", shown(value * scale))
        }
    };
    let asked = ups
        .iter()
        .find_map(|direction| direction.loss_asked)
        .unwrap_or(f64::NAN);
    let found: Vec<f64> = ups.iter().map(|direction| direction.loss).collect();
    let steal = cells.iter().map(|cell| cell.steal).fold(0.0, f64::max);
    let idle = cells.iter().map(|cell| cell.idle).fold(1.0, f64::min);
    #[expect(clippy::cast_precision_loss, reason = "counts of drops")]
    let dropped = most(|direction| direction.unintended_drops as f64);
    let limit = most(|direction| direction.late_limit_us);
    let late_share = match or_none(most(|direction| direction.late_share), " %", 100.0) {
        share if limit.is_nan() => share,
        share => format!("{share} by > {}", quantity(limit, "us")),
    };
    let late = match most(|direction| direction.late_p99_us) {
        late if late.is_nan() => "-".to_owned(),
        late => quantity(late, "us"),
    };
    vec![
        label.to_owned(),
        format!("{valid} of {all}"),
        or_none(asked, " %", 100.0),
        or_none(median(&found).unwrap_or(f64::NAN), " %", 100.0),
        late,
        late_share,
        or_none(most(|direction| direction.busy), " %", 100.0),
        or_none(dropped, "", 1.0),
        or_none(steal, " %", 100.0),
        or_none(idle, " %", 100.0),
    ]
}

/// Share of idle processor time below which a cell measures the work per byte rather than the link.
const IDLE: f64 = 0.05;

pub(super) fn notes(findings: &Findings<'_>) -> Vec<String> {
    let mut notes = vec![
        "Both ends and the link share the processors of one machine: rates that are limited by them must not be \
         compared with those of two machines."
            .to_owned(),
    ];
    let cells = &findings.run.cells;
    let starved = cells
        .iter()
        .filter(|cell| cell.valid && cell.idle < IDLE)
        .count();
    if starved > 0 {
        notes.push(format!(
            "In {starved} of {} measurements the processors were idle for less than {:.0} %: these say how much work there \
             is in a byte, and little of the link.",
            cells.len(),
            IDLE * 100.0
        ));
    }
    let again = cells.len() - findings.run.outcomes().len();
    if again > 0 {
        notes.push(format!(
            "Made again because the machine had spoilt it (see below): {again}. Link and machine decided that, not the \
             result. The table is of those that count."
        ));
    }
    for cell in cells.iter().filter(|cell| !cell.flags.is_empty()) {
        let counts = if cell.valid {
            "counts"
        } else {
            "does not count"
        };
        notes.push(format!(
            "{}, {}, block {}: {counts}; {}",
            cell.arm,
            findings.scenario.case_label(&cell.case),
            cell.block,
            with_readable_times(&cell.flags.join("; "))
        ));
    }
    notes
}
