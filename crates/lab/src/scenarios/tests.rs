//! Checks the built-in scenarios, and the document that shows them.

use std::path::Path;

use super::*;
use crate::put;
use crate::{Scenario, Schedule, Selection};

/// Returns the text of `docs/scenarios.md`.
fn document() -> String {
    let mut text = String::from(HEAD);
    for (_, source) in ALL {
        let scenario = parsed(source);
        put!(
            text,
            "| [`{0}`](#{0}) | {1} | {2} |\n",
            scenario.name,
            scenario.title,
            minutes(&scenario).map(|(_, time)| time).join(", ")
        );
    }
    for (_, source) in ALL {
        text += &section(source);
    }
    text + FORMAT
}

fn parsed(text: &str) -> Scenario {
    Scenario::parse(text).expect("a scenario")
}

/// Returns a scenario's section: its description, and a table of its settings.
fn section(source: &str) -> String {
    let scenario = parsed(source);
    let raw: toml::Table = source.parse().expect("TOML");
    let name = &scenario.name;
    let mut text = format!("\n## {name}\n\n**{}.**", scenario.title);
    if let Some(source) = &scenario.source {
        put!(text, " Reproduces: {source}.");
    }
    put!(text, "\n\n{}\n\n| | |\n|---|---|\n", scenario.about);
    let mut row = |key: &str, value: &str| {
        if !value.is_empty() {
            put!(text, "| {key} | {} |\n", value.replace('|', "\\|"));
        }
    };
    row("link", &of_table(&raw, "link"));
    row("traffic", &of_table(&raw, "workload"));
    row("conditions", &conditions(&scenario, &raw));
    let arms = raw["arm"].as_array().expect("arms").iter();
    row("measured", &arms.map(arm).collect::<Vec<_>>().join("; "));
    row("compared", &compared(&scenario));
    let times = minutes(&scenario).map(|(reps, time)| format!("{reps} repetitions, about {time}"));
    row("size", &times.join("; with `--quick` "));
    let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/results");
    if results.join(name).is_dir() {
        row("result", &format!("[report](results/{name}/report.md)"));
    }
    row(
        "file",
        &format!("[{name}.toml](../crates/lab/scenarios/{name}.toml)"),
    );
    text
}

/// Returns the settings of a table in words, such as `rate 600mbit, delay 0.5ms`.
fn of_table(raw: &toml::Table, key: &str) -> String {
    let table = raw.get(key).and_then(toml::Value::as_table);
    let mut pairs: Vec<(&String, &toml::Value)> = table.into_iter().flatten().collect();
    // The kind of traffic or link comes first.
    pairs.sort_by_key(|(key, _)| !["mode", "like", "rate"].contains(&key.as_str()));
    let pairs = pairs.into_iter().map(|(key, value)| match value {
        toml::Value::String(mode) if key == "mode" => match mode.as_str() {
            "rr" => "requests one after the other".to_owned(),
            "crr" => "a connection for each request".to_owned(),
            _ => "a stream".to_owned(),
        },
        toml::Value::Boolean(true) => key.clone(),
        value => format!("{} {}", key.replace('_', " "), plain(value)),
    });
    pairs.collect::<Vec<_>>().join(", ")
}

fn plain(value: &toml::Value) -> String {
    match value {
        toml::Value::String(text) => text.clone(),
        toml::Value::Array(all) => all.iter().map(plain).collect::<Vec<_>>().join(", "),
        toml::Value::Table(table) => {
            let pairs = table.iter();
            let pairs = pairs.map(|(key, value)| format!("{key} {}", plain(value)));
            pairs.collect::<Vec<_>>().join(" ")
        }
        other => other.to_string(),
    }
}

