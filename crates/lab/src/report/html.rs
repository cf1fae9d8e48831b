//! The report as a self-contained HTML page: no script, no font, no request.

use maud::{DOCTYPE, Markup, PreEscaped, html as markup};

use super::charts::{Charts, latency_percentiles};
use super::colours::Colours;
use super::words::{
    Tone, comparisons, figure_text, functions, in_pairs, legend, profile_note, profiles,
    published_text, reading, verdict,
};
use super::{flame, validity};
use crate::chart::{self, LaneChart, Panel, Series, Stroke, XDivision};
use crate::findings::{ArmComparison, Findings, Table};
use crate::writing::{percent, shown};

/// Maximum number of runs per arm that are drawn over time; more lines would be illegible.
const TRACES: usize = 7;

const STYLE: &str = include_str!("report.css");

const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";

/// Returns the text of `report.html`.
pub fn html(findings: &Findings<'_>) -> String {
    let (run, scenario) = (findings.run, findings.scenario);
    let charts = Charts::of(findings);
    let page = markup! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                title { (scenario.title) }
                style { (PreEscaped(chart::STYLE)) (PreEscaped(chart::LANES)) (PreEscaped(STYLE)) }
            }
            body {
                main {
                    h1 { (joined(&scenario.title)) }
                    p.lead { (joined(&findings.headline())) }
                    @if !charts.lead.is_empty() {
                        div.lanes.first { @for chart in &charts.lead { (lanes(&chart.lanes)) } }
                        p.note { (reading(findings)) }
                    }
                    section.verdict {
                        h2 { "Verdict" }
                        ul {
                            @for (tone, line) in verdict(findings) { li class=(class(tone)) { (joined(&line)) } }
                        }
                    }
                    h2 { "Tables" }
                    @for table in &findings.tables { (figures(table, run.asked.reps)) }
                    p.note { (legend(findings, "Below them")) }
                    @if !findings.compared.is_empty() {
                        h2 { "Comparisons" }
                        (grid(&comparisons(findings)))
                        p.note {
                            "Pairs of one block, measured next to each other. "
                            @if findings.compared.iter().any(ArmComparison::has_verdict) {
                                "The interval around the median ratio is exact; a verdict says no more than that it leaves 1 \
                                 out."
                            } @else {
                                "They are too few for intervals."
                            }
                        }
                    }
                    @if !charts.further.is_empty() {
                        h2 { "Charts" }
                        div.lanes { @for chart in &charts.further { (lanes(&chart.lanes)) } }
                    }
                    (distributions(findings))
                    (rate_charts(findings))
                    (flames(findings))
                    h2 { "How far to trust it" }
                    (grid(&validity::table(findings)))
                    ul {
                        @for note in validity::notes(findings) { li { (joined(&note)) } }
                    }
                    h2 { "What it is" }
                    p {
                        "Scenario " code { (scenario.name) } "."
                        @if let Some(source) = &scenario.source { " Reproduces: " (source) "." }
                    }
                    @for paragraph in scenario.about.split("\n\n") { p { (coded(paragraph)) } }
                    h2 { "Machine" }
                    dl {
                        @for (key, value) in &run.environment { dt { (key) } dd { (value) } }
                        dt { "started" } dd { (run.started) }
                        dt { "took" } dd { (format_args!("{:.0} s", run.seconds)) }
                    }
                    h2 { "Again" }
                    pre { (run.command) }
                    p.note {
                        code { "run.json" } " beside this page holds every measurement; "
                        code { "quictun lab report DIR" } " makes this page from it again."
                    }
                }
            }
        }
    };
    page.into_string() + "\n"
}

fn class(tone: Tone) -> &'static str {
    match tone {
        Tone::Plain => "plain",
        Tone::Good => "good",
        Tone::Bad => "bad",
    }
}

/// Units that follow a number and a space.
const UNITS: [&str; 6] = ["%", "us", "ms", "s", "Mbit/s", "s/GB"];

/// Replaces the space between a number and its unit by a non-breaking one.
fn joined(text: &str) -> String {
    let mut all = String::new();
    for word in text.split(' ') {
        if !all.is_empty() {
            let unit = word.trim_end_matches([',', '.', ';', ':', ')']);
            let is_unit =
                UNITS.contains(&unit) && all.ends_with(|last: char| last.is_ascii_digit());
            all.push(if is_unit { '\u{a0}' } else { ' ' });
        }
        all += word;
    }
    all
}

