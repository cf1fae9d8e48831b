//! Runs the first-minutes commands of README.md and the invitation commands of OPERATIONS.md as written, between two
//! machines.

use std::fs::File;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use quictun_testbed::application::{Application, echo, through_echo};
use quictun_testbed::binaries;
use quictun_testbed::connection::Endpoint;
use quictun_testbed::isolation::isolated;
use quictun_testbed::machine::Machine;
use quictun_testbed::payload::Payload;
use quictun_testbed::program::{Program, run};
use quictun_testbed::tunnel::{Home, START};

use crate::documents::{OPERATIONS, README, block};

const SOME: Payload = Payload {
    seed: 513,
    bytes: 1 << 16,
};

/// A machine in the documentation, named by its prompt, and its user.
struct DocumentedHost {
    machine: Machine,
    home: Home,
    is_root: bool,
}

impl DocumentedHost {
    /// Returns a command that runs `line` in a shell on this machine.
    fn shell(&self, line: &str) -> Result<Command> {
        let mut shell = if self.is_root {
            self.machine.command("bash")
        } else {
            // An ordinary user, whose configuration is in their home.
            let mut shell = self.machine.command("unshare");
            shell.args([
                "--user",
                "--map-user=1000",
                "--map-group=1000",
                "--",
                "bash",
            ]);
            shell
        };
        shell.args(["-c", line]);
        self.home.settle(&mut shell);
        let programs = binaries::path("quictun")?;
        let programs = programs.parent().context("a directory")?;
        let others = std::env::var("PATH").unwrap_or_default();
        shell.env("PATH", format!("{}:{others}", programs.display()));
        shell.env_remove("XDG_CONFIG_HOME");
        Ok(shell)
    }

    fn background(&self, line: &str) -> Result<Program> {
        let mut program = Program::start(line, &mut self.shell(&format!("exec {line}"))?)?;
        program.wait_for("start up successful", START)?;
        Ok(program)
    }
}

#[test]
fn the_commands_of_the_first_minutes_reach_the_target() -> Result<()> {
    isolated(|| {
        let (here, far) = (Machine::here(), Machine::new("server")?);
        here.join(&far, "lan0", "192.0.2.1/24", "192.0.2.2/24")?;
        let ssh = ([127, 0, 0, 1], 22).into();
        let _application = far.within(|| Application::tcp_on(ssh, echo))?;
        let host = |machine, is_root| -> Result<DocumentedHost> {
            let home = Home::new()?;
            Ok(DocumentedHost {
                machine,
                home,
                is_root,
            })
        };
        let (server, laptop) = (host(far, true)?, host(here, false)?);
        let mut running = Vec::new();
        let code = laptop.home.path().join("code");
        let mut forwarded = None;
        let mut commands = block(README, "server$ quictun server")?;
        commands.extend(block(README, "laptop$ quictun join")?);
        for (prompt, command) in commands {
            let words: Vec<&str> = command.split_whitespace().collect();
            match (prompt, &words[..]) {
                ("server", ["quictun", "server", ..]) => running.push(server.background(command)?),
                ("server", ["quictun", "invite", ..]) => {
                    std::fs::write(&code, run(&mut server.shell(command)?)?)?;
                }
                ("laptop", ["quictun", "join", ..]) => {
                    let mut join = laptop.shell(command)?;
                    let said = join.stdin(Stdio::from(File::open(&code)?)).output()?;
                    ensure!(said.status.success(), "{said:?}");
                }
                ("laptop", ["quictun", "client", ..]) => running.push(laptop.background(command)?),
                // There is no account to log in to, so an echo answers at the address that ssh would use.
                ("laptop", ["ssh", "-p", port, address]) => {
                    let there = format!("{address}:{port}").parse()?;
                    through_echo(&Endpoint::Tcp(there), SOME)?;
                    forwarded = Some(there);
                }
                _ => bail!("this test cannot run {command:?} on {prompt:?}: add it to the match"),
            }
        }
        ensure!(forwarded.is_some(), "no command has used the tunnel");
        // The administrator's commands, while the server runs.
        run(&mut server.shell("quictun invite phone --allow '*:443'")?)?;
        for (_, command) in block(OPERATIONS, "server# quictun invite --list")? {
            let said = run(&mut server.shell(command)?)?;
            ensure!(
                said.contains("phone") || said.contains("laptop"),
                "{command}: {said}"
            );
        }
        let list = run(&mut server.shell("quictun invite --list")?)?;
        ensure!(
            list.starts_with("laptop") && !list.contains("phone"),
            "{list}"
        );
        Ok(())
    })
}
