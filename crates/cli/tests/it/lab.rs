//! `quictun lab`: the results of its command lines and scenarios, and the input that it refuses.

use quictun_args::fault::{Exit, Fault};
use quictun_cli::native::Action;
use quictun_lab_run::{Action as LabAction, RunSettings};

use crate::test_inputs::TestInputs;

const SMALL: &str = r#"
name = "small"
title = "Small"
workload.duration = "1s"
sweep.loss = ["0%", "1%"]
[[arm]]
id = "a"
kind = "tcp"
[[arm]]
id = "b"
kind = "tunnel"
"#;

fn asked(inputs: &TestInputs, line: &str) -> Result<LabAction, Fault> {
    match inputs.native(line)? {
        Action::Lab(action) => Ok(action),
        other => panic!("{line}: not an action of the lab: {other:?}"),
    }
}

fn measurings(inputs: &TestInputs, line: &str) -> Vec<RunSettings> {
    match asked(inputs, line) {
        Ok(LabAction::Run(measurings)) => measurings,
        other => panic!("{line}: nothing to measure: {other:?}"),
    }
}

fn measuring(inputs: &TestInputs, line: &str) -> RunSettings {
    let mut all = measurings(inputs, line);
    assert_eq!(all.len(), 1, "{line}");
    all.remove(0)
}

fn printed(line: &str) -> String {
    match asked(&TestInputs::default(), line) {
        Ok(LabAction::Print(text)) => text,
        other => panic!("{line}: {other:?}"),
    }
}

#[test]
fn scenarios_are_listed_and_one_that_is_shown_can_be_run_from_a_file() {
    let list = printed("lab list");
    assert!(list.contains("published-bandwidth  "), "{list}");
    let shown = printed("lab show published-bandwidth");
    let inputs = TestInputs::default().file("mine.toml", &shown);
    let [built_in, own] = ["published-bandwidth", "mine.toml"]
        .map(|named| measuring(&inputs, &format!("lab run {named} --quick")).schedule);
    assert_eq!(built_in, own);
    assert_eq!(built_in.cells.len(), 5 * 3 * 6);
}

#[test]
fn flags_and_variables_choose_what_is_measured() {
    let inputs = TestInputs::default().file("small.toml", SMALL);
    let all = measuring(&inputs, "lab run small.toml");
    assert_eq!(
        (all.schedule.cells.len(), all.seed, all.selection.quick),
        (2 * 2 * 7, 1, false)
    );
    let some = measuring(
        &inputs,
        "lab run small.toml --only b,loss=1% --reps 3 --seed 9 --out here",
    );
    assert_eq!((some.schedule.cells.len(), some.seed), (3, 9));
    assert_eq!(some.out.as_deref(), Some("here".as_ref()));
    let by_variable = inputs.clone().env("QUICTUN_LAB_REPS", "2");
    assert_eq!(
        measuring(&by_variable, "lab run small.toml").schedule.reps,
        2
    );
}

#[test]
fn several_scenarios_are_measured_in_order_each_in_a_directory_of_its_own() {
    let inputs = TestInputs::default().file("mine.toml", SMALL);
    let both = measurings(&inputs, "lab run mine.toml outage --quick --out here");
    let names = both
        .iter()
        .map(|one| (&*one.scenario.name, one.out.clone()));
    let at = |path: &str| Some(path.into());
    assert!(names.eq([("small", at("here/small")), ("outage", at("here/outage"))]));
    let one_bad = asked(&inputs, "lab run mine.toml no-such");
    assert_eq!(one_bad.expect_err("no such scenario").what, "no-such");
}

#[test]
fn an_agent_and_another_emulator_are_named_on_the_command_line() {
    let inputs = TestInputs::default().file("small.toml", SMALL);
    for (line, port) in [("far", 7610), ("far:99", 99), ("[2001:db8::1]:99", 99)] {
        let line = format!("lab run small.toml --remote {line} --token-file t");
        let asked = measuring(&inputs, &line).remote.expect("an agent");
        assert_eq!((asked.host.port, &*asked.token_file), (port, "t".as_ref()));
    }
    match asked(&inputs, "lab agent --token-file t") {
        Ok(LabAction::Agent(agent)) => assert_eq!(agent.listen.to_string(), "[::]:7610"),
        other => panic!("not an agent: {other:?}"),
    }
    let line = "lab crosscheck --quick --emulator linkemu";
    let crossed = measuring(&inputs, line);
    assert_eq!(crossed.scenario.arms.len(), 3);
    assert_eq!(crossed.emulator.as_deref(), Some("linkemu"));
}

#[test]
fn invalid_settings_are_refused_with_the_remedy() {
    let broken = SMALL.replace("\"1%\"", "\"1percent\"");
    let inputs = TestInputs::default()
        .file("small.toml", SMALL)
        .file("broken.toml", &broken);
    for (line, exit, says) in [
        (
            "lab run published-bandwith",
            Exit::Usage,
            "there is no such scenario; did you mean published-bandwidth?",
        ),
        (
            "lab show x",
            Exit::Usage,
            "a file of your own ends in .toml",
        ),
        (
            "lab run none.toml",
            Exit::Failure,
            "none.toml: cannot read the scenario",
        ),
        (
            "lab run broken.toml",
            Exit::Usage,
            "broken.toml: line 5: `1percent` is not a share",
        ),
        (
            "lab run small.toml --only c",
            Exit::Usage,
            "--only: \"c\" is neither an arm (a, b) nor a case (loss=0%, loss=1%)",
        ),
        (
            "lab run small.toml --reps 0",
            Exit::Usage,
            "--reps: 0 repetitions: from 1 to 1000",
        ),
        (
            "lab run small.toml --reps 1001",
            Exit::Usage,
            "--reps: 1001 repetitions: from 1 to 1000",
        ),
        (
            "lab run small.toml --reps many",
            Exit::Usage,
            "--reps: \"many\" is not a number of repetitions",
        ),
        ("lab run", Exit::Usage, "<SCENARIO>... is missing"),
        (
            "lab run small.toml --remote far",
            Exit::Usage,
            "--remote: needs the token that the agent knows; --token-file FILE",
        ),
        (
            "lab run small.toml --token-file t",
            Exit::Usage,
            "--token-file: goes with --remote",
        ),
        (
            "lab agent",
            Exit::Usage,
            "--token-file: is missing: who may measure here?",
        ),
    ] {
        let fault = asked(&inputs, line).expect_err(line);
        let said = format!("{fault}; {}", fault.next.clone().unwrap_or_default());
        assert!(said.contains(says), "{line}: {said}");
        assert_eq!(fault.exit, exit, "{line}");
    }
}
