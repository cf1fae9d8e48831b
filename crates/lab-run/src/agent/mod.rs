//! `quictun lab agent`: the far end of measurements over a real path.
//!
//! The agent accepts `quictun lab run --remote` ([`channel`]) and starts the far programs of one arm after the other on
//! request ([`message`]). It reports their processor time, and facts about its machine ([`host`]). It starts only this
//! program and iperf3, with flags that it knows. It serves one client at a time.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use quictun_args::fault::Fault;
use quictun_args::terminal::say;
use quictun_sys::{NetNamespace, poll_until};
use quictun_trust::identity::{self, Identity};
use quictun_trust::psk::{self, Secret};
use rustix::event::{PollFd, PollFlags};

use self::channel::Channel;
use self::message::{Counters, Request, Response, StartRequest, TunnelEntry, UsageReport, VERSION};
use crate::arm::{TCP, datagram_rule, listens, program};
use crate::client::{ChildProgram, Interrupted, SignalWaiter, in_network};
use crate::generator::Generator;
use crate::processors::{HostThreads, ProcessGroups, UsageMeter};
use crate::tunnel::{KeyDirectory, Server};

pub(crate) mod channel;
pub(crate) mod host;
pub(crate) mod message;

/// Flags that change how a server works, but nothing else on this machine. Each takes a value.
const FLAGS: [&str; 6] = [
    "--loop",
    "--congestion",
    "--gso",
    "--gro",
    "--ack-every",
    "--workers",
];

/// Interval at which the agent reads processor times and checks for signals.
const LOOK: Duration = Duration::from_millis(50);

/// Silence after which the agent drops a client. It exceeds the duration of the longest cell.
const SILENCE: Duration = Duration::from_hours(2);

/// The settings of an agent.
#[derive(Clone, Debug)]
pub struct Agent {
    /// The address of the agent. Its programs use the two following ports.
    pub listen: SocketAddr,
    /// The file with the token.
    pub token_file: PathBuf,
}

pub(crate) fn token(file: &std::path::Path) -> Result<Secret> {
    Ok(psk::load_secret(file).map_err(|why| Fault::failure("--token-file", why))?)
}

/// Serves clients until a signal arrives.
pub(crate) fn run(agent: &Agent) -> Result<()> {
    let token = token(&agent.token_file)?;
    // Signals must be blocked before the process has other threads.
    let waiter = SignalWaiter::new()?;
    // All connections share one certificate.
    let identity = identity::ephemeral()?;
    let listener = TcpListener::bind(agent.listen)
        .with_context(|| format!("cannot listen on {}", agent.listen))?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    ensure!(
        address.port() <= u16::MAX - 2,
        "--listen: the two ports after it must exist too"
    );
    say(&format!(
        "listening on {address}; programs of arms use the next two ports"
    ));
    let host = HostThreads::open();
    loop {
        let served = wait_for(&listener, &waiter)
            .and_then(|()| listener.accept().context("cannot accept a connection"))
            .and_then(|(socket, peer)| {
                let visit = AgentSession {
                    address,
                    peer,
                    waiter: &waiter,
                    host: &host,
                };
                visit.serve(socket, &identity, &token)
            });
        match served {
            Ok(()) => {}
            Err(error) if error.is::<Interrupted>() => return Ok(()),
            Err(error) => say(&format!("quictun lab agent: {error:#}")),
        }
    }
}

fn wait_for(listener: &TcpListener, waiter: &SignalWaiter) -> Result<()> {
    loop {
        let mut set = [PollFd::new(listener, PollFlags::IN)];
        if poll_until(&mut set, Instant::now())? {
            return Ok(());
        }
        waiter.wait(LOOK)?;
    }
}

struct AgentSession<'a> {
    address: SocketAddr,
    peer: SocketAddr,
    waiter: &'a SignalWaiter,
    host: &'a HostThreads,
}

/// The running programs of an arm. Dropping this ends them.
struct ServedArm<'a> {
    watch: UsageMeter<'a>,
    counters: Counters,
    server: ChildProgram,
    tunnel: Option<Server>,
}

impl<'a> AgentSession<'a> {
    fn serve(&self, socket: TcpStream, identity: &Identity, token: &Secret) -> Result<()> {
        socket.set_nonblocking(false)?;
        let peer = self.peer;
        let mut channel = Channel::accept(socket, identity, token)
            .with_context(|| format!("{peer} was rejected"))?;
        say(&format!("{peer} connected"));
        let mut serving: Option<ServedArm<'a>> = None;
        let mut heard = Instant::now();
        while heard.elapsed() < SILENCE {
            self.waiter.wait(Duration::ZERO)?;
            if let Some(serving) = &mut serving {
                serving.watch.read();
            }
            let ask = match channel.receive(LOOK) {
                Ok(Some(ask)) => ask,
                Ok(None) => continue,
                // The client has finished or is gone.
                Err(_) => break,
            };
            heard = Instant::now();
            let answer = self.answer(ask, &mut serving);
            channel.send(&answer.unwrap_or_else(|why| Response::Refused(format!("{why:#}"))))?;
        }
        say(&format!("{peer} disconnected"));
        Ok(())
    }

