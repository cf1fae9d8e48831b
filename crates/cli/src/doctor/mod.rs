//! `quictun doctor`: reports which requirements of tunnels and measurements this machine meets, and how to meet the
//! others.
//!
//! Each part examines one area and returns [`Finding`]s: [`machine`] the processor and the kernel, [`sockets`] the UDP
//! requirements of a tunnel, [`confinement`] the rights that the kernel can take from a process, [`namespaces`] the
//! requirements of an emulated link. The machine stays unchanged: trials run in namespaces that end with this process.
//!
//! [`redirect`] prints commands for the packet filter instead.

use std::fmt;
use std::process::ExitCode;

use clap::ArgMatches;
use quictun_sys::{ContainError, ForkResult, NamespaceUser, Rights, contain};
use quictun_tunnel::transparent::DivertMethod;
use serde::Serialize;

use crate::exit::{self, ProgramError};
use finding::{Finding, Severity};

mod confinement;
mod finding;
mod machine;
mod namespaces;
mod redirect;
mod sockets;

const PROGRAM: &str = "quictun doctor";

/// Commands for a shell, as a report to print.
#[derive(Debug, Serialize)]
struct Commands(String);

impl fmt::Display for Commands {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The report that `--json` prints.
#[derive(Debug, Serialize)]
struct Report {
    version: u32,
    findings: Vec<Finding>,
    /// Number of findings whose state is [`Severity::Bad`].
    bad: usize,
}

/// Examines this machine. The exit code is 1 if a finding is [`Severity::Bad`].
pub(crate) fn main(options: Options) -> ExitCode {
    exit::code(PROGRAM, run(options))
}

/// The job of one `quictun doctor` command.
#[derive(Clone, Copy, Debug)]
pub enum Options {
    /// Examines this machine, and prints a report.
    Examine {
        /// Prints the report as JSON.
        json: bool,
    },
    /// Print the commands for the packet filter that lead connections to this port.
    Rules(DivertMethod, u16),
}

impl Options {
    pub(crate) fn of(matches: &ArgMatches) -> Self {
        let port = |flag| matches.get_one::<u16>(flag).copied();
        match (port("redirect"), port("tproxy")) {
            (Some(port), _) => Self::Rules(DivertMethod::Redirect, port),
            (None, Some(port)) => Self::Rules(DivertMethod::Tproxy, port),
            (None, None) => Self::Examine {
                json: matches.get_flag("json"),
            },
        }
    }
}

fn run(options: Options) -> Result<u8, ProgramError> {
    let json = match options {
        Options::Examine { json } => json,
        Options::Rules(method, port) => {
            exit::show(&Commands(redirect::text(method, port)), false)?;
            return Ok(0);
        }
    };
    let (inside, refused) = match contain(NamespaceUser::Root) {
        Ok(ForkResult::Inside(inside)) => (Some(inside.rights()), None),
        Ok(ForkResult::Outside(contained)) => return Ok(contained.wait_or_kill()?),
        Err(error) => (None, Some(error)),
    };
    let report = examine(inside, refused.as_ref());
    exit::show(&report, json)?;
    Ok(u8::from(report.bad > 0))
}

fn examine(inside: Option<Rights>, refused: Option<&ContainError>) -> Report {
    let mut findings = machine::findings();
    findings.extend(sockets::findings());
    findings.extend(confinement::findings());
    findings.extend(namespaces::findings(inside, refused));
    let bad = findings
        .iter()
        .filter(|finding| finding.state == Severity::Bad)
        .count();
    Report {
        version: 1,
        findings,
        bad,
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut area = "";
        for finding in &self.findings {
            if finding.area != area {
                area = finding.area;
                writeln!(f, "{area}")?;
            }
            finding.fmt(f)?;
        }
        match self.bad {
            0 => writeln!(f, "\nnothing stands in the way"),
            1 => writeln!(
                f,
                "\n1 thing stands in the way: the line with x says what to do"
            ),
            bad => writeln!(
                f,
                "\n{bad} things stand in the way: the lines with x say what to do"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_findings_are_counted_and_marked() {
        let fine = Finding::ok("machine", "kernel", "Linux 6.18");
        let missing = Finding::ok("emulated link", "namespaces", "not permitted")
            .with_severity(Severity::Bad, "no emulated link")
            .remedy("run it as root");
        let report = Report {
            version: 1,
            findings: vec![fine, missing],
            bad: 1,
        };
        let said = report.to_string();
        for line in [
            "    kernel                 Linux 6.18\n",
            "  x namespaces             not permitted\n",
            "                           try: run it as root\n",
            "1 thing stands in the way",
        ] {
            assert!(said.contains(line), "{said}");
        }
    }
}
