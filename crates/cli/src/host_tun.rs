//! `client --tun`: a device for the whole host, and whoever serves it.
//!
//! This process makes the device and its routes, starts the two that carry what goes there ([`crate::pair`]), and does
//! nothing else: it is the only one with rights.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use quictun_stackd::detour::{self, Detour};
use quictun_stackd::settings::{Routes, TunDevice};
use quictun_sys::{Signals, exit_code, with_default_signals};
use quictun_tunnel::settings::{ClientSettings, HostPort};
use rustix::process::{Pid, Signal, kill_process};

use crate::confirm;
use crate::exit::{self, say};
use crate::pair::{self, Pair, Restarts, Role};

/// How long one of the two has to tell its side that the other is gone.
const GRACE: Duration = Duration::from_millis(300);

/// Between looks at one that was killed.
const LOOK: Duration = Duration::from_millis(5);

/// A client that ends by itself sooner than this has not served anything: its flags or files are at fault.
const SETTLED: Duration = Duration::from_secs(1);

/// What a client asks for that has a device of its own and does not want it in its own process.
pub(crate) fn wanted(settings: &ClientSettings) -> Option<Host> {
    let tun = settings.tun.as_ref().filter(|tun| !tun.one_process)?;
    let TunDevice::Own(routes) = &tun.device else {
        return None;
    };
    Some(Host {
        routes: routes.clone(),
        server: settings.server.clone(),
        names: tun.dns.is_some(),
        confirm: tun.confirm,
    })
}

/// A device for the host.
#[derive(Clone, Debug)]
pub(crate) struct Host {
    routes: Routes,
    server: HostPort,
    names: bool,
    confirm: Option<Duration>,
}

/// `quictun down`: removes what a client that was killed has left behind.
pub(crate) fn down() -> anyhow::Result<()> {
    exit::print(if detour::remove()? {
        "removed the device, rules and packet filter of a client that was killed: traffic leaves beside the tunnel again\n"
    } else {
        "there is nothing to remove\n"
    })
}

impl Host {
    /// Runs until it is told to end; `arguments` are those of this process, which its client gets as well.
    pub(crate) fn main(&self, program: &str, arguments: Vec<OsString>) -> ExitCode {
        match self.run(arguments) {
            Ok(code) => ExitCode::from(code),
            Err(error) => exit::report(program, Err(error)).into(),
        }
    }

    fn run(&self, mut arguments: Vec<OsString>) -> anyhow::Result<u8> {
        // Before there are children.
        let signals = Signals::of_parents()?;
        let mut detour = {
            let server = (self.server.host.as_str(), self.server.port);
            Detour::new(&self.routes, self.names, server)?
        };
        let started = Instant::now();
        for address in detour.server() {
            arguments.extend(["--server-address".into(), address.ip().to_string().into()]);
        }
        for note in detour.notes() {
            say(&format!("quictun: {note}"));
        }
        if let Some(limit) = self.confirm {
            confirm::wait_for(limit)?;
        }
        let outcome = serve(&mut detour, self.names, &signals, &arguments);
        let asked = matches!(outcome, Ok(Served { asked: true, .. }));
        if !asked && started.elapsed() >= SETTLED && detour.stay_closed() {
            say(
                "quictun: the tunnel has failed, and nothing leaves beside it: start it again, or let traffic go with `quictun down`",
            );
        }
        outcome.map(|served| served.code)
    }
}

/// How serving has ended.
struct Served {
    code: u8,
    /// This was asked of us or of the client.
    asked: bool,
}

/// Has the device served until that is to end.
fn serve(
    detour: &mut Detour,
    names: bool,
    signals: &Signals,
    arguments: &[OsString],
) -> anyhow::Result<Served> {
    let mut restarts = Restarts::new();
    loop {
        let mut both = Both::start(detour, names, arguments)?;
        let after = both.wait(signals)?;
        // While there is a device: without one nothing tells their programs.
        pair::end_flows();
        match after {
            After::Ended(code) => {
                let asked = both.asked || code == 0;
                return Ok(Served { code, asked });
            }
            After::Died(what) => say(&format!(
                "quictun: {what}: its connections are reset, and both processes started again"
            )),
        }
        let until = Instant::now() + restarts.pause(Instant::now());
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let came = signals.wait(left)?;
            // Nobody has logs that could be opened again: the next client opens its own anyway.
            let ends = |signal| !matches!(signal, Signal::CHILD | Signal::HUP);
            if let Some(came) = came.filter(|came| ends(came.signal)) {
                let code = u8::try_from(128 + came.signal.as_raw()).unwrap_or(u8::MAX);
                return Ok(Served { code, asked: true });
            }
        }
        // Whatever ended the pair may have been done to the device.
        detour.restore()?;
    }
}

