//! The shipped service units and the documented socket units, checked by systemd.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use quictun_testbed::binaries;
use quictun_testbed::isolation::with_programs;
use quictun_testbed::program::{installed, output};
use quictun_testbed::tunnel::Home;

/// The path at which the units expect the program.
const INSTALLED: &str = "/usr/local/bin/quictun";
/// The first line of each documented unit names its file.
const HEAD: &str = "# /etc/systemd/system/";

#[test]
fn systemd_accepts_every_line_of_the_units() -> Result<()> {
    with_programs(|| {
        let analyze = installed("systemd-analyze", "systemd")?;
        let home = Home::new()?;
        let program = binaries::path("quictun")?;
        let program = program.to_str().context("the path is not valid UTF-8")?;
        let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/OPERATIONS.md");
        let document = std::fs::read_to_string(document)?;
        let mut names = Vec::new();
        for block in document.split("```ini\n").skip(1) {
            let unit = block.split("```").next().unwrap_or_default();
            let name = unit.strip_prefix(HEAD).and_then(|rest| rest.lines().next());
            let name = name.with_context(|| format!("a unit without its path: {unit}"))?;
            std::fs::write(home.path().join(name), unit.replace(INSTALLED, program))?;
            names.push(name.to_owned());
        }
        let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/systemd");
        for entry in std::fs::read_dir(&shipped)? {
            let entry = entry?;
            let unit = std::fs::read_to_string(entry.path())?;
            let name = entry.file_name().to_string_lossy().into_owned();
            std::fs::write(home.path().join(&name), unit.replace(INSTALLED, program))?;
            names.push(name);
        }
        names.sort();
        let expected = [
            "client-tun.service",
            "client.service",
            "client.socket",
            "server.service",
            "server.socket",
        ];
        ensure!(
            names == expected.map(|name| format!("quictun-{name}")),
            "{names:?}"
        );
        for name in &names {
            let mut command = Command::new(&analyze);
            command
                .args(["verify", "--man=no"])
                .arg(home.path().join(name));
            let said = output(command.current_dir(home.path()))?;
            // systemd names unknown keys on standard error without failing. It may also name other units of this machine.
            let said_of_all = String::from_utf8_lossy(&said.stderr);
            let ours: Vec<&str> = said_of_all
                .lines()
                .filter(|line| line.contains("quictun"))
                .collect();
            ensure!(said.status.success() && ours.is_empty(), "{name}: {ours:?}");
        }
        Ok(())
    })
}
