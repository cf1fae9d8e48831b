//! Runs the tutorial's commands as written, one after another.

use anyhow::{Context as _, Result, ensure};
use quictun_testbed::isolation::isolated;
use quictun_testbed::program::{Program, command, output};
use quictun_testbed::tunnel::{Home, START};
use quictun_testbed::{binaries, deadline};

/// A command, and the lines that its output must contain.
#[derive(Debug)]
struct TutorialStep {
    command: String,
    answers: Vec<String>,
}

/// Returns the commands of the `console` blocks, in order.
fn steps(document: &str) -> Vec<TutorialStep> {
    let mut steps: Vec<TutorialStep> = Vec::new();
    let mut inside = false;
    for line in document.lines() {
        if line.starts_with("```") {
            inside = line == "```console";
        } else if let Some(command) = line.strip_prefix("$ ").filter(|_| inside) {
            let (command, answers) = (command.to_owned(), Vec::new());
            steps.push(TutorialStep { command, answers });
        } else if let Some(step) = steps.last_mut().filter(|_| inside) {
            step.answers.push(line.to_owned());
        }
    }
    steps
}

/// Returns the address on which a background command listens: the last address with a port in it, or a port and an
/// address.
fn listens(command: &str) -> Result<String> {
    if let Some((_, rest)) = command.split_once("http.server ") {
        let mut words = rest.split_whitespace();
        let port = words.next().context("no port")?;
        let address = words.nth(1).context("no address")?;
        return Ok(format!("{address}:{port}"));
    }
    let words = command.split_whitespace();
    let mut addresses = words.filter(|word| word.parse::<std::net::SocketAddr>().is_ok());
    Ok(addresses.next_back().unwrap_or("127.0.0.1:8000").to_owned())
}

#[test]
fn every_command_of_the_tutorial_prints_its_documented_output() -> Result<()> {
    isolated(|| {
        let home = Home::new()?;
        let programs = binaries::path("quictun")?;
        let programs = programs.parent().context("a directory")?.to_owned();
        let path = format!(
            "{}:{}",
            programs.display(),
            std::env::var("PATH").unwrap_or_default()
        );
        let shell = |line: &str| {
            let mut shell = command("bash");
            shell.args(["-c", line]);
            home.settle(&mut shell);
            shell.env("PATH", &path);
            shell
        };
        let mut background = Vec::new();
        let steps = steps(include_str!("../../../../docs/TUTORIAL.md"));
        ensure!(steps.len() > 8, "{steps:?}");
        for TutorialStep { command, answers } in steps {
            if let Some(line) = command.strip_suffix(" &") {
                let mut program = Program::start(line, &mut shell(&format!("exec {line}")))?;
                if line.starts_with("quictun") {
                    program.wait_for("start up successful", START)?;
                }
                let address = listens(line)?;
                deadline::until(&format!("{line} to listen"), START, || {
                    std::net::TcpStream::connect(&address).is_ok()
                })?;
                background.push(program);
                continue;
            }
            let said = output(&mut shell(&command))?;
            let text = String::from_utf8_lossy(&said.stdout);
            ensure!(said.status.success(), "{command}: {said:?}");
            for answer in answers {
                ensure!(text.contains(&answer), "{command}: {answer:?} in {text}");
            }
        }
        Ok(())
    })
}
