//! Markdown, which is also what the terminal shows.

use super::validity;
use super::words::{Tone, beside, comparisons, legend, ours, profile_note, profiles, verdict};
use crate::findings::{Findings, Table};
use crate::put;

/// `report.md`.
pub fn markdown(findings: &Findings<'_>) -> String {
    let (run, scenario) = (findings.run, findings.scenario);
    let mut text = format!("# {}\n\n{}\n", scenario.name, scenario.title);
    if let Some(source) = &scenario.source {
        put!(text, "\nReproduces: {source}\n");
    }
    text += "\n## Verdict\n\n";
    for (_, line) in verdict(findings) {
        put!(text, "* {line}\n");
    }
    text += "\n## Tables\n";
    for table in &findings.tables {
        put!(
            text,
            "\n### {}\n\n{}",
            table.title,
            grid(&published_grid(table))
        );
    }
    put!(text, "\n{}\n", legend(findings, "In parentheses"));
    if !findings.compared.is_empty() {
        put!(text, "\n## Comparisons\n\n{}", grid(&comparisons(findings)));
    }
    if !run.profiles.is_empty() {
        text += "\n## Where processor time goes\n\n";
        text += &grid(&profiles(findings));
        put!(text, "\n{}\n", profile_note(findings));
    }
    text += "\n## How far to trust it\n\n";
    text += &grid(&validity::table(findings));
    for note in validity::notes(findings) {
        put!(text, "\n* {note}");
    }
    put!(text, "\n\n## What it is\n\n{}\n", scenario.about);
    text += "\n## Machine\n\n| | |\n|---|---|\n";
    for (key, value) in &run.environment {
        put!(text, "| {key} | {} |\n", escaped(value));
    }
    put!(
        text,
        "| started | {} |\n| took | {:.0} s |\n",
        run.started,
        run.seconds
    );
    put!(text, "\n## Again\n\n```console\n$ {}\n```\n", run.command);
    text
}

/// What the terminal shows at the end: verdict and tables.
pub fn text(findings: &Findings<'_>) -> String {
    let mut text = String::new();
    for table in &findings.tables {
        put!(
            text,
            "\n{}\n\n{}",
            table.title,
            grid(&published_grid(table))
        );
    }
    put!(text, "\n{}\n\n", legend(findings, "In parentheses"));
    for (tone, line) in verdict(findings) {
        let mark = match tone {
            Tone::Plain => " ",
            Tone::Good => "+",
            Tone::Bad => "!",
        };
        put!(text, "{mark} {line}\n");
    }
    text
}

fn published_grid(table: &Table) -> Vec<Vec<String>> {
    let head = std::iter::once(table.row.clone()).chain(table.columns.clone());
    let mut rows = vec![head.collect::<Vec<_>>()];
    for (label, cells) in &table.rows {
        let mut row = vec![label.clone()];
        row.extend(cells.iter().map(|cell| match beside(cell) {
            Some(published) => format!("{} ({published})", ours(cell)),
            None => ours(cell),
        }));
        rows.push(row);
    }
    rows
}

/// Rows, the first of them the heading, as a table that is aligned in plain text too.
fn grid(rows: &[Vec<String>]) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let cell =
        |row: &Vec<String>, at: usize| row.get(at).map_or(String::new(), |text| escaped(text));
    let widths: Vec<usize> = (0..columns)
        .map(|at| {
            rows.iter()
                .map(|row| cell(row, at).chars().count())
                .max()
                .unwrap_or(0)
                .max(3)
        })
        .collect();
    let mut text = String::new();
    for (number, row) in rows.iter().enumerate() {
        for (at, width) in widths.iter().enumerate() {
            put!(text, "| {:<width$} ", cell(row, at));
        }
        text += "|\n";
        if number == 0 {
            for width in &widths {
                put!(text, "|{}", "-".repeat(width + 2));
            }
            text += "|\n";
        }
    }
    text
}

fn escaped(text: &str) -> String {
    text.replace('|', "\\|").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Scenario;
    use crate::record::tests::{TEXT, run};

    #[test]
    fn the_report_has_the_published_figures_beside_ours_and_the_command_to_repeat_it() {
        let (run, scenario) = (run(2.0), Scenario::parse(TEXT).expect("a scenario"));
        let text = markdown(&Findings::new(&run, &scenario));
        for part in [
            "* second against first, receiver: faster in 2 of 2 cases (x2.00)",
            "* 2 of 2 assertions hold",
            "* 28 of 28 measurements count",
            "| 1%   | 50.2 [50.0, 50.3] (60.3, x0.833) | 2.00 [2.00, 2.00]",
            "| 0%   | second / first, receiver | 2.000 [2.000, 2.000] | 7     | faster",
            "$ quictun lab run small --seed 1",
            "| kernel | 6.1 &lt;x> |",
            "Why & how.",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
    }

    #[test]
    fn a_partial_run_and_what_does_not_hold_come_first() {
        let mut run = run(0.5);
        run.cells.truncate(4);
        run.ended_early = Some("interrupted".to_owned());
        run.warnings = vec!["the machine was busy".to_owned()];
        let scenario = Scenario::parse(TEXT).expect("a scenario");
        let text = text(&Findings::new(&run, &scenario));
        for part in [
            "! 0 of 2 assertions hold",
            "! does not hold: second / first, receiver at 0%: >= 0.970; found 0.500",
            "! partial: 4 of 28 measurements, interrupted",
            "! the machine was busy",
            "  second against first, receiver: too few runs for a verdict in 2 of 2 cases",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
    }
}
