//! The scenarios that come with the program, and the document that shows them.

use std::path::Path;

use super::*;
use crate::Scenario;
use crate::put;
use crate::scenario::ArmKind;

/// `docs/scenarios.md`.
fn document() -> String {
    let mut text = String::from(HEAD);
    let parsed = |text| Scenario::parse(text).expect("a scenario");
    for (_, source) in ALL {
        let scenario = parsed(source);
        put!(
            text,
            "| [`{0}`](#{0}) | {1} |\n",
            scenario.name,
            scenario.title
        );
    }
    text += FORMAT;
    for (_, source) in ALL {
        let scenario = parsed(source);
        put!(text, "\n## {}\n\n{}.\n", scenario.name, scenario.title);
        if let Some(source) = &scenario.source {
            put!(text, "\nReproduces: {source}.\n");
        }
        put!(text, "\n{}\n\n{}\n", scenario.about, size(&scenario));
        put!(text, "\n```toml\n{}\n```\n", body(source));
    }
    text
}

/// How much there is to measure.
fn size(scenario: &Scenario) -> String {
    let optional = scenario.arms.iter().filter(|arm| arm.optional).count();
    let commands = scenario
        .arms
        .iter()
        .filter(|arm| arm.kind == ArmKind::Command)
        .count();
    let [reps, quick] = scenario.reps;
    let mut text = format!(
        "{} cases, {} arms, {reps} repetitions ({quick} with `--quick`)",
        scenario.cases.len(),
        scenario.arms.len(),
    );
    if optional + commands > 0 {
        put!(
            text,
            "; {optional} arms are left out where their program is missing"
        );
    }
    text + "."
}

/// The text without what is shown above it.
fn body(source: &str) -> &str {
    let after = source.split_once("\n\"\"\"\n\n").map(|(_, rest)| rest);
    after.unwrap_or(source).trim_end()
}

/// What stands around the table of scenarios.
const HEAD: &str = include_str!("document_head.md");
const FORMAT: &str = include_str!("document_format.md");

#[test]
fn every_scenario_is_one_under_its_own_name() {
    for (name, text) in ALL {
        let scenario = Scenario::parse(text).unwrap_or_else(|why| panic!("{name}: {why}"));
        assert_eq!(scenario.name, *name);
        assert!(!scenario.tables.is_empty(), "{name} shows nothing");
        assert!(
            text.lines().all(|line| line.len() <= 120),
            "{name}: long lines"
        );
    }
}

#[test]
fn another_emulator_joins_the_crosscheck_whatever_its_command_looks_like() {
    let own = find("crosscheck").expect("it is there");
    for command in ["linkemu --loss $QUICTUN_LOSS", "a \"b\" 'c' \\ \n d"] {
        let text = own.to_owned() + &other_emulator(command);
        let scenario = Scenario::parse(&text).expect("a scenario");
        let arm = scenario.arms.len() - 1;
        assert_eq!(scenario.arms[arm].id, "other-emulator");
        for case in 0..scenario.cases.len() {
            let link = scenario.setup(case, arm, false).link.emulated();
            let link = link.expect("an emulated link");
            assert_eq!(link.emulator.as_deref(), Some(command));
            let [way, _] = link.ways(1);
            assert!(way.rate.is_some() && !way.delay.is_zero());
        }
    }
}

#[test]
fn the_document_is_the_committed_one() {
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
