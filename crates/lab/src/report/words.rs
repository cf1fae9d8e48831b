//! What reports say, in words and rows, whatever they look like.

use crate::Profile;
use crate::findings::{Figure, Findings, TableCell};
use crate::put;
use crate::writing::{percent, ratio, shown};

pub(super) fn verdict(findings: &Findings<'_>) -> Vec<(Tone, String)> {
    let verdicts = findings.verdicts().into_iter();
    let mut lines: Vec<_> = verdicts.map(|line| (Tone::Plain, line)).collect();
    let mut say = |tone, line: String| lines.push((tone, line));
    let asserted = findings.asserted.len();
    let broken: Vec<_> = findings.asserted.iter().filter(|one| !one.holds).collect();
    if asserted > 0 {
        let held = asserted - broken.len();
        let line = format!("{held} of {asserted} assertions hold");
        say(Tone::of(broken.is_empty()), line);
    }
    for one in broken {
        let found = one.found.map_or("nothing".to_owned(), shown);
        say(
            Tone::Bad,
            format!("does not hold: {}; found {found}", one.what),
        );
    }
    let asserted = findings.asserted.iter();
    for one in asserted.filter(|one| one.allowed && one.holds) {
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
        let planned = findings.run.planned;
        say(
            Tone::Bad,
            format!("partial: {cells} of {planned} measurements, {why}"),
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

/// `561 [540, 575]`.
pub(super) fn ours(cell: &TableCell) -> String {
    cell.ours
        .as_ref()
        .map_or("no run counts".to_owned(), with_interval)
}

fn with_interval(figure: &Figure) -> String {
    let middle = shown(figure.median);
    if figure.runs == 1 {
        return middle;
    }
    let (low, high) = (shown(figure.interval.low), shown(figure.interval.high));
    format!("{middle} [{low}, {high}]")
}

/// `562, x1.07`: what was published, and ours as a multiple of it.
pub(super) fn beside(cell: &TableCell) -> Option<String> {
    let published = cell.published?;
    let ratio = cell
        .ours
        .as_ref()
        .filter(|_| published > 0.0)
        .map(|ours| format!(", x{}", shown(ours.median / published)));
    Some(shown(published) + &ratio.unwrap_or_default())
}

pub(super) fn legend(findings: &Findings<'_>, place: &str) -> String {
    let runs = findings.run.asked.reps;
    let level = match runs {
        0..6 => {
            let level = 100.0 * (1.0 - 0.5_f64.powi(i32::try_from(runs).unwrap_or(1) - 1));
            format!(
                "the range of {runs} runs, which holds the true median with {level:.0} %: too few for verdicts"
            )
        }
        6..10 => "the exact 95 % interval of the median, or surer".to_owned(),
        _ => "the 95 % interval of the median (BCa bootstrap)".to_owned(),
    };
    let mut cells = findings.tables.iter().flat_map(|table| &table.rows);
    let published = cells.any(|(_, cells)| cells.iter().any(|cell| cell.published.is_some()));
    let published =
        published.then(|| format!(" {place}: what was published, and ours as a multiple of it."));
    format!(
        "Median of those of {runs} interleaved runs that count [{level}].{}",
        published.unwrap_or_default()
    )
}

/// What pairs say: a row for each, after the heading.
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
                [
                    format!("{} [{low}, {high}]", ratio(paired.ratio)),
                    paired.pairs.to_string(),
                    percent(paired.detectable),
                ]
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

/// Functions of a profile that are named.
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

/// What programs were in the middle of: a row for each, after the heading.
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

/// Of so many samples one without a name is worth a note.
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
