//! `client --tun`: a device for the whole host, and the processes that serve it.
//!
//! This process makes the device and its routes, starts the two processes that carry its traffic ([`crate::pair`]), and
//! does nothing else. It is the only one with privileges.

use std::ffi::OsString;
use std::io;
use std::net::SocketAddr;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitCode};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use quictun_stackd::detour::{self, Detour};
use quictun_stackd::settings::{Routes, TunDevice, TunSettings};
use quictun_sys::{Signals, exit_code, with_default_signals};
use quictun_tunnel::settings::{ClientSettings, HostPort};
use rustix::process::{Pid, Signal, kill_process};

use crate::confirm;
use crate::exit::{self, ProgramError, say};
use crate::pair::{self, Pair};
use crate::supervisor::{
    ExitCodes, PairMember, PairPurpose, Supervisor, SupervisorEnd, SupervisorStep,
};

/// A client that ends by itself sooner than this has not served anything: its flags or files are at fault.
const SETTLED: Duration = Duration::from_secs(1);

/// Returns the device of a client, if it is one for the whole host that another process serves.
pub(crate) fn wanted(settings: &ClientSettings) -> Option<HostTunnel<'_>> {
    let tun = settings.tun.as_ref().filter(|tun| !tun.one_process)?;
    match &tun.device {
        TunDevice::Own(routes) => Some(HostTunnel {
            server: settings.server.at()?,
            tun,
            routes,
        }),
        _ => None,
    }
}

pub(crate) struct HostTunnel<'a> {
    server: &'a HostPort,
    tun: &'a TunSettings,
    routes: &'a Routes,
}

/// `quictun down`: removes the remains of a client that was killed.
pub(crate) fn down() -> anyhow::Result<()> {
    let text = if detour::remove()? {
        "removed the device, rules and packet filter of a client that was killed: traffic no longer goes through the tunnel\n"
    } else {
        "there is nothing to remove\n"
    };
    Ok(exit::print(text)?)
}

impl HostTunnel<'_> {
    /// Runs until a signal ends it. `arguments` are those of this process, and its client gets them as well.
    pub(crate) fn main(&self, program: &str, arguments: Vec<OsString>) -> ExitCode {
        exit::code(program, self.run(arguments).map_err(ProgramError::from))
    }

    fn run(&self, mut arguments: Vec<OsString>) -> anyhow::Result<u8> {
        // Signals are set up before there are child processes.
        let signals = Signals::of_parents()?;
        let server = (self.server.host.as_str(), self.server.port);
        let names = self.tun.dns.is_some();
        let mut detour = Detour::new(self.routes, names, server)?;
        let started = Instant::now();
        // The client finds the device of an address with a zone by itself.
        let plain = |it: &&SocketAddr| !matches!(it, SocketAddr::V6(v6) if v6.scope_id() != 0);
        for address in detour.server().iter().filter(plain) {
            arguments.extend(["--server-address".into(), address.ip().to_string().into()]);
        }
        for note in detour.notes() {
            say(&format!("quictun: {note}"));
        }
        if let Some(limit) = self.tun.confirm {
            confirm::wait_for(limit)?;
        }
        let outcome = serve(&mut detour, &signals, &arguments);
        let asked = matches!(outcome, Ok(SupervisorEnd { asked: true, .. }));
        if !asked && started.elapsed() >= SETTLED && detour.stay_closed() {
            say(
                "quictun: the tunnel has failed, and no packet bypasses it: start it again, or let traffic out with `quictun down`",
            );
        }
        outcome.map(|end| end.code)
    }
}

/// Lets the pair of processes serve the device until the end, and restarts the pair if one of them dies.
fn serve(
    detour: &mut Detour,
    signals: &Signals,
    arguments: &[OsString],
) -> anyhow::Result<SupervisorEnd> {
    let mut both = PairProcesses::start(detour, arguments)?;
    let mut told = ExitCodes::default();
    let mut supervisor = Supervisor::new(PairPurpose::Host, Instant::now());
    loop {
        match supervisor.next(Instant::now()) {
            SupervisorStep::Signal(role, signal) => both.signal(role, signal)?,
            // The programs' connections are reset while the device exists; without it, the programs would not learn of
            // the end.
            SupervisorStep::Reset => pair::end_flows(),
            SupervisorStep::Tell(role) => {
                let what = match role {
                    PairMember::Netstackd => "the process with the network stack has died",
                    PairMember::Client => "the client has died",
                };
                say(&format!(
                    "quictun: {what}: its connections are reset, and both processes started again"
                ));
            }
            SupervisorStep::Start => {
                // The cause of the pair's death may have changed the device.
                detour.restore()?;
                both = PairProcesses::start(detour, arguments)?;
            }
            SupervisorStep::Wait(until) => {
                // Signals are blocked first and children are checked afterwards, so that no end of a child is missed.
                let ended = both.ended()?;
                if ended != told {
                    told = ended;
                    supervisor.ended(ended, Instant::now());
                    continue;
                }
                let left = until.map(|until| until.saturating_duration_since(Instant::now()));
                let came = signals.wait(left.unwrap_or(Duration::from_hours(1)))?;
                if let Some(came) = came.filter(|came| came.signal != Signal::CHILD) {
                    supervisor.signal(came.signal);
                }
            }
            // This step occurs only for a command. If a host's client ends by itself, everything ends.
            SupervisorStep::ReleaseDevice => {}
            SupervisorStep::End(end) => return Ok(end),
        }
    }
}

struct PairProcesses {
    netstackd: Child,
    client: Child,
}

impl PairProcesses {
    fn start(detour: &Detour, arguments: &[OsString]) -> anyhow::Result<Self> {
        let mut client = Command::new(pair::this_program()?);
        client.args(arguments);
        // The program keeps its name, because the name selects the flags that it reads.
        if let Some(name) = std::env::args_os().next() {
            client.arg0(name);
        }
        let (mut first, mut second) = (None, None);
        Pair::start(detour.tun(), client, |role, command| {
            let child = with_default_signals(command).spawn()?;
            let pid = child.id();
            match role {
                PairMember::Netstackd => first = Some(child),
                PairMember::Client => second = Some(child),
            }
            Ok(pid)
        })?;
        let (netstackd, client) = first.zip(second).context("invariant: both were started")?;
        Ok(Self { netstackd, client })
    }

    /// Returns the exit codes of the processes that have ended. Checks the network stack first: if it has ended because
    /// its client did, the client has ended by then, too.
    fn ended(&mut self) -> io::Result<ExitCodes> {
        Ok(ExitCodes {
            netstackd: self.netstackd.try_wait()?.map(exit_code),
            client: self.client.try_wait()?.map(exit_code),
        })
    }

    fn signal(&mut self, role: PairMember, signal: Signal) -> io::Result<()> {
        let child = match role {
            PairMember::Netstackd => &mut self.netstackd,
            PairMember::Client => &mut self.client,
        };
        if child.try_wait()?.is_some() {
            return Ok(());
        }
        // The child was not waited for yet, so no other process has its number.
        let pid = Pid::from_raw(child.id().cast_signed());
        pid.map_or(Ok(()), |pid| Ok(kill_process(pid, signal)?))
    }
}

impl Drop for PairProcesses {
    fn drop(&mut self) {
        for child in [&mut self.client, &mut self.netstackd] {
            // The children may have ended already, and then there is nothing to do.
            if child.kill().is_ok() && child.wait().is_err() {}
        }
    }
}
