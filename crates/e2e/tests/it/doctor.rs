//! `quictun doctor` and `quictun tune`: they report what a machine supports, without changing it.

use anyhow::{Context as _, Result, ensure};
use quictun_testbed::binaries;
use quictun_testbed::isolation::isolated;
use quictun_testbed::machine::{self, Machine};
use quictun_testbed::program;
use quictun_testbed::tunnel::Home;

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

/// Returns the state of each finding about a server, by its name.
fn states(report: &serde_json::Value) -> Result<Vec<(String, String)>> {
    let findings = report["findings"].as_array().context("findings")?;
    let text = |finding: &serde_json::Value, key: &str| {
        let text = finding[key].as_str().map(str::to_owned);
        text.with_context(|| format!("{key} of {finding}"))
    };
    let state = |finding| Ok((text(finding, "what")?, text(finding, "state")?));
    findings.iter().map(state).collect()
}

#[test]
fn the_doctor_says_which_ways_lead_to_a_server() -> Result<()> {
    isolated(|| {
        let (here, far) = (Machine::here(), Machine::new("far")?);
        here.join(&far, "lan0", "10.30.0.1/24", "10.30.0.2/24")?;
        let home = Home::new()?;
        let (_server, _) = home.open_server(&far)?;
        let says = |arguments: &[&str], expected: &[(&str, &str)], code: i32| {
            let (found_code, report) = quictun(&[&["doctor"], arguments].concat())?;
            let found = states(&report)?;
            let expected = expected
                .iter()
                .map(|&(what, state)| (what.to_owned(), state.to_owned()));
            ensure!(
                found == expected.collect::<Vec<_>>(),
                "{arguments:?}: {report:#}"
            );
            ensure!(
                found_code == Some(code),
                "{arguments:?}: {found_code:?} {report:#}"
            );
            anyhow::Ok(report.to_string())
        };
        let (address, udp, tcp, mtu) = ("address", "UDP (QUIC)", "TCP (TLS)", "packets (MTU)");
        let all = [(address, "ok"), (udp, "ok"), (tcp, "ok"), (mtu, "ok")];
        let text = says(&["10.30.0.2"], &all, 0)?;
        ensure!(text.contains("up to 1500 bytes"), "{text}");
        // A router with a smaller MTU, which drops what is larger.
        far.run("nft add table inet way")?;
        far.run("nft add chain inet way in { type filter hook prerouting priority 0 ; }")?;
        far.run("nft add rule inet way in meta l4proto udp meta length gt 1400 drop")?;
        let text = says(&["10.30.0.2:7500"], &all, 0)?;
        ensure!(text.contains("up to 1400 bytes"), "{text}");
        let no_tcp = [(address, "ok"), (udp, "ok"), (tcp, "note"), (mtu, "ok")];
        let text = says(&["10.30.0.2", "--tls-port", "443"], &no_tcp, 0)?;
        ensure!(text.contains("port 443 is closed"), "{text}");
        far.run("nft add rule inet way in meta l4proto udp drop")?;
        let no_udp = [(address, "ok"), (udp, "note"), (tcp, "ok")];
        let text = says(&["10.30.0.2"], &no_udp, 0)?;
        ensure!(text.contains("have UDP port 7500 passed"), "{text}");
        let nothing = [(address, "ok"), (udp, "bad"), (tcp, "bad")];
        says(&["10.30.0.2:7501"], &nothing, 1)?;
        says(&["10.30.0.9"], &nothing, 1)?;
        says(&["192.0.2.1"], &nothing, 1)?;
        says(&["no-such-host.invalid"], &[(address, "bad")], 1)?;
        Ok(())
    })
}
