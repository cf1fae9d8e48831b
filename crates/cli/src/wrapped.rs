//! `quictun run`: one command whose connections all go through the tunnel.
//!
//! The command runs in its own network namespace with a single device. The other end of the device belongs to a process
//! without any network, whose client runs in the original namespace: see [`crate::pair`].

mod ways_around;

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::os::fd::AsFd as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::{Arg, ArgMatches};
use quictun_stackd::tun_device;
use quictun_sys::{
    CommandRunner, ForkResult, InitProcess, NamespaceUser, NetNamespace, Network, ReceivedSignal,
    Tun, WaitOutcome, contain, refusal,
};
use quictun_tunnel::settings::Address;
use rustix::process::{Pid, Signal, kill_process};

use crate::exit::{self, ProgramError, say};
use crate::pair::{self, Pair};
use crate::supervisor::{
    ExitCodes, PairMember, PairPurpose, Supervisor, SupervisorEnd, SupervisorStep,
};
use quictun_args::fault::Fault;
use quictun_args::inputs::Inputs;
use quictun_args::native;

const PROGRAM: &str = "quictun run";

/// Time that the client has to end by itself.
const GRACE: Duration = Duration::from_secs(2);

/// The command to run, and the way to the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrappedCommand {
    /// The flags of `quictun client`.
    pub flags: Vec<String>,
    /// The command and its arguments.
    pub command: Vec<String>,
    /// The name server that the command asks.
    pub dns: Option<IpAddr>,
    /// The server, whose name is looked up before the command starts.
    server: Address,
    /// True if the network stack runs in the client's process.
    one_process: bool,
}

pub(crate) fn command() -> clap::Command {
    clap::Command::new("run")
        .about("Run a command with all its connections and datagrams through the tunnel")
        .after_help(include_str!("wrapped_help.txt"))
        .override_usage("quictun run [FLAGS OF quictun client] -- COMMAND [ARGUMENT]...")
        .arg(
            Arg::new("words")
                .value_name("FLAG -- COMMAND")
                .required(true)
                .num_args(1..)
                .allow_hyphen_values(true)
                .help("Flags of `quictun client` to reach the server, then the command to run"),
        )
}

/// Parses the arguments of `quictun run`, and checks that a client could be started with them.
pub(crate) fn parse(matches: &ArgMatches, inputs: &Inputs<'_>) -> Result<WrappedCommand, Fault> {
    let words = matches.get_many::<String>("words").into_iter().flatten();
    let mut flags: Vec<String> = words.cloned().collect();
    // clap takes a `--` that is the first word for its own.
    if inputs.args.get(2).is_some_and(|word| word == "--") {
        flags.insert(0, "--".to_owned());
    }
    let Some(at) = flags.iter().position(|word| word == "--") else {
        let fault = Fault::usage("run", "there is no `--` before a command");
        return Err(fault.next("quictun run --server HOST --pin sha256:... -- COMMAND"));
    };
    let command = flags.split_off(at).split_off(1);
    if command.is_empty() {
        return Err(Fault::usage("run", "there is no command behind `--`"));
    }
    // The descriptor's number is not known yet.
    let words: Vec<String> = ["--tun=false", "--tun-fd=0"]
        .map(str::to_owned)
        .into_iter()
        .chain(flags.iter().cloned())
        .collect();
    let client = native::client_of(&words, inputs)?;
    let tun = client.tun.as_ref();
    Ok(WrappedCommand {
        flags,
        command,
        dns: tun.and_then(|tun| tun.dns),
        one_process: tun.is_some_and(|tun| tun.one_process),
        server: client.server,
    })
}

pub(crate) fn main(plan: &WrappedCommand) -> ExitCode {
    exit::code(PROGRAM, contained(plan))
}

fn contained(plan: &WrappedCommand) -> Result<u8, ProgramError> {
    match contain(NamespaceUser::Caller)? {
        ForkResult::Inside(inside) => run(plan, inside),
        ForkResult::Outside(contained) => Ok(contained.wait(ReceivedSignal::to_pass_on)?),
    }
}