/// Returns the cases, or the factors that they combine.
fn conditions(scenario: &Scenario, raw: &toml::Table) -> String {
    let sweep = raw.get("sweep").and_then(toml::Value::as_table);
    let factors = sweep.into_iter().flatten();
    let mut all: Vec<String> = factors
        .map(|(key, values)| format!("{key} {}", plain(values)))
        .collect();
    let cases = raw.get("case").and_then(toml::Value::as_array);
    if let Some(cases) = cases {
        let label = |case: &toml::Value| plain(case.get("label").unwrap_or(&case["id"]));
        all.push(cases.iter().map(label).collect::<Vec<_>>().join("; "));
    }
    match scenario.cases.len() {
        1 => String::new(),
        many => format!("{many}: {}", all.join(" x ")),
    }
}

/// Returns an arm's id, with its kind and options in parentheses as far as the id does not say them.
fn arm(raw: &toml::Value) -> String {
    let word = |key: &str| raw.get(key).map(plain);
    let (id, kind) = (plain(&raw["id"]), plain(&raw["kind"]));
    let mut more: Vec<String> = (kind != id).then_some(kind).into_iter().collect();
    more.extend(word("congestion"));
    more.extend(word("client_flags").map(|flags| format!("`{}`", flags.replace(", ", " "))));
    more.extend(word("link"));
    more.extend(
        raw.get("optional")
            .map(|_| "where it is installed".to_owned()),
    );
    if more.is_empty() {
        format!("`{id}`")
    } else {
        format!("`{id}` ({})", more.join(", "))
    }
}

/// Returns the compared arms, each pair with its metrics.
fn compared(scenario: &Scenario) -> String {
    let mut pairs: Vec<(String, Vec<String>)> = Vec::new();
    for (a, b, metric) in &scenario.compares {
        let pair = format!("`{a}` with `{b}`");
        match pairs.iter_mut().find(|(known, _)| *known == pair) {
            Some((_, metrics)) => metrics.push(metric.title()),
            None => pairs.push((pair, vec![metric.title()])),
        }
    }
    let pairs = pairs.iter();
    let pairs = pairs.map(|(pair, metrics)| format!("{pair}: {}", metrics.join(", ")));
    pairs.collect::<Vec<_>>().join("; ")
}

/// Returns the repetitions and the duration of a full run and of a quick run.
fn minutes(scenario: &Scenario) -> [(u32, String); 2] {
    [false, true].map(|quick| {
        let selection = Selection {
            quick,
            ..Selection::default()
        };
        let schedule = Schedule::new(scenario, &selection, 1).expect("a schedule");
        let time = scenario.estimate_all(&schedule.cells, quick);
        let minutes = time.as_secs().div_ceil(60);
        (schedule.reps, format!("{minutes} min"))
    })
}

/// The text before and after the sections of the document.
const HEAD: &str = include_str!("document_head.md");
const FORMAT: &str = include_str!("document_format.md");

#[test]
fn every_built_in_scenario_is_valid_and_has_the_name_of_its_file() {
    for (name, text) in ALL {
        let scenario = Scenario::parse(text).unwrap_or_else(|why| panic!("{name}: {why}"));
        assert_eq!(scenario.name, *name);
        assert!(!scenario.tables.is_empty(), "{name} has no table");
        assert!(
            text.lines().all(|line| line.len() <= 120),
            "{name}: long lines"
        );
    }
}

#[test]
fn an_external_emulator_joins_the_crosscheck_with_any_command() {
    let own = find("crosscheck").expect("crosscheck exists");
    for command in ["linkemu --loss $QUICTUN_LOSS", "a \"b\" 'c' \\ \n d"] {
        let text = own.to_owned() + &other_emulator(command);
        let scenario = Scenario::parse(&text).expect("a scenario");
        let arm = scenario.arms.len() - 1;
        assert_eq!(scenario.arms[arm].id, "other-emulator");
        for case in 0..scenario.cases.len() {
            let link = scenario.setup(case, arm, false).link.emulated();
            let link = link.expect("an emulated link");
            assert_eq!(link.emulator.as_deref(), Some(command));
            let [link_config, _] = link.directions(1);
            assert!(link_config.rate.is_some() && !link_config.delay.is_zero());
        }
    }
}

#[test]
fn the_generated_document_is_committed() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/scenarios.md");
    let text = document();
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, &text).expect("docs/scenarios.md");
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == text,
        "run with UPDATE=1, and look at what changes"
    );
}
