//! One page that needs nothing else: no script, no font, no request.

use super::chart::{self, Point, Series, Trace, Words};
use super::{Tone, beside, flame, legend, ours, put, validity, verdict};
use crate::Metric;
use crate::findings::{Findings, Table};
use crate::number::{percent, ratio, shown};
use crate::scenario::Shape;

/// Percentiles of the ladder, and their metrics.
const LADDER: [(&str, Metric); 6] = [
    ("min", Metric::LatencyMinUs),
    ("p50", Metric::LatencyP50Us),
    ("p90", Metric::LatencyP90Us),
    ("p99", Metric::LatencyP99Us),
    ("p99.9", Metric::LatencyP999Us),
    ("max", Metric::LatencyMaxUs),
];

/// Runs of an arm whose course is drawn; more would be a smear.
const TRACES: usize = 7;

/// `report.html`.
pub fn html(findings: &Findings<'_>) -> String {
    let (run, scenario) = (findings.run, findings.scenario);
    let name = escaped(&scenario.name);
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <title>{name}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n\
         <h1>{name}</h1>\n<p class=\"lead\">{}</p>\n",
        escaped(&scenario.title)
    );
    if let Some(source) = &scenario.source {
        put(
            &mut page,
            format_args!("<p class=\"source\">Reproduces: {}</p>\n", escaped(source)),
        );
    }
    page += &verdict_box(findings);
    page += "<h2>Tables</h2>\n";
    for table in &findings.tables {
        page += &figures(table);
    }
    put(
        &mut page,
        format_args!(
            "<p class=\"note\">{}</p>\n",
            escaped(&legend(findings, "Below them"))
        ),
    );
    page += &comparisons(findings);
    page += &plots(findings);
    page += &flames(findings);
    page += "<h2>How far to trust it</h2>\n";
    page += &grid(&validity::table(findings));
    page += &list(validity::notes(findings).into_iter());
    put(
        &mut page,
        format_args!("<h2>What it is</h2>\n{}", paragraphs(&scenario.about)),
    );
    page += "<h2>Machine</h2>\n<dl>\n";
    let took = ("took".to_owned(), format!("{:.0} s", run.seconds));
    let started = ("started".to_owned(), run.started.clone());
    for (key, value) in run.environment.clone().into_iter().chain([started, took]) {
        put(
            &mut page,
            format_args!("<dt>{}</dt><dd>{}</dd>\n", escaped(&key), escaped(&value)),
        );
    }
    page += "</dl>\n<h2>Again</h2>\n";
    put(
        &mut page,
        format_args!("<pre>{}</pre>\n", escaped(&run.command)),
    );
    page += "<p class=\"note\"><code>run.json</code> beside this page holds every measurement; \
             <code>quictun lab report DIR</code> makes this page from it again.</p>\n\
             </main>\n</body>\n</html>\n";
    page
}

/// Text as HTML.
pub(super) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

/// Units that stand behind a number and a space.
const UNITS: [&str; 6] = ["%", "us", "ms", "s", "Mbit/s", "s/GB"];

/// Text as HTML, in which no line breaks between a number and its unit.
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
    escaped(&all)
}

fn verdict_box(findings: &Findings<'_>) -> String {
    let mut text = String::from("<section class=\"verdict\">\n<h2>Verdict</h2>\n<ul>\n");
    for (tone, line) in verdict(findings) {
        let class = match tone {
            Tone::Plain => "plain",
            Tone::Good => "good",
            Tone::Bad => "bad",
        };
        put(
            &mut text,
            format_args!("<li class=\"{class}\">{}</li>\n", joined(&line)),
        );
    }
    text + "</ul>\n</section>\n"
}

/// A table with published figures.
fn figures(table: &Table) -> String {
    let mut text = format!(
        "<h3>{}</h3>\n<div class=\"wide\"><table>\n<thead><tr><th>{}</th>",
        escaped(&table.title),
        escaped(&table.row)
    );
    for column in &table.columns {
        put(&mut text, format_args!("<th>{}</th>", escaped(column)));
    }
    text += "</tr></thead>\n<tbody>\n";
    for (label, cells) in &table.rows {
        put(&mut text, format_args!("<tr><th>{}</th>", escaped(label)));
        for cell in cells {
            let ours = ours(cell);
            let (middle, ends) = ours
                .split_once(" [")
                .map_or((&*ours, None), |(middle, ends)| (middle, Some(ends)));
            put(&mut text, format_args!("<td><b>{}</b>", escaped(middle)));
            if let Some(ends) = ends {
                put(
                    &mut text,
                    format_args!(" <span class=\"ci\">[{}</span>", escaped(ends)),
                );
            }
            if let Some(published) = beside(cell) {
                put(
                    &mut text,
                    format_args!(
                        "<br><span class=\"published\">published {}</span>",
                        escaped(&published)
                    ),
                );
            }
            text += "</td>";
        }
        text += "</tr>\n";
    }
    text + "</tbody>\n</table></div>\n"
}