fn run(plan: &WrappedCommand, inside: InitProcess) -> Result<u8, ProgramError> {
    // This must happen before the process has threads.
    let mut first = CommandRunner::new(inside)?;
    let host =
        NetNamespace::current().context("cannot open the network namespace of this process")?;
    let network =
        NetNamespace::new().context("cannot create a network namespace for the command")?;
    let tun = network.within(device).map_err(|error| no_device(&error))?;
    let mut served = ServedDevice {
        plan,
        // The name is looked up with the host's resolver, here, before the resolver is replaced.
        server: server_addresses(&plan.server),
        host,
        nowhere: NetNamespace::new().context("cannot create an empty network namespace")?,
        network,
        tun: Some(tun),
        running: Vec::new(),
        ended: ExitCodes::default(),
    };
    served.start(&mut first)?;
    let one_process = plan.one_process;
    let mut supervisor = Supervisor::new(PairPurpose::Command { one_process }, Instant::now());
    // The client was started before, so it finds the server by the host's resolver.
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
            None => {
                return Err(anyhow::Error::from(error)
                    .context(format!("starting {program}"))
                    .into());
            }
        },
    };
    let code = served.until_end(&mut supervisor, &mut first, pid)?;
    if let Some(code) = supervisor.unserved {
        say(&format!("{PROGRAM}: the client had ended with {code}"));
    }
    first.end_all(GRACE)?;
    Ok(code)
}

fn server_addresses(server: &Address) -> Vec<IpAddr> {
    // If the look-up fails, the result is empty, and the client keeps trying.
    let found = server
        .at()
        .and_then(|at| (at.host.as_str(), at.port).to_socket_addrs().ok());
    // An address with a zone has no text without it. The client finds the device of a zone by itself.
    let plain = |it: &SocketAddr| !matches!(it, SocketAddr::V6(v6) if v6.scope_id() != 0);
    found.map_or_else(Vec::new, |found| {
        found.filter(plain).map(|it| it.ip()).collect()
    })
}

/// The device and the processes that serve it.
struct ServedDevice<'a> {
    plan: &'a WrappedCommand,
    server: Vec<IpAddr>,
    host: NetNamespace,
    /// A network namespace without any interface in use, for the network stack.
    nowhere: NetNamespace,
    /// The network namespace of the command.
    network: NetNamespace,
    /// The device, as long as this process has to pass it on.
    tun: Option<Tun>,
    /// The processes that serve the device, by process id.
    running: Vec<(PairMember, u32)>,
    ended: ExitCodes,
}

