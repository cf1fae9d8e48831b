//! `quictun doctor`: reports which requirements of tunnels and measurements this machine meets, and how to meet the
//! others; or which ways lead to a server.
//!
//! Each part examines one area and returns [`Finding`]s: [`machine`] the processor and the kernel, [`sockets`] the UDP
//! requirements of a tunnel, [`confinement`] the rights that the kernel can take from a process, [`namespaces`] the
//! requirements of an emulated link. The machine stays unchanged: trials run in namespaces that end with this process.
//!
//! [`redirect`] prints commands for the packet filter instead, and [`server`] examines the way to a server.

use std::fmt;
use std::process::ExitCode;

use clap::ArgMatches;
use quictun_args::address::{PORT, parse_server_at};
use quictun_args::fault::Fault;
use quictun_args::inputs::Inputs;
use quictun_args::native;
use quictun_args::options::InvalidValue;
use quictun_sys::{ContainError, ForkResult, NamespaceUser, Rights, contain};
use quictun_tunnel::reach::ReachRequest;
use quictun_tunnel::transparent::DivertMethod;
use serde::Serialize;

use crate::exit::{self, ProgramError};
use finding::{Finding, Severity};

mod confinement;
mod finding;
mod machine;
mod namespaces;
mod redirect;
mod server;
mod sockets;

const PROGRAM: &str = "quictun doctor";

/// The report that `--json` prints.
#[derive(Debug, Serialize)]
struct Report {
    version: u32,
    findings: Vec<Finding>,
    /// Number of findings whose state is [`Severity::Bad`].
    bad: usize,
}

/// Examines this machine, or the way to a server. The exit code is 1 if a finding is [`Severity::Bad`].
pub(crate) fn main(options: Options) -> ExitCode {
    exit::code(PROGRAM, run(options))
}

/// The job of one `quictun doctor` command.
#[derive(Clone, Debug)]
pub enum Options {
    /// Examines this machine, and prints a report.
    Examine {
        /// Prints the report as JSON.
        json: bool,
    },
    /// Examines the way to a server.
    Reach {
        /// The server to which the ways are tried.
        request: ReachRequest,
        /// Prints the report as JSON.
        json: bool,
    },
    /// Print the commands for the packet filter that lead connections to this port.
    /// The flag says whether UDP is led, too.
    Rules(DivertMethod, u16, bool),
}

impl Options {
    pub(crate) fn of(matches: &ArgMatches, inputs: &Inputs<'_>) -> Result<Self, Fault> {
        let port = |flag| matches.get_one::<u16>(flag).copied();
        let json = matches.get_flag("json");
        if let Some(server) = matches.get_one::<String>("server") {
            let parsed = parse_server_at(server, PORT);
            let server = parsed.map_err(|InvalidValue(why)| Fault::usage("the server", why))?;
            let tls_port = port("tls-port");
            let request = ReachRequest {
                server,
                tls_port,
                outbound_proxy: native::read_doctor(matches, inputs)?,
            };
            return Ok(Self::Reach { request, json });
        }
        Ok(match (port("redirect"), port("tproxy")) {
            (Some(port), _) => Self::Rules(DivertMethod::Redirect, port, false),
            (None, Some(port)) => Self::Rules(DivertMethod::Tproxy, port, matches.get_flag("udp")),
            (None, None) => Self::Examine { json },
        })
    }
}

fn run(options: Options) -> Result<u8, ProgramError> {
    let json = match options {
        Options::Examine { json } => json,
        Options::Reach { request, json } => {
            return print(&Report::new(server::findings(&request)?), json);
        }
        Options::Rules(method, port, udp) => {
            exit::print(&redirect::text(method, port, udp))?;
            return Ok(0);
        }
    };
    let (inside, refused) = match contain(NamespaceUser::Root) {
        Ok(ForkResult::Inside(inside)) => (Some(inside.rights()), None),
        Ok(ForkResult::Outside(contained)) => return Ok(contained.wait_or_kill()?),
        Err(error) => (None, Some(error)),
    };
    print(&examine(inside, refused.as_ref()), json)
}

/// Prints a report. Returns the exit code.
fn print(report: &Report, json: bool) -> Result<u8, ProgramError> {
    exit::show(report, json)?;
    Ok(u8::from(report.bad > 0))
}

fn examine(inside: Option<Rights>, refused: Option<&ContainError>) -> Report {
    let mut findings = machine::findings();
    findings.extend(sockets::findings());
    findings.extend(confinement::findings());
    findings.extend(namespaces::findings(inside, refused));
    Report::new(findings)
}

impl Report {
    fn new(findings: Vec<Finding>) -> Self {
        let bad = |finding: &&Finding| finding.state == Severity::Bad;
        Self {
            version: 1,
            bad: findings.iter().filter(bad).count(),
            findings,
        }
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
        let report = Report::new(vec![fine, missing]);
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
