//! Starts the programs of an arm at both sides of a link.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::process::Command;

use anyhow::{Context as _, Result};
use quictun_emu::World;
use quictun_lab::{Arm, ArmKind, Link, Load};
use quictun_sys::NetNamespace;

use crate::client::{ChildProgram, SignalWaiter, sh};
use crate::generator::{Generator, is_tunnel};
use crate::processors::ProcessGroups;
use crate::tunnel::{LinkEnds, Tunnel};

/// Port of the generator's server, which has a network of its own.
const PORT: u16 = 5201;

/// Ports of the servers of background streams (up, down), and ports at which a tunnel accepts these streams.
const BESIDE: [u16; 2] = [5202, 5203];
const BESIDE_ENTRIES: [u16; 2] = [6502, 6503];

/// Port of a rival's server.
const RIVAL: u16 = 5204;

/// Ports of a tunnel from user commands: the client must listen on the first, the server may listen on the second.
const ENTRY: u16 = 6500;
const TUNNEL: u16 = 7500;

/// Socket tables in `/proc/PID/net`. A listening TCP socket has state `TCP_LISTEN` there; a UDP server is an
/// unconnected socket.
pub(crate) const TCP: [&str; 2] = ["tcp", "tcp6"];
pub(crate) const UDP: [&str; 2] = ["udp", "udp6"];

pub(crate) struct RunningArm<'a> {
    near: &'a NetNamespace,
    pub(crate) generator: Generator,
    server: ChildProgram,
    tunnel: Option<Tunnel>,
    /// Client and server of a tunnel that user commands started.
    user_tunnel: Option<[ChildProgram; 2]>,
    connect: SocketAddr,
    /// Servers of background streams with the addresses to connect to: up, and down.
    beside: [Option<(ChildProgram, SocketAddr)>; 2],
    rival: Option<RivalStream>,
}

/// A TCP stream that competes on the link. It never uses the tunnel.
struct RivalStream {
    /// The arm from which the command lines of `quictun perf` are made.
    arm: Arm,
    _server: ChildProgram,
    connect: SocketAddr,
}

/// The program that generates a rival's traffic.
pub(crate) const RIVAL_GENERATOR: Generator = Generator::Perf("tcp");

