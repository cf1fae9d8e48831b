//! The results that are committed: each report follows from its raw data, and from nothing else.

mod schema;

use std::fs;
use std::path::Path;

use quictun_lab::{Findings, Run, markdown, scenarios};

#[test]
fn committed_reports_follow_from_their_raw_data() {
    let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/results");
    let mut seen = 0;
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
        let report = markdown(&Findings::new(&run, &scenario));
        let path = dir.join("report.md");
        if std::env::var_os("UPDATE").is_some() {
            fs::write(&path, &report).expect("report.md");
        }
        let committed = fs::read_to_string(&path).unwrap_or_default();
        assert!(
            committed == report,
            "{name:?}: run with UPDATE=1, and look at what changes"
        );
        seen += 1;
    }
    assert!(seen > 0, "there are none");
}
