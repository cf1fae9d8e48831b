//! The report as Markdown, for reading in a repository.

use super::charts::{Chart, Charts};
use super::validity;
use super::words::{
    comparisons, figure_text, legend, profile_note, profiles, published_text, reading, verdict,
};
use crate::findings::{Findings, Table};
use crate::put;

/// Returns the text of `report.md`.
pub fn markdown(findings: &Findings<'_>) -> String {
    let (run, scenario) = (findings.run, findings.scenario);
    let mut text = format!("# {}\n\n{}\n", scenario.title, findings.headline());
    let charts = Charts::of(findings);
    if !charts.lead.is_empty() {
        put!(
            text,
            "\n{}\n\n{}\n",
            pictures(&charts.lead),
            reading(findings)
        );
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
            grid(&published_grid(table, run.asked.reps))
        );
    }
    put!(text, "\n{}\n", legend(findings, "In parentheses"));
    if !findings.compared.is_empty() {
        put!(text, "\n## Comparisons\n\n{}", grid(&comparisons(findings)));
    }
    if !charts.further.is_empty() {
        put!(text, "\n## Charts\n\n{}\n", pictures(&charts.further));
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
    put!(text, "\n\n## What it is\n\nScenario `{}`.", scenario.name);
    if let Some(source) = &scenario.source {
        put!(text, " Reproduces: {source}.");
    }
    put!(text, "\n\n{}\n", scenario.about);
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

/// Returns links to the charts, which are shown side by side if there is space.
fn pictures(charts: &[Chart]) -> String {
    let each = charts
        .iter()
        .map(|chart| format!("![{}]({})", escaped(&chart.lanes.title), chart.file()));
    each.collect::<Vec<_>>().join("\n")
}

fn published_grid(table: &Table, asked: u32) -> Vec<Vec<String>> {
    let head = std::iter::once(table.row.clone()).chain(table.columns.clone());
    let mut rows = vec![head.collect::<Vec<_>>()];
    for (label, cells) in &table.rows {
        let mut row = vec![label.clone()];
        row.extend(cells.iter().map(|cell| {
            let figure = figure_text(cell, asked);
            let figure = figure.middle.clone() + &figure.suffix();
            match published_text(cell) {
                Some(published) => format!("{figure} ({published})"),
                None => figure,
            }
        }));
        rows.push(row);
    }
    rows
}

/// Formats rows, the first of which is the heading, as a table that is also aligned in plain text.
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
    fn the_report_shows_published_figures_beside_measured_ones_and_the_command() {
        let (run, scenario) = (run(2.0), Scenario::parse(TEXT).expect("a scenario"));
        let text = markdown(&Findings::new(&run, &scenario));
        for part in [
            "# Two arms\n\nLoss 1%: second carries 2.00 times as much",
            "![receiver (Mbit/s)](chart-receiver_mbit_per_s.svg)\n![CPU of all programs (s/GB)](chart-cpu_s_per_gb.svg)\n",
            "Scenario `small`. Reproduces: a document.",
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
}