impl<'a> RunningArm<'a> {
    pub(crate) fn new(
        world: &'a World,
        link: &Link,
        arm: &Arm,
        load: &Load,
        waiter: &SignalWaiter,
    ) -> Result<Self> {
        let ends = match link {
            Link::Emulated(_) | Link::Cable(_) => LinkEnds {
                far_address: world.far_addresses()[usize::from(arm.ipv6)],
                ..LinkEnds::across(world)
            },
            Link::Loopback => LinkEnds {
                near: world.far(),
                far: world.far(),
                far_address: if arm.ipv6 {
                    Ipv6Addr::LOCALHOST.into()
                } else {
                    Ipv4Addr::LOCALHOST.into()
                },
            },
        };
        let generator = Generator::of(arm);
        let at = |port: u16| SocketAddr::new(ends.far_address, port);
        let serve = |generator: Generator, arm: &Arm, port: u16| -> Result<ChildProgram> {
            let arguments = generator.server(arm, at(port));
            let command = &mut program(generator)?;
            let mut server = ChildProgram::new("the server", ends.far, command.args(arguments))?;
            // With every transport, client and server agree over TCP on what to measure.
            server.wait_ready(waiter, || listens(ends.far, TCP, port))?;
            Ok(server)
        };
        let target = at(PORT);
        let server = serve(generator, arm, PORT)?;
        let mut beside = [None, None];
        for (direction, slot) in beside.iter_mut().enumerate() {
            if load.background.directions()[direction] {
                let port = BESIDE[direction];
                *slot = Some((serve(generator.of_streams(), arm, port)?, at(port)));
            }
        }
        let rival = load.rival.as_ref().map(|congestion| {
            let arm = rival(arm, congestion);
            anyhow::Ok(RivalStream {
                _server: serve(RIVAL_GENERATOR, &arm, RIVAL)?,
                connect: at(RIVAL),
                arm,
            })
        });
        let mut ready = Self {
            near: ends.near,
            generator,
            server,
            tunnel: None,
            user_tunnel: None,
            connect: target,
            beside,
            rival: rival.transpose()?,
        };
        if let Some(commands) = &arm.commands {
            ready.user_tunnel = Some(start_user_tunnel(ends, commands, target, waiter)?);
            ready.connect = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), ENTRY);
        } else if arm.through_tunnel {
            let [mut client, mut server] = tunnel_flags(arm);
            for (direction, slot) in ready.beside.iter_mut().enumerate() {
                let Some((_, beside)) = slot else { continue };
                let entry = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), BESIDE_ENTRIES[direction]);
                client.extend(["-L".to_owned(), format!("{entry}={beside}")]);
                server.extend(["--allow".to_owned(), beside.to_string()]);
                *beside = entry;
            }
            let datagrams = datagram_entry(arm);
            if let Some(entry) = datagrams {
                client.extend(datagram_forwards(entry, &target.to_string()));
                server.extend(datagram_rule(&target.to_string()));
            }
            let tunnel = Tunnel::across(ends, target, [&client, &server])?;
            ready.connect = datagrams.unwrap_or(tunnel.entries()[0]);
            ready.tunnel = Some(tunnel);
        }
        Ok(ready)
    }

    pub(crate) fn client(&self, arm: &Arm, load: &Load) -> Result<ChildProgram> {
        self.start("the client", self.generator, arm, load, self.connect)
    }

    /// Starts the rival's client, if the load has a rival.
    pub(crate) fn rival(&self, load: &Load) -> Result<Option<ChildProgram>> {
        let rival = self.rival.as_ref().zip(load.rival_stream());
        let start = rival.map(|(rival, load)| {
            self.start(
                "the rival",
                RIVAL_GENERATOR,
                &rival.arm,
                &load,
                rival.connect,
            )
        });
        start.transpose()
    }

    /// Starts the clients of the background streams: up, and down.
    pub(crate) fn streams(&self, arm: &Arm, load: &Load) -> Result<[Option<ChildProgram>; 2]> {
        let start = |direction: usize| -> Result<Option<ChildProgram>> {
            let Some((_, to)) = &self.beside[direction] else {
                return Ok(None);
            };
            let stream = load.stream_beside(direction == 1);
            let generator = self.generator.of_streams();
            self.start("the background stream", generator, arm, &stream, *to)
                .map(Some)
        };
        Ok([start(0)?, start(1)?])
    }

    fn start(
        &self,
        name: &str,
        generator: Generator,
        arm: &Arm,
        load: &Load,
        to: SocketAddr,
    ) -> Result<ChildProgram> {
        let arguments = generator.client(arm, load, to);
        let command = &mut program(generator)?;
        ChildProgram::new(name, self.near, command.args(arguments))
    }

    /// Returns the process groups whose processor time is counted, including that of the client.
    pub(crate) fn groups(&self, client: &ChildProgram) -> ProcessGroups {
        let mut groups = vec![("client", client.group()), ("server", self.server.group())];
        let pairs = self.tunnel.as_ref().map(Tunnel::groups);
        let user_tunnel = self
            .user_tunnel
            .as_ref()
            .map(|pair| pair.each_ref().map(ChildProgram::group));
        if let Some([client, server]) = pairs.or(user_tunnel) {
            groups.extend([("tunnel client", client), ("tunnel server", server)]);
        }
        groups
    }

    pub(crate) fn check(&mut self) -> Result<()> {
        self.server.check()?;
        for one in self.user_tunnel.iter_mut().flatten() {
            one.check()?;
        }
        Ok(())
    }

    pub(crate) fn stop(self) -> Result<()> {
        self.tunnel.map_or(Ok(()), Tunnel::stop)
    }
}

/// Returns an arm for the rival: TCP with this congestion control, and the other arm's IP version.
fn rival(arm: &Arm, congestion: &str) -> Arm {
    Arm {
        id: "rival".to_owned(),
        line: arm.line,
        kind: ArmKind::Tcp,
        through_tunnel: false,
        ipv6: arm.ipv6,
        congestion: Some(congestion.to_owned()),
        client_flags: Vec::new(),
        server_flags: Vec::new(),
        commands: None,
        optional: false,
    }
}

/// Returns the program or kernel feature that the rival of an arm needs and this machine lacks.
pub(crate) fn missing_for_rival(arm: &Arm, load: &Load) -> Option<String> {
    missing(&rival(arm, load.rival.as_ref()?))
}

pub(crate) fn missing(arm: &Arm) -> Option<String> {
    if Generator::of(arm) == Generator::Iperf3 && !is_known("iperf3") {
        return Some("iperf3 is not installed (`apt install iperf3`)".to_owned());
    }
    let programs = arm.commands.iter().flatten();
    if let Some(program) = programs
        .filter_map(|line| program_of(line))
        .find(|word| !is_known(word))
    {
        return Some(format!(
            "cannot find program {program:?}: install it, or give its path"
        ));
    }
    let name = arm.congestion.as_deref().filter(|_| !arm.through_tunnel)?;
    let known = fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control").ok()?;
    let is_tcp = matches!(
        Generator::of(arm),
        Generator::Iperf3 | Generator::Perf("tcp" | "tls")
    );
    (is_tcp && !known.split_whitespace().any(|word| word == name))
        .then(|| format!("this kernel has no TCP {name} (run `modprobe tcp_{name}` as root)"))
}