fn comparisons(findings: &Findings<'_>) -> String {
    if findings.compared.is_empty() {
        return String::new();
    }
    let head = [
        "case",
        "comparison",
        "ratio [interval]",
        "pairs",
        "verdict",
        "smallest visible difference",
    ];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for one in &findings.compared {
        let [ratio, pairs, detectable] = match one.paired {
            None => ["-", "0", "-"].map(str::to_owned),
            Some(paired) => {
                let [low, high] = [paired.interval.low, paired.interval.high].map(ratio);
                [
                    format!("{} [{low}, {high}]", ratio(paired.ratio)),
                    paired.pairs.to_string(),
                    format!("{} %", shown(100.0 * paired.detectable)),
                ]
            }
        };
        rows.push(vec![
            findings.scenario.case_label(&one.case).to_owned(),
            format!("{} / {}, {}", one.a, one.b, one.metric.label()),
            ratio,
            pairs,
            one.word().to_owned(),
            detectable,
        ]);
    }
    format!(
        "<h2>Comparisons</h2>\n{}<p class=\"note\">Pairs of one block, measured next to each other; the interval \
         around the median ratio is exact. A verdict says no more than that the interval leaves 1 out.</p>\n",
        grid(&rows)
    )
}

fn plots(findings: &Findings<'_>) -> String {
    let mut figures = String::new();
    let mut metrics: Vec<(Metric, &str)> = Vec::new();
    for table in &findings.scenario.tables {
        for &metric in &table.columns {
            let is_known = metrics.iter().any(|(known, _)| *known == metric);
            if !is_known && metric != Metric::SenderMbitPerS {
                // A row for each run says nothing of what cases are.
                let along = if matches!(table.shape, Shape::Runs) {
                    ""
                } else {
                    &*table.row
                };
                metrics.push((metric, along));
            }
        }
    }
    for (metric, along) in metrics {
        figures += &against_cases(findings, metric, along);
    }
    // One scale for all: cases are there to be compared.
    let most = most_received(findings);
    for case in &findings.scenario.cases {
        figures += &ladder(findings, &case.id, &case.label);
        figures += &course(findings, &case.id, &case.label, most);
    }
    if figures.is_empty() {
        return figures;
    }
    let legend = findings
        .scenario
        .arms
        .iter()
        .enumerate()
        .map(|(style, arm)| format!("<li>{} {}</li>", chart::swatch(style), escaped(&arm.id)));
    let legend: String = legend.collect();
    format!(
        "<h2>Plots</h2>\n<ul class=\"legend\">{legend}</ul>\n<div class=\"plots\">\n{figures}</div>\n\
         <p class=\"note\">Whiskers are the intervals of the tables. An axis that does not begin at zero is \
         logarithmic.</p>\n"
    )
}

/// Where processor time went.
fn flames(findings: &Findings<'_>) -> String {
    if findings.run.profiles.is_empty() {
        return String::new();
    }
    let mut text = format!(
        "<h2>Where processor time goes</h2>\n{}<p class=\"note\">{}</p>\n",
        grid(&super::profiles(findings)),
        escaped(&super::profile_note(findings))
    );
    let functions = super::functions(findings);
    for profile in super::in_pairs(findings) {
        let mut caption = format!(
            "{}, {}: {}, {} samples",
            profile.arm,
            findings.scenario.case_label(&profile.case),
            profile.role,
            profile.samples
        );
        for function in &functions {
            let share = percent(profile.share(function));
            put(&mut caption, format_args!(", {share} in {function}"));
        }
        put(
            &mut text,
            format_args!(
                "<figure class=\"flames\"><figcaption>{}</figcaption>\
                 <div class=\"wide\">{}</div></figure>\n",
                joined(&caption),
                flame::graph(&profile.stacks, &functions)
            ),
        );
    }
    text
}

fn figure(title: &str, svg: &str) -> String {
    format!(
        "<figure><figcaption>{}</figcaption>{svg}</figure>\n",
        escaped(title)
    )
}

/// A metric of all arms against the cases; nothing where there is but one case.
fn against_cases(findings: &Findings<'_>, metric: Metric, along: &str) -> String {
    let cases = &findings.scenario.cases;
    let series = series(findings, |arm| {
        cases
            .iter()
            .map(|case| point(findings, &case.id, arm, metric))
            .collect()
    });
    if series.is_empty() {
        return String::new();
    }
    let names: Vec<&str> = cases.iter().map(|case| &*case.label).collect();
    let title = metric.title();
    let words = Words {
        title: &title,
        along,
    };
    figure(&title, &chart::places(words, &names, &series))
}

/// Latency by percentile.
fn ladder(findings: &Findings<'_>, case: &str, label: &str) -> String {
    let series = series(findings, |arm| {
        LADDER
            .iter()
            .map(|(_, metric)| point(findings, case, arm, *metric))
            .collect()
    });
    if series.is_empty() {
        return String::new();
    }
    let title = format!("latency by percentile (us): {label}");
    let words = Words {
        title: &title,
        along: "percentile",
    };
    let names = LADDER.map(|(name, _)| name);
    figure(&title, &chart::places(words, &names, &series))
}

