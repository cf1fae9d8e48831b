//! `quictun run`: one command whose connections all go through the tunnel.
//!
//! The command runs in a network of its own with one device in it. The other end of the device has a process that is in
//! no network, and that one's client is in the network that we came from: see [`crate::pair`].

mod ways_around;

use std::io;
use std::net::{IpAddr, ToSocketAddrs as _};
use std::os::fd::AsFd as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::{Arg, ArgMatches};
use quictun_stackd::tun_device;
use quictun_sys::{
    Came, FirstProcess, Identity, Inside, NetNamespace, Network, Outcome, Side, Tun, contain,
    refusal,
};
use quictun_tunnel::settings::HostPort;
use rustix::process::{Pid, Signal, kill_process};

use crate::exit::{self, say};
use crate::pair::{self, Pair, Restarts, Role};
use quictun_args::fault::Fault;
use quictun_args::inputs::Inputs;
use quictun_args::native;

const PROGRAM: &str = "quictun run";

/// How long the client has to end by itself.
const GRACE: Duration = Duration::from_secs(2);

/// How long one of the two processes that serve the device has to tell its side that the other is gone.
const MOMENT: Duration = Duration::from_millis(300);

/// What to run, and how to reach the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrapped {
    /// Flags of `quictun client`.
    pub flags: Vec<String>,
    /// The command and its arguments.
    pub command: Vec<String>,
    /// The name server that it asks.
    pub dns: Option<IpAddr>,
    /// The server, which is looked up before.
    pub server: HostPort,
    /// The network stack is in the client's process.
    pub one_process: bool,
}

/// The command line.
pub(crate) fn command() -> clap::Command {
    clap::Command::new("run")
        .about("Run a command whose TCP connections all go through the tunnel")
        .after_help(include_str!("wrapped_help.txt"))
        .override_usage("quictun run [FLAGS OF quictun client] -- COMMAND [ARGUMENT]...")
        .arg(
            Arg::new("words")
                .value_name("FLAG -- COMMAND")
                .required(true)
                .num_args(1..)
                .allow_hyphen_values(true)
                .help("How to reach the server, as `quictun client` is told, and what to run"),
        )
}

/// Reads what follows `quictun run`, and finds out whether a client could be started so.
pub(crate) fn parse(matches: &ArgMatches, inputs: &Inputs<'_>) -> Result<Wrapped, Fault> {
    let words = matches.get_many::<String>("words").into_iter().flatten();
    let mut flags: Vec<String> = words.cloned().collect();
    let Some(at) = flags.iter().position(|word| word == "--") else {
        let fault = Fault::usage("quictun run", "there is no `--` before a command");
        return Err(fault.next("quictun run --server HOST:7500 --pin sha256:... -- COMMAND"));
    };
    let command = flags.split_off(at).split_off(1);
    if command.is_empty() {
        return Err(Fault::usage(
            "quictun run",
            "there is no command behind `--`",
        ));
    }
    // Which descriptor it will be is known later.
    let words: Vec<String> = ["--tun=false", "--tun-fd=0"]
        .map(str::to_owned)
        .into_iter()
        .chain(flags.iter().cloned())
        .collect();
    let client = native::client_of(&words, inputs)?;
    let tun = client.tun.as_ref();
    Ok(Wrapped {
        flags,
        command,
        dns: tun.and_then(|tun| tun.dns),
        one_process: tun.is_some_and(|tun| tun.one_process),
        server: client.server,
    })
}

/// Runs it, and ends with its exit code.
pub(crate) fn main(plan: &Wrapped) -> ExitCode {
    let inside = match contain(Identity::Caller) {
        Ok(Side::Inside(inside)) => inside,
        Ok(Side::Outside(contained)) => {
            return contained.wait(Came::to_pass_on).map_or_else(
                |error| exit::report(PROGRAM, Err(error.into())).into(),
                ExitCode::from,
            );
        }
        Err(error) => return exit::report(PROGRAM, Err(error.into())).into(),
    };
    match run(plan, inside) {
        Ok(code) => ExitCode::from(code),
        Err(error) => exit::report(PROGRAM, Err(error)).into(),
    }
}