/// Returns the program that a shell command line begins with. Returns `None` if only a shell can determine it.
fn program_of(line: &str) -> Option<&str> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    line.split_whitespace()
        .next()
        .filter(|word| word.chars().all(plain))
}

/// Returns true if the shell knows a word as a program or as a built-in.
fn is_known(word: &str) -> bool {
    let asked = Command::new("/bin/sh")
        .args(["-c", "command -v -- \"$1\" > /dev/null 2>&1", "sh", word])
        .status();
    // Without a shell, the run itself fails with the reason.
    asked.map_or(true, |status| status.success())
}

pub(crate) fn program(generator: Generator) -> Result<Command> {
    Ok(match generator {
        Generator::Perf(_) => {
            Command::new(std::env::current_exe().context("cannot find the program")?)
        }
        Generator::Iperf3 => Command::new("iperf3"),
    })
}

pub(crate) fn tunnel_flags(arm: &Arm) -> [Vec<String>; 2] {
    let own = |flags: &[String]| {
        let flags = flags.iter().filter(|_| is_tunnel(arm)).cloned();
        let name = arm.congestion.iter();
        let congestion = name.flat_map(|name| ["--congestion".to_owned(), name.clone()]);
        flags.chain(congestion).collect()
    };
    [own(&arm.client_flags), own(&arm.server_flags)]
}

/// Returns the address at which datagrams enter the tunnel. `quictun perf` connects by TCP to the same port, so the system
/// cannot choose it.
pub(crate) fn datagram_entry(arm: &Arm) -> Option<SocketAddr> {
    let through = arm.kind == ArmKind::Udp && arm.through_tunnel;
    through.then(|| SocketAddr::new(Ipv4Addr::LOCALHOST.into(), ENTRY))
}

/// Returns the flags with which a tunnel's client leads datagrams, and the connection that they belong to, to `target`.
pub(crate) fn datagram_forwards(entry: SocketAddr, target: &str) -> [String; 4] {
    let forward = "-L".to_owned();
    [
        forward.clone(),
        format!("{entry}={target}"),
        forward,
        format!("udp:{entry}={target}"),
    ]
}

/// Returns the flags with which a tunnel's server allows datagrams to `target`.
pub(crate) fn datagram_rule(target: &str) -> [String; 2] {
    ["--allow".to_owned(), format!("udp:{target}")]
}

/// Starts a tunnel from user commands, which get their settings in environment variables.
fn start_user_tunnel(
    ends: LinkEnds<'_>,
    [client, server]: &[String; 2],
    target: SocketAddr,
    waiter: &SignalWaiter,
) -> Result<[ChildProgram; 2]> {
    let command = |line: &str| {
        let mut command = sh(line);
        command
            .env("QUICTUN_FAR", ends.far_address.to_string())
            .env(
                "QUICTUN_TUNNEL",
                SocketAddr::new(ends.far_address, TUNNEL).to_string(),
            )
            .env("QUICTUN_TARGET", target.to_string())
            .env("QUICTUN_ENTRY", format!("127.0.0.1:{ENTRY}"));
        command
    };
    let mut server = ChildProgram::new("server_command", ends.far, &mut command(server))?;
    let bound = || listens(ends.far, TCP, TUNNEL) || listens(ends.far, UDP, TUNNEL);
    server.wait_ready(waiter, bound)?;
    let mut client = ChildProgram::new("client_command", ends.near, &mut command(client))?;
    client.wait_ready(waiter, || listens(ends.near, TCP, ENTRY))?;
    Ok([client, server])
}

pub(crate) fn listens(network: &NetNamespace, tables: [&str; 2], port: u16) -> bool {
    has_open(network, &tables, |open| open == port).unwrap_or(false)
}

pub(crate) fn has_open(
    network: &NetNamespace,
    tables: &[&str],
    is_it: impl Fn(u16) -> bool + Sync,
) -> io::Result<bool> {
    let open = |table: &str| -> io::Result<bool> {
        let text = fs::read_to_string(format!("/proc/thread-self/net/{table}"))?;
        let state = if table.starts_with("tcp") { "0A" } else { "07" };
        Ok(text.lines().skip(1).any(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let local = words.get(1).and_then(|local| local.rsplit_once(':'));
            let port = local.and_then(|(_, hex)| u16::from_str_radix(hex, 16).ok());
            port.is_some_and(&is_it) && words.get(3) == Some(&state)
        }))
    };
    // A missing table, for example without IPv6, has no sockets.
    network.within(|| Ok(tables.iter().any(|table| open(table).unwrap_or(false))))
}