/// What arrived over time.
fn course(findings: &Findings<'_>, case: &str, label: &str, most: f64) -> String {
    let traces = traces(findings, case);
    if traces.is_empty() {
        return String::new();
    }
    let title = format!("receiver over time (Mbit/s): {label}");
    let words = Words {
        title: &title,
        along: "time",
    };
    figure(&title, &chart::times(words, &traces, most))
}

/// The most that any course shows.
fn most_received(findings: &Findings<'_>) -> f64 {
    let cases = findings.scenario.cases.iter();
    let traces = cases.flat_map(|case| traces(findings, &case.id));
    let values = traces.flat_map(|trace| trace.points);
    values.map(|(_, value)| value).fold(0.0, f64::max)
}

fn traces(findings: &Findings<'_>, case: &str) -> Vec<Trace> {
    let arms = findings.scenario.arms.iter().enumerate();
    arms.flat_map(|(style, arm)| {
        let runs = findings
            .run
            .valid(case, &arm.id)
            .filter(|cell| cell.series.len() > 1);
        runs.take(TRACES).map(move |cell| Trace {
            style,
            points: cell
                .series
                .iter()
                .map(|(at, rate)| (*at, rate / 1e6))
                .collect(),
        })
    })
    .collect()
}

/// One for each arm that has any point.
fn series(findings: &Findings<'_>, points: impl Fn(&str) -> Vec<Option<Point>>) -> Vec<Series> {
    let arms = findings.scenario.arms.iter().enumerate();
    arms.map(|(style, arm)| Series {
        style,
        points: points(&arm.id),
    })
    .filter(|one| one.points.iter().any(Option::is_some))
    .collect()
}

fn point(findings: &Findings<'_>, case: &str, arm: &str, metric: Metric) -> Option<Point> {
    let figure = findings.figure(case, arm, metric)?;
    Some(Point {
        value: figure.median,
        low: figure.interval.low,
        high: figure.interval.high,
    })
}

/// Rows, the first of them the heading.
fn grid(rows: &[Vec<String>]) -> String {
    let line = |row: &Vec<String>, all: &str| {
        let mut text = String::from("<tr>");
        for (at, cell) in row.iter().enumerate() {
            let tag = if at == 0 { "th" } else { all };
            put(&mut text, format_args!("<{tag}>{}</{tag}>", joined(cell)));
        }
        text + "</tr>\n"
    };
    let (head, body) = rows.split_at(rows.len().min(1));
    let [head, body] = [(head, "th"), (body, "td")]
        .map(|(rows, tag)| rows.iter().map(|row| line(row, tag)).collect::<String>());
    format!(
        "<div class=\"wide\"><table>\n<thead>{head}</thead>\n<tbody>{body}</tbody>\n</table></div>\n"
    )
}

fn list(lines: impl Iterator<Item = String>) -> String {
    let mut text = String::from("<ul>\n");
    for line in lines {
        put(&mut text, format_args!("<li>{}</li>\n", joined(&line)));
    }
    text + "</ul>\n"
}

/// Markdown's paragraphs and `code`; scenarios use no more of it.
fn paragraphs(text: &str) -> String {
    let coded = |paragraph: &str| {
        let parts = escaped(paragraph);
        let parts = parts.split('`').enumerate();
        let parts = parts.map(|(at, part)| match at % 2 {
            0 => part.to_owned(),
            _ => format!("<code>{part}</code>"),
        });
        parts.collect::<String>()
    };
    let mut all = String::new();
    for paragraph in text.split("\n\n") {
        put(&mut all, format_args!("<p>{}</p>\n", coded(paragraph)));
    }
    all
}

const STYLE: &str = include_str!("report.css");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Scenario;
    use crate::record::tests::{TEXT, run};

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
    fn the_page_asks_nobody_for_anything() {
        let page = page();
        for part in [
            "http:", "https:", "src=", "href=", "url(", "@import", "<script", "<link",
        ] {
            assert!(!page.contains(part), "{part}");
        }
    }

    #[test]
    fn a_number_is_never_parted_from_its_unit() {
        for (text, html) in [
            ("0.43 % by > 500 us", "0.43\u{a0}% by &gt; 500\u{a0}us"),
            ("less than 5 %: these", "less than 5\u{a0}%: these"),
            ("case 5 says", "case 5 says"),
            ("share %", "share %"),
        ] {
            assert_eq!(joined(text), html);
        }
    }

    #[test]
    fn functions_without_a_name_are_told_from_one_in_a_hundred_on() {
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
    fn every_part_is_there_and_what_was_measured_cannot_break_it() {
        let page = page();
        for part in [
            "<h2>Verdict</h2>",
            "second, 1%: tunnel client, 10 samples",
            "run&lt;T&gt;: 10 of 10 samples",
            "published 60.3, x0.833",
            "second against first, receiver: faster in 2 of 2 cases",
            "odd &amp; &lt;strange&gt;",
            "latency by percentile (us): 1%",
            "<th>pairs</th><th>verdict</th><th>smallest visible difference</th>",
            "aria-label=\"receiver (Mbit/s)\"",
            "receiver over time (Mbit/s): 0%",
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