fn run(plan: &Wrapped, inside: Inside) -> anyhow::Result<u8> {
    // Before there are threads.
    let mut first = FirstProcess::new(inside)?;
    let host = NetNamespace::current().context("the network we are in")?;
    let network = NetNamespace::new().context("a network for the command")?;
    let tun = network
        .within(device)
        .context("a TUN device: is there /dev/net/tun, and may it be opened?")?;
    let mut served = Served {
        plan,
        // Names are looked up as the host looks them up: here, and before that changes.
        server: server_addresses(&plan.server),
        host,
        nowhere: NetNamespace::new().context("a network without anything")?,
        network,
        tun: Some(tun),
        by: By::Nobody(0),
        restarts: Restarts::new(),
    };
    served.start(&mut first)?;
    // The client was started before: it finds the server as the host finds names.
    ways_around::close(plan.dns)?;
    let (program, arguments) = plan
        .command
        .split_first()
        .context("invariant: clap requires a command")?;
    let mut command = Command::new(program);
    command.args(arguments);
    let started = first.start(&served.network, &mut command);
    let pid = match started {
        Ok(pid) => pid,
        Err(error) => match refusal(program, &error) {
            Some((code, why)) => {
                say(&format!("{PROGRAM}: {why}"));
                return Ok(code);
            }
            None => return Err(error).with_context(|| format!("starting {program}")),
        },
    };
    let code = served.wait(&mut first, pid)?;
    if let By::Nobody(code) = served.by {
        say(&format!("{PROGRAM}: the client had ended with {code}"));
    }
    first.end_all(GRACE)?;
    Ok(code)
}

fn server_addresses(server: &HostPort) -> Vec<IpAddr> {
    // Where that fails the client tries again for ever.
    let found = (server.host.as_str(), server.port).to_socket_addrs();
    found.map_or_else(|_| Vec::new(), |found| found.map(|it| it.ip()).collect())
}

/// The device and whoever serves it.
struct Served<'a> {
    plan: &'a Wrapped,
    server: Vec<IpAddr>,
    host: NetNamespace,
    /// Where nothing can be reached.
    nowhere: NetNamespace,
    /// The command's.
    network: NetNamespace,
    /// As long as there is somebody who serves it.
    tun: Option<Tun>,
    by: By,
    restarts: Restarts,
}

/// Who serves the device.
enum By {
    One(u32),
    Two(Pair),
    /// The client does not want to, as this exit code says.
    Nobody(u8),
}