    fn answer(&self, ask: Request, serving: &mut Option<ServedArm<'a>>) -> Result<Response> {
        Ok(match ask {
            Request::Facts { version } => {
                ensure!(
                    version == VERSION,
                    "its version is {VERSION}, and yours is {version}"
                );
                Response::Facts(host::facts(self.peer.ip().to_canonical()))
            }
            Request::Ping => Response::Pong,
            Request::Start(start) => {
                // End the old programs first, to free their ports.
                drop(serving.take());
                let (now, started) = self.start(&start)?;
                *serving = Some(now);
                Response::Started(started)
            }
            Request::Usage { from_us, until_us } => {
                let serving = serving.as_mut().context("no program is running")?;
                serving.server.check()?;
                Response::Usage(serving.used(from_us, until_us))
            }
            Request::Stop => {
                let done = serving.take().context("no program is running")?;
                let now = Counters::read(&NetNamespace::current()?);
                let counted = now.since(done.counters);
                if let Some(tunnel) = done.tunnel {
                    tunnel.program.stop()?;
                }
                Response::Stopped(counted)
            }
        })
    }

    fn start(&self, start: &StartRequest) -> Result<(ServedArm<'a>, message::StartedServer)> {
        known_flags(&start.flags)?;
        let here = NetNamespace::current()?;
        let listen = SocketAddr::new(self.address.ip(), self.address.port() + 1);
        let [own, tunnels]: [&[String]; 2] = if start.tunnel {
            [&[], &start.flags]
        } else {
            [&start.flags, &[]]
        };
        let command = &mut server(&start.traffic, listen, own)?;
        let mut server = ChildProgram::new("the server", &here, command)?;
        server.wait_ready(self.waiter, || listens(&here, TCP, listen.port()))?;
        let mut groups: ProcessGroups = vec![("server", server.group())];
        let (mut tunnel, mut entry) = (None, None);
        if start.tunnel {
            let target = SocketAddr::new(reachable(listen), listen.port());
            let at = SocketAddr::new(listen.ip(), listen.port() + 1);
            let (spawn, allow) = (in_network(&here), target.to_string());
            let datagrams = (start.traffic == "udp").then(|| datagram_rule(&allow));
            let flags = tunnels.iter().cloned();
            let flags: Vec<_> = flags.chain(datagrams.into_iter().flatten()).collect();
            let started = Server::start(&spawn, KeyDirectory::new()?, at, &allow, &flags)?;
            groups.push(("tunnel server", started.program.group()));
            entry = Some(TunnelEntry {
                port: at.port(),
                pin: started.pin.clone(),
                psk: std::fs::read_to_string(started.dir.psk_file())
                    .context("cannot read the secret")?,
                target: target.to_string(),
            });
            tunnel = Some(started);
        }
        let mut watch = UsageMeter::new(groups, self.host);
        watch.read();
        let serving = ServedArm {
            watch,
            counters: Counters::read(&here),
            server,
            tunnel,
        };
        let started = message::StartedServer {
            port: listen.port(),
            tunnel: entry,
        };
        Ok((serving, started))
    }
}

impl ServedArm<'_> {
    fn used(&mut self, from_us: u64, until_us: u64) -> UsageReport {
        let now = Instant::now();
        self.watch.read();
        let before = |us| now.checked_sub(Duration::from_micros(us)).unwrap_or(now);
        // The last reading was taken slightly after `now`.
        let until = if until_us == 0 {
            Instant::now()
        } else {
            before(until_us)
        };
        let usage = self.watch.usage(before(from_us), until);
        usage.map_or_else(UsageReport::default, |usage| UsageReport {
            processes: usage.processes,
            idle: usage.idle,
            steal: usage.steal,
            hidden: usage.hidden,
        })
    }
}

/// Checks flags that another machine sent. Flags that could read or write files here are not allowed.
fn known_flags(flags: &[String]) -> Result<()> {
    let mut words = flags.iter();
    while let Some(flag) = words.next() {
        let known = FLAGS.contains(&flag.as_str()) && words.next().is_some();
        ensure!(
            known,
            "server flags may be {}, not {flag:?}",
            FLAGS.join(", ")
        );
    }
    Ok(())
}

fn server(traffic: &str, listen: SocketAddr, flags: &[String]) -> Result<Command> {
    let (generator, line) = match traffic {
        "iperf3" => (Generator::Iperf3, format!("-s -p {}", listen.port())),
        "tcp" | "tls" | "quic" | "udp" => (
            Generator::Perf("tcp"),
            format!("perf server --listen {listen} --transport {traffic}"),
        ),
        _ => bail!("unknown traffic {traffic:?}"),
    };
    let mut command = program(generator)?;
    command.args(line.split(' ')).args(flags);
    Ok(command)
}

/// Returns an address at which this machine itself reaches a listener.
fn reachable(listen: SocketAddr) -> std::net::IpAddr {
    if listen.ip().is_unspecified() {
        std::net::Ipv4Addr::LOCALHOST.into()
    } else {
        listen.ip()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_that_could_touch_files_are_refused() {
        let known = |line: &str| {
            let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            known_flags(&words).is_ok()
        };
        for good in ["", "--loop event", "--gso off --gro off"] {
            assert!(known(good), "{good}");
        }
        for bad in [
            "--json /etc/passwd",
            "--gso",
            "--gso off --json x",
            "--gso=off",
            "x",
        ] {
            assert!(!known(bad), "{bad}");
        }
        let at = "127.0.0.1:1".parse().expect("an address");
        assert!(server("sh", at, &[]).is_err());
    }
}
