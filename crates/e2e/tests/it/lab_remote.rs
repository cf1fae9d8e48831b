//! `quictun lab run --remote`: two hosts with an agent on one of them. The test checks counts, not speeds.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use quictun_testbed::isolation::isolated;
use quictun_testbed::machine::Machine;
use quictun_testbed::program::{self, Program};
use quictun_testbed::{binaries, deadline};
use rustix::process::Signal;
use serde_json::Value;

use crate::lab::nothing_arrived;

const SOON: Duration = Duration::from_mins(1);

/// Two cases that differ only in their link. A remote run does not emulate links, so one case remains.
const SMALL: &str = r#"
name = "small"
title = "Small"
[sweep]
loss = ["0%", "50%"]
[workload]
duration = "1s"
warm_up = "100ms"
[design]
reps = 1
[[arm]]
id = "tcp"
kind = "tcp"
[[arm]]
id = "tls"
kind = "tls"
[[arm]]
id = "quic"
kind = "quic"
server_flags = ["--loop", "event"]
[[arm]]
id = "tunnel"
kind = "tunnel"
[[arm]]
id = "datagrams"
kind = "udp"
through_tunnel = true
client_flags = ["--rate", "10mbit"]
[[table]]
title = "Bandwidth"
columns = ["receiver_mbit_per_s", "cpu_s_per_gb"]
"#;

fn lab(host: &Machine, dir: &Path, arguments: &[&str]) -> Result<Command> {
    let mut command = host.command(binaries::path("quictun")?);
    command.arg("lab").args(arguments).current_dir(dir);
    Ok(command)
}

#[test]
fn arms_cross_the_real_path_to_an_agent_that_knows_the_token() -> Result<()> {
    isolated(|| {
        let (here, far) = (Machine::here(), Machine::new("far")?);
        here.join(&far, "path0", "10.9.0.1/24", "10.9.0.2/24")?;
        let dir = tempfile::tempdir()?;
        for (name, text) in [
            ("small.toml", SMALL),
            ("token", "0123456789abcdef0123456789abcdef\n"),
            ("other", "fedcba9876543210fedcba9876543210\n"),
        ] {
            fs::write(dir.path().join(name), text)?;
        }
        let serve = [
            "agent",
            "--token-file",
            "token",
            "--listen",
            "10.9.0.2:7610",
        ];
        let mut agent = Program::start("agent", &mut lab(&far, dir.path(), &serve)?)?;
        agent.wait_for("listening on 10.9.0.2:7610", SOON)?;
        let run = |token: &str, out: &str| {
            let arguments = [
                "run",
                "small.toml",
                "--remote",
                "10.9.0.2",
                "--token-file",
                token,
                "--out",
                out,
            ];
            program::output(&mut lab(&here, dir.path(), &arguments)?)
        };
        let refused = run("other", "none")?;
        let said = String::from_utf8_lossy(&refused.stderr);
        ensure!(refused.status.code() == Some(1), "{refused:?}");
        ensure!(said.contains("its token is another one"), "{said}");
        ensure!(!dir.path().join("none").exists(), "results were written");

        let done = run("token", "out")?;
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        let path = dir.path().join("out/run.json");
        let text = fs::read_to_string(path).with_context(|| said.clone())?;
        let measured: Value = serde_json::from_str(&text)?;
        ensure!(measured["remote"] == "10.9.0.2", "{said}");
        let machine = measured["environment"]
            .as_object()
            .context("`environment` is not an object")?;
        for key in [
            "kernel",
            "far: kernel",
            "far: device",
            "far: offloads",
            "round trip, idle",
        ] {
            ensure!(machine.contains_key(key), "{key}: {machine:?}");
        }
        ensure!(machine["MTU of the way"] == "1500", "{machine:?}");
        let cells = measured["cells"].as_array().context("cells")?;
        let through = ["client", "server", "tunnel client", "tunnel server"];
        for (arm, roles) in [
            ("tcp", &["client", "server"][..]),
            ("tls", &["client", "server"]),
            ("quic", &["client", "server"]),
            ("tunnel", &through[..]),
            ("datagrams", &through[..]),
        ] {
            // Other load may spoil a cell, which is then measured again.
            let own = || cells.iter().filter(|cell| cell["arm"] == arm);
            let mut moved = own().filter(|cell| !nothing_arrived(cell));
            let cell = moved.next().with_context(|| format!("no {arm}: {said}"))?;
            ensure!(own().all(|cell| cell["case"] == "loss=0%"));
            let metrics = &cell["metrics"];
            ensure!(
                metrics["receiver_mbit_per_s"].as_f64() > Some(0.0),
                "{said} {cell}"
            );
            ensure!(
                metrics["tcp_resent_far"].is_number() && cell["link"].is_null(),
                "{cell}"
            );
            let processes = cell["processes"].as_array().context("processes")?;
            for role in roles {
                let has = processes.iter().any(|process| process["role"] == *role);
                ensure!(has, "{arm}: no {role}: {cell}");
            }
        }
        let report = fs::read_to_string(dir.path().join("out/report.md"))?;
        ensure!(report.contains("the path as it is"), "{report}");
        ensure!(
            report.contains("--remote 10.9.0.2:7610 --token-file token"),
            "{report}"
        );

        agent.signal(Signal::TERM)?;
        ensure!(agent.wait_end(SOON)?.success());
        // The agent must leave nothing that it started.
        let left = || {
            far.run("ss -Hltun")
                .is_ok_and(|text| text.trim().is_empty())
        };
        deadline::until("all listeners to be gone", SOON, left)
    })
}