impl Served<'_> {
    fn start(&mut self, first: &mut FirstProcess) -> anyhow::Result<()> {
        let Some(tun) = &self.tun else {
            return Ok(());
        };
        if self.plan.one_process {
            let mut command = self.client()?;
            let number = tun.pass_on().context("handing the device over")?;
            command.args(["--tun-fd", &number.to_string()]);
            // What the terminal tells the command is not for it.
            command.stdin(Stdio::null()).process_group(0);
            let client = first.start(&self.host, &mut command);
            self.by = By::One(client.context("starting the client")?);
            // The client has it now, and ends it.
            self.tun = None;
            return Ok(());
        }
        let names = self.plan.dns.is_some();
        let (host, nowhere) = (&self.host, &self.nowhere);
        let start = |role, command: &mut Command| match role {
            Role::Netstackd => first.start(nowhere, command),
            Role::Client => first.start(host, command),
        };
        self.by = By::Two(Pair::start(tun, names, self.client()?, start)?);
        Ok(())
    }

    /// This program once more, to be started where the server can be reached; its log goes where errors go.
    fn client(&self) -> anyhow::Result<Command> {
        let flags = &self.plan.flags;
        let mut command = Command::new(pair::this_program()?);
        command.arg("client").args(flags);
        let given = |name: &str| flags.iter().any(|flag| flag.starts_with(name));
        for (name, value) in [("--log-level", "warn"), ("--http", "off")] {
            if !given(name) {
                command.args([name, value]);
            }
        }
        for address in &self.server {
            command.args(["--server-address", &address.to_string()]);
        }
        let errors = io::stderr().as_fd().try_clone_to_owned();
        command
            // A file may speak of a device for the whole host.
            .arg("--tun=false")
            .arg("--for-command")
            .stdout(Stdio::from(errors.context("a log")?));
        Ok(command)
    }

    /// Waits for the command's end, and replaces meanwhile who dies.
    fn wait(&mut self, first: &mut FirstProcess, command: u32) -> anyhow::Result<u8> {
        loop {
            let mut pids = vec![command];
            match &self.by {
                By::One(client) => pids.push(*client),
                By::Two(pair) => pids.extend([pair.netstackd, pair.client]),
                By::Nobody(_) => {}
            }
            match first.wait_any(&pids, None)? {
                (_, outcome @ Outcome::Asked(_)) => return Ok(outcome.code()),
                (pid, Outcome::Ended(code)) if pid == command => return Ok(code),
                (pid, Outcome::Ended(code)) => {
                    if let Some(signal) = self.replace(first, pid, code)? {
                        return Ok(Outcome::Asked(signal).code());
                    }
                }
                (_, Outcome::Late) => unreachable!("invariant: it waits without a limit"),
            }
            if matches!(&self.by, By::Two(_)) {
                continue;
            }
            if self.tun.is_some() {
                let until = Instant::now() + self.restarts.pause(Instant::now());
                match first.wait(command, Some(until))? {
                    Outcome::Late => self.start(first)?,
                    outcome => return Ok(outcome.code()),
                }
            }
        }
    }

    /// One of those who serve the device has ended: so does the other. Tells what somebody wants of us.
    fn replace(
        &mut self,
        first: &mut FirstProcess,
        ended: u32,
        code: u8,
    ) -> anyhow::Result<Option<Signal>> {
        let by = std::mem::replace(&mut self.by, By::Nobody(code));
        let By::Two(pair) = by else {
            return Ok(None);
        };
        let is_client = ended == pair.client;
        let (other, signal) = if is_client {
            // It resets what is left by itself.
            (pair.netstackd, None)
        } else {
            (pair.client, Some(Signal::TERM))
        };
        let asked = end(first, other, signal)?;
        let again = !is_client || pair::has_crashed(code);
        self.network.within(|| {
            pair::end_flows();
            Ok(())
        })?;
        if !again {
            self.tun = None;
            return Ok(asked);
        }
        let what = if is_client { "client" } else { "network stack" };
        say(&format!(
            "{PROGRAM}: the process with the {what} has died: its connections are reset, and both are started again"
        ));
        Ok(asked)
    }
}

/// Gives a process a moment to end, and ends it then. Somebody may want all of us to end meanwhile.
fn end(first: &mut FirstProcess, pid: u32, ask: Option<Signal>) -> anyhow::Result<Option<Signal>> {
    let process = Pid::from_raw(pid.cast_signed()).context("invariant: it has a number")?;
    let mut asked = None;
    let steps = [
        (None, Duration::ZERO),
        (ask, MOMENT),
        (Some(Signal::KILL), GRACE),
    ];
    for (signal, patience) in steps {
        if let Some(signal) = signal {
            // It was not waited for yet: nobody else has its number.
            kill_process(process, signal)?;
        }
        let until = Instant::now() + patience;
        loop {
            match first.wait(pid, Some(until))? {
                Outcome::Ended(_) => return Ok(asked),
                Outcome::Asked(signal) => asked = Some(signal),
                Outcome::Late => break,
            }
        }
    }
    Ok(asked)
}

/// The device, and nothing else to go through.
fn device() -> io::Result<Tun> {
    let mut network = Network::open()?;
    network.set_up("lo")?;
    let tun = tun_device::create(&mut network)?;
    for address in tun_device::ADDRESSES {
        if address.own.is_ipv4() || tun_device::has_ipv6() {
            network.add_default_route(address.gateway)?;
        }
    }
    Ok(tun)
}