impl ServedDevice<'_> {
    fn start(&mut self, first: &mut CommandRunner) -> anyhow::Result<()> {
        let Some(tun) = &self.tun else {
            return Ok(());
        };
        if self.plan.one_process {
            let mut command = self.client()?;
            let number = tun.pass_on(&mut command);
            let number = number.context("handing the device over")?;
            command.args(["--tun-fd", &number.to_string()]);
            // Input and signals of the terminal are for the command, not for its client.
            command.stdin(Stdio::null()).process_group(0);
            let client = first.start(&self.host, &mut command);
            self.running = vec![(PairMember::Client, client.context("starting the client")?)];
            // The client has the device now, and closes it.
            self.tun = None;
            return Ok(());
        }
        let (host, nowhere) = (&self.host, &self.nowhere);
        let start = |role, command: &mut Command| match role {
            PairMember::Netstackd => first.start(nowhere, command),
            PairMember::Client => first.start(host, command),
        };
        let Pair { netstackd, client } = Pair::start(tun, self.client()?, start)?;
        self.running = vec![
            (PairMember::Netstackd, netstackd),
            (PairMember::Client, client),
        ];
        self.ended = ExitCodes::default();
        Ok(())
    }

    /// Returns the command that runs this program as a client, in a namespace that reaches the server. Its log goes to
    /// standard error.
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
            // A configuration file may ask for a device for the whole host.
            .arg("--tun=false")
            .arg("--for-command")
            .stdout(Stdio::from(
                errors.context("cannot duplicate standard error")?,
            ));
        Ok(command)
    }

    /// Waits for the command's end, and replaces processes that die meanwhile.
    fn until_end(
        &mut self,
        supervisor: &mut Supervisor,
        first: &mut CommandRunner,
        command: u32,
    ) -> anyhow::Result<u8> {
        loop {
            match supervisor.next(Instant::now()) {
                SupervisorStep::Signal(role, signal) => self.signal(role, signal)?,
                SupervisorStep::Reset => self.network.within(|| {
                    pair::end_flows();
                    Ok(())
                })?,
                SupervisorStep::Tell(role) => {
                    let what = match role {
                        PairMember::Netstackd => "network stack",
                        PairMember::Client => "client",
                    };
                    say(&format!(
                        "{PROGRAM}: the process with the {what} has died: its connections are reset, and both are started again"
                    ));
                }
                SupervisorStep::Start => self.start(first)?,
                SupervisorStep::ReleaseDevice => self.tun = None,
                SupervisorStep::Wait(until) => {
                    let mut pids = vec![command];
                    pids.extend(self.running.iter().map(|(_, pid)| pid));
                    match first.wait_any(&pids, until)? {
                        (_, WaitOutcome::TimedOut) => {}
                        (_, WaitOutcome::EndRequested(signal)) => supervisor.signal(signal),
                        (pid, WaitOutcome::Exited(code)) if pid == command => {
                            supervisor.command_ended(code);
                        }
                        (pid, WaitOutcome::Exited(code)) => {
                            self.note(pid, code);
                            // The other process may have ended as well, and before this one.
                            for (_, pid) in self.running.clone() {
                                if let WaitOutcome::Exited(code) =
                                    first.wait(pid, Some(Instant::now()))?
                                {
                                    self.note(pid, code);
                                }
                            }
                            supervisor.ended(self.ended, Instant::now());
                        }
                    }
                }
                SupervisorStep::End(SupervisorEnd { code, .. }) => return Ok(code),
            }
        }
    }

    fn note(&mut self, pid: u32, code: u8) {
        for (role, _) in self.running.extract_if(.., |(_, of)| *of == pid) {
            match role {
                PairMember::Netstackd => self.ended.netstackd = Some(code),
                PairMember::Client => self.ended.client = Some(code),
            }
        }
    }

    fn signal(&self, role: PairMember, signal: Signal) -> anyhow::Result<()> {
        for (_, pid) in self.running.iter().filter(|(of, _)| *of == role) {
            let process = Pid::from_raw(pid.cast_signed());
            // The process was not waited for yet, so no other process has its number.
            kill_process(process.context("invariant: it has a number")?, signal)?;
        }
        Ok(())
    }
}

/// Returns the error for a missing TUN device, with the remedy.
fn no_device(error: &io::Error) -> Fault {
    let fault = Fault::failure("a TUN device for the command", error);
    match error.kind() {
        ErrorKind::NotFound => fault.next(
            "`sudo modprobe tun` makes /dev/net/tun; a container is given it by --device /dev/net/tun",
        ),
        ErrorKind::PermissionDenied => fault.next(
            "let this user open /dev/net/tun (`sudo chmod 666 /dev/net/tun`, until the next boot), or run this as root; a container is given it by --device /dev/net/tun",
        ),
        _ => fault,
    }
}

/// Creates the device, and routes everything through it.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_device_and_a_closed_one_have_a_remedy_each() {
        for (errno, remedy) in [
            (2, "modprobe tun"),
            (13, "chmod 666 /dev/net/tun"),
            (1, "--device /dev/net/tun"),
        ] {
            let fault = no_device(&io::Error::from_raw_os_error(errno));
            let next = fault.next.unwrap_or_default();
            assert!(next.contains(remedy), "{errno}: {next}");
            assert!(!next.contains("1024"), "{errno}: {next}");
        }
    }
}
