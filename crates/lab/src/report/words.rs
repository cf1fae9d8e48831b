//! The sentences and rows of a report, independent of its format.

use crate::Profile;
use crate::findings::{Figure, Findings, TableCell};
use crate::put;
use crate::writing::{percent, quantity, ratio, readable, shown};

pub(super) fn verdict(findings: &Findings<'_>) -> Vec<(Tone, String)> {
    let verdicts = findings.verdicts().into_iter();
    let mut lines: Vec<_> = verdicts.map(|line| (Tone::Plain, line)).collect();
    let mut say = |tone, line: String| lines.push((tone, line));
    let asserted = findings.asserted.len();
    let all = || findings.asserted.iter();
    let broken: Vec<_> = all().filter(|one| one.holds == Some(false)).collect();
    let untold: Vec<_> = all().filter(|one| one.holds.is_none()).collect();
    if asserted > untold.len() {
        let held = all().filter(|one| one.holds == Some(true)).count();
        let line = format!("{held} of {asserted} assertions hold");
        say(Tone::of(held == asserted), line);
    }
    if !untold.is_empty() {
        let (untold, runs) = (untold.len(), ends(untold.iter().map(|one| one.runs)));
        let line = format!(
            "{untold} of {asserted} assertions cannot be judged: each has {} of the {FEWEST} valid runs that are needed",
            from_to(runs)
        );
        say(Tone::Bad, line);
    }
    for one in broken {
        let found = one.found.map(|found| quantity(found, one.unit));
        let found = found.unwrap_or_else(|| "nothing".to_owned());
        say(
            Tone::Bad,
            format!("does not hold: {}; found {found}", one.what),
        );
    }
    let asserted = findings.asserted.iter();
    for one in asserted.filter(|one| one.allowed && one.holds == Some(true)) {
        let found = one.found.map(|found| format!("; found {found:.3}"));
        let found = found.unwrap_or_default();
        say(
            Tone::Plain,
            format!("allowing for headers: {}{found}", one.what),
        );
    }
    let (valid, invalid) = findings.validity();
    let cells = valid + invalid;
    let spoilt = match invalid {
        0 => "",
        _ => "; the others failed, or link or machine did not do what was asked",
    };
    let line = format!("{valid} of {cells} measurements count{spoilt}");
    say(Tone::of(invalid == 0 && cells > 0), line);
    if let Some(why) = &findings.run.ended_early {
        let (planned, reps) = (findings.run.planned, findings.run.asked.reps);
        let runs = from_to(findings.runs_of_cells());
        say(
            Tone::Bad,
            format!(
                "partial: {cells} of {planned} measurements, {why}; of each case and arm {runs} of {reps} runs count"
            ),
        );
    }
    for warning in &findings.run.warnings {
        say(Tone::Bad, warning.clone());
    }
    lines
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tone {
    Plain,
    Good,
    Bad,
}

impl Tone {
    fn of(good: bool) -> Self {
        if good { Self::Good } else { Self::Bad }
    }
}

/// Minimum number of runs for a 95 % interval.
const FEWEST: usize = 6;

/// A measured figure, for example `561` with the interval `[540, 575]`, or `8.39 ms` with `[8.10, 8.66]`. If there are too few runs, their number and
/// range replace the interval, such as `2 runs: 540 to 575`.
pub(super) struct FigureText {
    pub(super) middle: String,
    pub(super) around: String,
}

impl FigureText {
    /// Returns the text that follows the figure, with its separator.
    pub(super) fn suffix(&self) -> String {
        match &*self.around {
            "" => String::new(),
            interval if interval.starts_with('[') => format!(" {interval}"),
            runs => format!(", {runs}"),
        }
    }
}

/// Formats a figure and its certainty. `asked` is the number of runs that were requested.
pub(super) fn figure_text(cell: &TableCell, asked: u32) -> FigureText {
    let alone = |middle: &str| FigureText {
        middle: middle.to_owned(),
        around: String::new(),
    };
    let Some(figure) = &cell.measured else {
        return alone(if cell.counted == 0 {
            "no run counts"
        } else {
            "-"
        });
    };
    let middle = quantity(figure.median, cell.unit);
    if cell.is_run {
        return alone(&middle);
    }
    let runs = figure.runs;
    let (_, factor) = readable(figure.median, cell.unit);
    let ends = [figure.interval.low, figure.interval.high];
    let around = match ends.map(|end| shown(end * factor)) {
        [low, high] if figure.is_sure() => {
            let all = u32::try_from(runs) == Ok(asked);
            let runs = if all {
                String::new()
            } else {
                format!(", {runs} runs")
            };
            format!("[{low}, {high}]{runs}")
        }
        _ if runs == 1 => "1 run".to_owned(),
        [low, high] => format!("{runs} runs: {low} to {high}"),
    };
    FigureText { middle, around }
}

fn ends(all: impl Iterator<Item = usize>) -> [usize; 2] {
    all.fold([usize::MAX, 0], |[least, most], one| {
        [least.min(one), most.max(one)]
    })
}

/// Formats a range as `1 to 3`, or as `2` if both ends are equal.
fn from_to([least, most]: [usize; 2]) -> String {
    if least >= most {
        most.to_string()
    } else {
        format!("{least} to {most}")
    }
}

/// Returns the published value and the measured one as a multiple of it, such as `562, x1.07`.
pub(super) fn published_text(cell: &TableCell) -> Option<String> {
    let published = cell.published?;
    let ratio = cell
        .measured
        .as_ref()
        .filter(|_| published > 0.0)
        .map(|ours| format!(", x{}", shown(ours.median / published)));
    Some(quantity(published, cell.unit) + &ratio.unwrap_or_default())
}

/// Returns the explanation of the tables' figures.
pub(super) fn legend(findings: &Findings<'_>, place: &str) -> String {
    let asked = findings.run.asked.reps;
    let rows = findings.tables.iter().flat_map(|table| &table.rows);
    let cells: Vec<&TableCell> = rows.flat_map(|(_, cells)| cells).collect();
    let figures = cells.iter().filter(|cell| !cell.is_run);
    let figures: Vec<&Figure> = figures.filter_map(|cell| cell.measured.as_ref()).collect();
    let runs = ends(figures.iter().map(|figure| figure.runs));
    let mut text = if runs.map(u32::try_from) == [Ok(asked), Ok(asked)] {
        format!("Median of {asked} interleaved runs")
    } else {
        format!(
            "Median of the interleaved runs that count, {} of {asked}",
            from_to(runs)
        )
    };
    if figures.iter().any(|figure| figure.is_sure()) {
        text += match runs[1] {
            0..10 => " [the exact interval of the median, with 95 % confidence or more]",
            _ => " [the 95 % interval of the median (BCa bootstrap)]",
        };
    }
    if figures.iter().any(|figure| !figure.is_sure()) {
        put!(
            text,
            "; with fewer than {FEWEST} runs there is no interval and no verdict, and the minimum and maximum are shown"
        );
    }
    text.push('.');
    if cells.iter().any(|cell| cell.published.is_some()) {
        put!(
            text,
            " {place}: the published value, and the measured one as a multiple of it."
        );
    }
    text
}

/// Returns the explanation of the charts.
pub(super) fn reading(findings: &Findings<'_>) -> String {
    let mut text =
        "Bars and marks are medians, whiskers their intervals, dots single runs".to_owned();
    if !findings.scenario.published.is_empty() {
        text += ", hollow marks what was published";
    }
    text + "."
}

/// Returns one row per paired comparison, after the heading.
pub(super) fn comparisons(findings: &Findings<'_>) -> Vec<Vec<String>> {
    let head = [
        "case",
        "comparison",
        "ratio [interval]",
        "pairs",
        "verdict",
        "smallest visible difference",
    ];
    let rows = findings.compared.iter().map(|one| {
        let [ratio, pairs, detectable] = match one.paired {
            None => ["-", "0", "-"].map(str::to_owned),
            Some(paired) => {
                let [low, high] = [paired.interval.low, paired.interval.high].map(ratio);
                let middle = ratio(paired.ratio);
                let told = match paired.detectable {
                    Some(_) => format!("{middle} [{low}, {high}]"),
                    None if paired.pairs == 1 => middle,
                    None => format!("{middle}, from {low} to {high}"),
                };
                let detectable = paired.detectable.map_or("-".to_owned(), percent);
                [told, paired.pairs.to_string(), detectable]
            }
        };
        vec![
            findings.scenario.case_label(&one.case).to_owned(),
            format!("{} / {}, {}", one.a, one.b, one.metric.label()),
            ratio,
            pairs,
            one.word().to_owned(),
            detectable,
        ]
    });
    std::iter::once(head.map(str::to_owned).into())
        .chain(rows)
        .collect()
}

/// Number of functions that are listed for a profile.
const HOTTEST: usize = 4;

pub(super) fn in_pairs<'f>(findings: &'f Findings<'_>) -> Vec<&'f Profile> {
    let cases = &findings.scenario.cases;
    let mut profiles: Vec<&Profile> = findings.run.profiles.iter().collect();
    profiles.sort_by_key(|profile| {
        let case = cases.iter().position(|case| case.id == profile.case);
        (case, &profile.role)
    });
    profiles
}

pub(super) fn functions<'f>(findings: &'f Findings<'_>) -> Vec<&'f str> {
    let asked = findings.scenario.profile.iter();
    let functions = asked.flat_map(|asked| &asked.functions);
    functions.map(String::as_str).collect()
}

/// Returns one row per profile, after the heading.
pub(super) fn profiles(findings: &Findings<'_>) -> Vec<Vec<String>> {
    let functions = functions(findings);
    let mut head: Vec<String> = ["case", "arm", "program", "samples"]
        .map(str::to_owned)
        .into();
    head.extend(functions.iter().map(|function| format!("in {function}")));
    head.push("most often".to_owned());
    let mut rows = vec![head];
    for profile in in_pairs(findings) {
        let mut row = vec![
            findings.scenario.case_label(&profile.case).to_owned(),
            profile.arm.clone(),
            profile.role.clone(),
            profile.samples.to_string(),
        ];
        row.extend(functions.iter().map(|one| percent(profile.share(one))));
        let hottest = profile.hottest(HOTTEST).into_iter();
        let hottest = hottest.map(|(function, share)| format!("{function} {}", percent(share)));
        row.push(hottest.collect::<Vec<_>>().join(", "));
        rows.push(row);
    }
    rows
}

/// The report mentions samples without a function name if they are at least one in this many.
const WORTH_A_NOTE: u64 = 100;

pub(super) fn profile_note(findings: &Findings<'_>) -> String {
    let profiles = &findings.run.profiles;
    let lost = profiles.iter().map(|profile| profile.lost).max();
    let mut note = "From one further run of each, which no figure is from, warm-up included. Of a program only the \
                    function that it was in is shown, of the kernel all that had been called."
        .to_owned();
    if let Some(lost) = lost.filter(|lost| *lost > 0) {
        put!(note, " Of an arm up to {lost} samples were lost.");
    }
    if profiles.iter().any(|profile| !profile.with_kernel) {
        note += " The kernel may not be looked into here (kernel.perf_event_paranoid).";
    }
    let unnamed: u64 = profiles.iter().map(Profile::nameless).sum();
    let all: u64 = profiles.iter().map(|profile| profile.samples).sum();
    if unnamed > 0 && unnamed * WORTH_A_NOTE >= all {
        put!(
            note,
            " {unnamed} of {all} samples are in functions without a name (shown as their file, in brackets), because \
                 /proc/PID/maps, /proc/kallsyms or a program's symbol table could not be read or does not hold it: \
                 the share of a function may be too small by these."
        );
    }
    note
}