/// What comes after a pair.
enum After {
    /// Nothing: the client has ended as it was asked to, or would end again.
    Ended(u8),
    /// Another one.
    Died(&'static str),
}

/// A pair of ours.
struct Both {
    netstackd: Child,
    client: Child,
    /// Somebody wants us to end.
    asked: bool,
}

impl Both {
    fn start(detour: &Detour, names: bool, arguments: &[OsString]) -> anyhow::Result<Self> {
        let mut client = Command::new(pair::this_program()?);
        client.args(arguments);
        // The same program under the same name: it reads the same flags.
        if let Some(name) = std::env::args_os().next() {
            client.arg0(name);
        }
        let (mut first, mut second) = (None, None);
        Pair::start(detour.tun(), names, client, |role, command| {
            let child = with_default_signals(command).spawn()?;
            let pid = child.id();
            match role {
                Role::Netstackd => first = Some(child),
                Role::Client => second = Some(child),
            }
            Ok(pid)
        })?;
        let (netstackd, client) = first.zip(second).context("invariant: both were started")?;
        let asked = false;
        Ok(Self {
            netstackd,
            client,
            asked,
        })
    }

    /// Waits until one of the two has ended, and ends the other.
    fn wait(&mut self, signals: &Signals) -> anyhow::Result<After> {
        loop {
            // Held back first and asked for then: an end cannot fall in between. The stack is asked for first: where it has
            // ended because its client did, the client's end is seen as well.
            let stack_has_ended = self.netstackd.try_wait()?.is_some();
            if let Some(status) = self.client.try_wait()? {
                // It resets what is left by itself.
                self.end(Role::Netstackd, signals)?;
                let code = exit_code(status);
                return Ok(if self.asked || !pair::has_crashed(code) {
                    After::Ended(code)
                } else {
                    After::Died("the client has died")
                });
            }
            if !self.asked && stack_has_ended {
                // It resets its streams by itself, and has a moment to say so.
                self.signal_client(Signal::TERM)?;
                let status = self.end(Role::Client, signals)?;
                return Ok(if self.asked {
                    After::Ended(exit_code(status))
                } else {
                    After::Died("the process with the network stack has died")
                });
            }
            self.obey(signals, Duration::from_hours(1))?;
        }
    }

    /// Waits for a process that is about to end, and ends it where that takes long.
    fn end(&mut self, role: Role, signals: &Signals) -> anyhow::Result<ExitStatus> {
        let until = Instant::now() + GRACE;
        loop {
            let child = match role {
                Role::Netstackd => &mut self.netstackd,
                Role::Client => &mut self.client,
            };
            if let Some(status) = child.try_wait()? {
                return Ok(status);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                child.kill()?;
            }
            self.obey(signals, left.max(LOOK))?;
        }
    }

    /// Waits for the next signal, and passes on what somebody wants of us.
    fn obey(&mut self, signals: &Signals, within: Duration) -> anyhow::Result<()> {
        let came = signals.wait(within)?;
        if let Some(came) = came.filter(|came| came.signal != Signal::CHILD) {
            // At a hangup it opens its logs again, and goes on.
            self.asked |= came.signal != Signal::HUP;
            if self.client.try_wait()?.is_none() {
                self.signal_client(came.signal)?;
            }
        }
        Ok(())
    }

    fn signal_client(&self, signal: Signal) -> io::Result<()> {
        let pid = Pid::from_raw(self.client.id().cast_signed());
        // It was not waited for yet: nobody else has its number.
        pid.map_or(Ok(()), |pid| kill_process(pid, signal))
            .map_err(Into::into)
    }
}

impl Drop for Both {
    fn drop(&mut self) {
        for child in [&mut self.client, &mut self.netstackd] {
            // They may have ended, and then there is nothing to be done.
            if child.kill().is_ok() && child.wait().is_err() {}
        }
    }
}
