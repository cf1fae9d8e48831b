//! `quictun run`: one command whose connections all go through the tunnel.
//!
//! The command runs in a network of its own with one device in it. A client of ours, in the network that we came
//! from, has the other end of the device.

use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::Context as _;
use clap::{Arg, ArgMatches};
use quictun_emu::{FirstProcess, Outcome};
use quictun_sys::{
    Inside, NetNamespace, Network, OwnMounts, Side, Tun, contain, with_default_signals,
};

use crate::exit::{self, Fault, say};
use crate::inputs::Inputs;
use crate::link::{privilege, relay, session};
use crate::native;

const PROGRAM: &str = "quictun run";

/// The device in the command's network.
const DEVICE: &str = "quictun0";

/// Addresses of the device, and of what it leads to: RFC 2544's for measurements, and a random prefix of RFC 4193.
const ADDRESSES: [(&str, &str, u8); 2] = [
    ("198.18.0.2", "198.18.0.1", 30),
    ("fd71:7569:6374::2", "fd71:7569:6374::1", 64),
];

/// Packets that may wait in the device: with the kernel's 500, bursts of several flows would be dropped.
const QUEUE: u32 = 10_000;

/// Where programs read whom to ask.
const NAME_SERVERS: &str = "/etc/resolv.conf";

/// Sockets of those who would ask the host's name servers for a program: systemd-resolved, nscd.
const NAME_DAEMONS: [&str; 2] = [
    "/run/systemd/resolve/io.systemd.Resolve",
    "/run/nscd/socket",
];

/// How long the client has to end by itself.
const GRACE: Duration = Duration::from_secs(2);

/// What to run, and how to reach the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrapped {
    /// Flags of `quictun client`.
    pub flags: Vec<String>,
    /// The command and its arguments.
    pub command: Vec<String>,
    /// The name server that it asks.
    pub dns: Option<IpAddr>,
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
    let words: Vec<String> = ["--tun-fd=0".to_owned()]
        .into_iter()
        .chain(flags.iter().cloned())
        .collect();
    let client = native::client_of(&words, inputs)?;
    Ok(Wrapped {
        flags,
        command,
        dns: client.tun.and_then(|tun| tun.dns),
    })
}

/// Runs it, and ends with its exit code.
pub(crate) fn main(plan: &Wrapped) -> ExitCode {
    let inside = match contain() {
        Ok(Side::Inside(inside)) => inside,
        Ok(Side::Outside(contained)) => {
            return contained.wait(relay).map_or_else(
                |error| exit::report(PROGRAM, Err(error.into())).into(),
                ExitCode::from,
            );
        }
        Err(error) => {
            return exit::report(PROGRAM, Err(privilege::explain(&error).into())).into();
        }
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
    let client = start_client(plan, &mut first, &host, &tun)?;
    // The client has it now, and ends it.
    drop(tun);
    name_servers(plan.dns).context("name servers of its own for the command")?;
    let (program, arguments) = plan
        .command
        .split_first()
        .context("invariant: clap requires a command")?;
    let mut command = Command::new(program);
    command.args(arguments);
    let started = first.start(&network, &mut command);
    let pid = match started {
        Ok(pid) => pid,
        Err(error) => return session::refused(PROGRAM, program, error),
    };
    let code = match first.wait(pid, None)? {
        Outcome::Ended(code) => code,
        Outcome::Asked(signal) => session::asked(signal),
        Outcome::Late => unreachable!("invariant: it waits without a limit"),
    };
    if let Outcome::Ended(code) = first.wait(client, Some(std::time::Instant::now()))? {
        say(&format!("{PROGRAM}: the client had ended with {code}"));
    }
    first.end_all(GRACE)?;
    Ok(code)
}

/// The device, and nothing else to go through.
fn device() -> io::Result<Tun> {
    let tun = Tun::create(DEVICE, true)?;
    let mut network = Network::open()?;
    network.set_up("lo")?;
    network.set_queue_length(DEVICE, QUEUE)?;
    let address = |text: &str| text.parse::<IpAddr>().map_err(io::Error::other);
    for (own, _, prefix) in ADDRESSES {
        network.add_address(DEVICE, address(own)?, prefix)?;
    }
    network.set_up(DEVICE)?;
    for (_, gateway, _) in ADDRESSES {
        network.add_default_route(address(gateway)?)?;
    }
    Ok(tun)
}

/// From here on names are asked of `dns` only, or of nobody: not past the tunnel, whoever the host asks.
///
/// The client was started before: it finds the server as the host finds names.
fn name_servers(dns: Option<IpAddr>) -> anyhow::Result<()> {
    let mounts = OwnMounts::new()?;
    let list = match dns {
        Some(address) => {
            let [(_, stand_in, _), _] = ADDRESSES;
            format!("# quictun run --dns: this is {address}\nnameserver {stand_in}\n")
        }
        // Who finds none in it asks this very network's loopback device, and is refused at once.
        None => "# quictun run without --dns: names are not looked up\n".to_owned(),
    };
    match (mounts.cover(Path::new(NAME_SERVERS), &list), dns) {
        (Err(error), None) if error.kind() == io::ErrorKind::NotFound => {}
        (covered, _) => covered.with_context(|| {
            format!("{NAME_SERVERS} cannot be replaced for the command: does it exist?")
        })?,
    }
    for daemon in NAME_DAEMONS.map(Path::new) {
        if daemon.exists() {
            let covered = mounts.cover(daemon, "");
            covered.with_context(|| format!("hiding {}", daemon.display()))?;
        }
    }
    Ok(())
}

/// This program once more, where the server can be reached; its log goes where errors go.
fn start_client(
    plan: &Wrapped,
    first: &mut FirstProcess,
    host: &NetNamespace,
    tun: &Tun,
) -> anyhow::Result<u32> {
    let number = tun.pass_on().context("handing the device over")?;
    let mut command = Command::new(std::env::current_exe().context("finding this program")?);
    command.arg("client").args(&plan.flags);
    let given = |name: &str| plan.flags.iter().any(|flag| flag.starts_with(name));
    for (name, value) in [("--log-level", "warn"), ("--http", "off")] {
        if !given(name) {
            command.args([name, value]);
        }
    }
    let errors = io::stderr().as_fd().try_clone_to_owned();
    command
        .args(["--tun-fd", &number.to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::from(errors.context("a log")?));
    with_default_signals(&mut command);
    first
        .start(host, &mut command)
        .context("starting the client")
}
