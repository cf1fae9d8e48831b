//! `quictun doctor` and `quictun tune`: they report what a machine supports, without changing it.

use anyhow::{Context as _, Result, ensure};
use quictun_testbed::binaries;
use quictun_testbed::isolation::isolated;
use quictun_testbed::machine;
use quictun_testbed::program;

fn quictun(arguments: &[&str]) -> Result<(Option<i32>, serde_json::Value)> {
    let mut command = program::command(binaries::path("quictun")?);
    let output = command.args(arguments).arg("--json").output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    let report = serde_json::from_slice(&output.stdout).with_context(|| said.into_owned())?;
    Ok((output.status.code(), report))
}

#[test]
fn the_doctor_finds_the_needs_of_links_and_leaves_nothing() -> Result<()> {
    isolated(|| {
        let before = machine::run("ip -brief link")?;
        let (code, report) = quictun(&["doctor"])?;
        let findings = report["findings"].as_array().context("findings")?;
        let state = |what: &str| {
            let found = findings.iter().find(|finding| finding["what"] == what);
            found.map(|finding| finding["state"].clone())
        };
        // Without these, this test could not run.
        for what in ["namespaces", "emulator"] {
            ensure!(state(what) == Some("ok".into()), "{what}: {report}");
        }
        let bad = findings.iter().filter(|finding| finding["state"] == "bad");
        ensure!(report["bad"] == bad.count(), "{report}");
        ensure!(code == Some(i32::from(report["bad"] != 0)), "{report}");
        ensure!(
            machine::run("ip -brief link")? == before,
            "`quictun doctor` left a device behind"
        );
        Ok(())
    })
}

#[test]
fn tune_changes_nothing_without_its_flag() -> Result<()> {
    isolated(|| {
        let (code, report) = quictun(&["tune"])?;
        ensure!(code == Some(0), "{report}");
        let settings = report["settings"].as_array().context("settings")?;
        for setting in settings {
            let state = &setting["state"];
            ensure!(state == "ok" || state == "would", "{report}");
            ensure!(
                (setting["now"] == setting["wanted"]) == (state == "ok"),
                "{report}"
            );
        }
        Ok(())
    })
}
