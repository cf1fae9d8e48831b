//! Committed results: each report must follow from its raw data alone.

mod schema;

use std::fs;
use std::path::Path;

use quictun_lab::{
    Findings, PlannedCell, Run, Scenario, Schedule, Selection, charts, markdown, scenarios,
};

/// Returns name, run and scenario of each committed result.
fn runs() -> Vec<(String, Run, Scenario)> {
    let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/results");
    let mut all = Vec::new();
    for entry in fs::read_dir(&results).expect("docs/results") {
        let dir = entry.expect("an entry").path();
        if !dir.is_dir() {
            continue;
        }
        let text = fs::read_to_string(dir.join("run.json")).expect("raw data");
        let (run, scenario) = Run::from_json(&text).expect("a run");
        let name = dir.file_name().and_then(|name| name.to_str());
        assert_eq!(name, Some(&*scenario.name));
        assert!(scenarios::find(&scenario.name).is_some(), "{name:?}");
        all.push((scenario.name.clone(), run, scenario));
    }
    assert!(!all.is_empty(), "docs/results holds no run");
    all
}

#[test]
fn committed_reports_follow_from_their_raw_data() {
    let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/results");
    for (name, run, scenario) in runs() {
        let findings = Findings::new(&run, &scenario);
        let dir = results.join(&name);
        let mut files = charts(&findings);
        files.push(("report.md".to_owned(), markdown(&findings)));
        for (file, text) in &files {
            let path = dir.join(file);
            if std::env::var_os("UPDATE").is_some() {
                fs::write(&path, text).expect("a report");
            }
            let committed = fs::read_to_string(&path).unwrap_or_default();
            assert!(
                committed == *text,
                "{name:?}, {file}: run with UPDATE=1, and look at what changes"
            );
        }
        for entry in fs::read_dir(&dir).expect("a result") {
            let file = entry.expect("an entry").file_name();
            let file = file.to_string_lossy();
            let is_known = file == "run.json" || files.iter().any(|(name, _)| *name == *file);
            assert!(is_known, "{name:?}: {file} belongs to no report");
        }
    }
}

#[test]
fn the_first_estimate_of_a_run_is_near_its_duration() {
    for (name, run, scenario) in runs() {
        let selection = Selection {
            only: run.asked.only.clone(),
            reps: Some(run.asked.reps),
            quick: run.asked.quick,
        };
        let schedule = Schedule::new(&scenario, &selection, run.asked.seed).expect("a schedule");
        // Arms whose programs were missing have no cells.
        let is_there = |planned: &&PlannedCell| {
            let (case, arm) = (&scenario.cases[planned.case], &scenario.arms[planned.arm]);
            let mut cells = run.cells.iter();
            cells.any(|cell| cell.case == case.id && cell.arm == arm.id)
        };
        let cells: Vec<PlannedCell> = schedule.cells.iter().filter(is_there).copied().collect();
        let estimate = scenario.estimate_all(&cells, selection.quick).as_secs_f64();
        let factor = run.seconds / estimate;
        assert!(
            (1.0 / 1.5..1.5).contains(&factor),
            "{name}: estimated {estimate:.0} s, but the run took {:.0} s",
            run.seconds
        );
    }
}