/// Renders the inline code of a Markdown paragraph. Scenarios use no other markup within paragraphs.
fn coded(paragraph: &str) -> Markup {
    markup! {
        @for (at, part) in paragraph.split('`').enumerate() {
            @if at % 2 == 0 { (part) } @else { code { (part) } }
        }
    }
}

fn figures(table: &Table, asked: u32) -> Markup {
    markup! {
        h3 { (table.title) }
        div.wide {
            table {
                thead {
                    tr { th { (table.row) } @for column in &table.columns { th { (column) } } }
                }
                tbody {
                    @for (label, cells) in &table.rows {
                        tr {
                            th { (label) }
                            @for cell in cells {
                                @let figure = figure_text(cell, asked);
                                td {
                                    b { (joined(&figure.middle)) }
                                    span.ci { (figure.suffix()) }
                                    @if let Some(published) = published_text(cell) {
                                        br; span.published { "published " (joined(&published)) }
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn lanes(lanes: &LaneChart) -> Markup {
    markup! {
        figure { figcaption { (lanes.title) } (lanes.plot()) }
    }
}

/// Charts of latencies by percentile, one for each case that has latencies.
fn distributions(findings: &Findings<'_>) -> Markup {
    let cases = findings.scenario.cases.iter();
    let ladders = cases.map(|case| latency_percentiles(findings, &case.id));
    let ladders: Vec<LaneChart> = ladders.filter(|lanes| lanes.groups.len() > 1).collect();
    markup! {
        @if !ladders.is_empty() {
            h2 { "Latencies by percentile" }
            div.lanes { @for one in &ladders { (lanes(one)) } }
        }
    }
}

/// Charts of rates over time, with one line per run.
fn rate_charts(findings: &Findings<'_>) -> Markup {
    let cases = &findings.scenario.cases;
    let rate_charts: Vec<_> = cases
        .iter()
        .map(|case| traces(findings, &case.id))
        .collect();
    // All cases share one scale, so that they can be compared.
    let points = rate_charts.iter().flatten().flat_map(|trace| &trace.points);
    let most = points.map(|point| point.y).fold(0.0, f64::max);
    let panels = cases.iter().zip(rate_charts).map(|(case, lines)| Panel {
        title: format!("receiver over time, {}", case.label),
        y_title: "Mbit/s".to_owned(),
        x_title: "time".to_owned(),
        x_division: XDivision::Seconds,
        room: vec![0.0, most],
        lines,
    });
    let panels: Vec<Panel> = panels.filter(|panel| !panel.lines.is_empty()).collect();
    let colours = Colours::of(&findings.scenario.arms);
    let arms = findings.scenario.arms.iter().map(|arm| &*arm.id);
    markup! {
        @if !panels.is_empty() {
            h2 { "Rates over time" }
            ul.legend {
                @for arm in arms { li { (chart::swatch(colours.style(arm))) " " (arm) } }
            }
            div.plots {
                @for panel in &panels {
                    figure { figcaption { (panel.title) } (chart::plot(panel)) }
                }
            }
        }
    }
}

fn flames(findings: &Findings<'_>) -> Markup {
    if findings.run.profiles.is_empty() {
        return Markup::default();
    }
    let functions = functions(findings);
    markup! {
        h2 { "Where processor time goes" }
        (grid(&profiles(findings)))
        p.note { (profile_note(findings)) }
        @for profile in in_pairs(findings) {
            @let case = findings.scenario.case_label(&profile.case);
            @let caption = format!("{}, {case}: {}, {} samples", profile.arm, profile.role, profile.samples);
            figure.flames {
                figcaption {
                    (joined(&caption))
                    @for function in &functions {
                        ", " (joined(&percent(profile.share(function)))) " in " (function)
                    }
                }
                div.wide { (flame::graph(&profile.stacks, &functions)) }
            }
        }
    }
}

fn traces(findings: &Findings<'_>, case: &str) -> Vec<Series> {
    let colours = Colours::of(&findings.scenario.arms);
    let arms = findings.scenario.arms.iter();
    arms.flat_map(|arm| {
        let style = colours.style(&arm.id);
        let runs = findings.run.valid(case, &arm.id);
        let runs = runs.filter(|cell| cell.series.len() > 1).take(TRACES);
        runs.map(move |cell| {
            let points = cell.series.iter().map(|(at, rate)| (*at, rate / 1e6));
            let rates = cell.series.iter().map(|(_, rate)| rate / 1e6);
            let (least, most) = rates.fold((f64::INFINITY, 0.0_f64), |(least, most), rate| {
                (least.min(rate), most.max(rate))
            });
            let (least, most) = (shown(least), shown(most));
            Series {
                tooltip: format!("{}, block {}: {least} to {most} Mbit/s", arm.id, cell.block),
                ..Series::new(arm.id.clone(), style, Stroke::Trace, points)
            }
        })
    })
    .collect()
}

fn grid(rows: &[Vec<String>]) -> Markup {
    let (head, body) = rows.split_at(rows.len().min(1));
    markup! {
        div.wide {
            table {
                thead {
                    @for row in head { tr { @for cell in row { th { (joined(cell)) } } } }
                }
                tbody {
                    @for row in body {
                        tr {
                            @for (at, cell) in row.iter().enumerate() {
                                @if at == 0 { th { (joined(cell)) } } @else { td { (joined(cell)) } }
                            }
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::{TEXT, run};
    use crate::{Metric, Scenario};

    fn page() -> String {
        let mut run = run(2.0);
        for cell in &mut run.cells {
            cell.series = vec![(0.1, 1e6), (0.2, 2e6)];
            cell.metrics.insert(Metric::LatencyP50Us, 30.0);
        }
        run.cells[0].flags = vec!["odd & <strange>".to_owned()];
        let scenario = Scenario::parse(TEXT).expect("a scenario");
        html(&Findings::new(&run, &scenario))
    }

    #[test]
    fn the_page_makes_no_request() {
        let page = page();
        for part in [
            "http:", "https:", "src=", "href=", "url(", "@import", "<script", "<link",
        ] {
            assert!(!page.contains(part), "{part}");
        }
    }

    #[test]
    fn a_number_and_its_unit_stay_on_one_line() {
        for (text, html) in [
            ("0.43 % by > 500 us", "0.43\u{a0}% by &gt; 500\u{a0}us"),
            ("less than 5 %: these", "less than 5\u{a0}%: these"),
            ("case 5 says", "case 5 says"),
            ("share %", "share %"),
        ] {
            assert_eq!(markup! { (joined(text)) }.into_string(), html);
        }
    }

    #[test]
    fn unnamed_functions_are_reported_from_one_percent() {
        let scenario = Scenario::parse(TEXT).expect("a scenario");
        for (unnamed, inside, told) in [
            (900, 9, None),
            (900, 10, Some("10 of 1000")),
            (0, 500, None),
        ] {
            let mut run = run(2.0);
            let profile = &mut run.profiles[0];
            (profile.samples, profile.unnamed) = (1000, unnamed);
            profile.stacks = vec![
                ("[libc.so.6]".to_owned(), inside),
                ("[libc.so.6];futex".to_owned(), 999 - inside),
                ("[vdso]".to_owned(), 1),
            ];
            let page = html(&Findings::new(&run, &scenario));
            let note = page.contains("samples are in functions without a name");
            assert_eq!(note, told.is_some());
            assert!(told.is_none_or(|told| page.contains(told)), "{page}");
        }
    }

    #[test]
    fn the_page_has_every_section_and_escapes_measured_texts() {
        let page = page();
        for part in [
            "<h2>Verdict</h2>",
            "second, 1%: tunnel client, 10 samples",
            "run&lt;T&gt;: 10 of 10 samples",
            "published 60.3, x0.833",
            "second against first, receiver: faster in 2 of 2 cases",
            "odd &amp; &lt;strange&gt;",
            "<h1>Two arms</h1><p class=\"lead\">Loss 1%: second carries",
            "class=\"lane\" tabindex=\"0\"",
            "<th>pairs</th><th>verdict</th><th>smallest visible difference</th>",
            "aria-label=\"receiver (Mbit/s)\"",
            "receiver over time, 0%",
            "<title>second, block 7: 1.00 to 2.00 Mbit/s</title>",
            "<dt>kernel</dt><dd>6.1 &lt;x&gt;</dd>",
            "<pre>quictun lab run small --seed 1</pre>",
        ] {
            assert!(page.contains(part), "{part}");
        }
        for tag in ["table", "figure", "svg", "section", "div", "ul", "main"] {
            let (open, close) = (format!("<{tag}"), format!("</{tag}>"));
            let opened = page
                .match_indices(&open)
                .filter(|(at, _)| page[at + open.len()..].starts_with([' ', '>']));
            assert_eq!(opened.count(), page.matches(&close).count(), "{tag}");
        }
    }
}
