//! Measures cells over a real path: the near programs run here, an agent runs the far ones.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use quictun_lab::{Arm, Cell, Load, Metric, judge};
use quictun_sys::NetNamespace;
use quictun_tunnel::settings::HostPort;

use crate::agent::channel::Channel;
use crate::agent::message::{
    Counters, Request, Response, StartRequest, StartedServer, TunnelEntry, UsageReport, VERSION,
};
use crate::agent::{self, host};
use crate::arm::{datagram_entry, datagram_forwards, program};
use crate::client::{ChildProgram, in_network};
use crate::figures::{counted, enter, figures, settle};
use crate::generator::Generator;
use crate::processors::{Observer, ProcessGroups, UsageMeter};
use crate::tunnel::{Client, KeyDirectory};

/// The address of an agent, and the token that it shares.
#[derive(Clone, Debug)]
pub struct RemoteOptions {
    /// Address of the agent.
    pub host: HostPort,
    /// The file with the token.
    pub token_file: PathBuf,
}

/// Time limit for an agent's answer: it starts and ends programs.
const ANSWER: Duration = Duration::from_mins(1);

/// Number of pings. The fastest one is the round-trip time.
const PINGS: u32 = 20;

pub(crate) struct Remote {
    address: SocketAddr,
    channel: Mutex<Channel>,
}

impl Remote {
    pub(crate) fn connect(asked: &RemoteOptions) -> Result<Self> {
        let token = agent::token(&asked.token_file)?;
        let HostPort { host, port } = &asked.host;
        let address = (host.as_str(), *port)
            .to_socket_addrs()
            .with_context(|| format!("cannot look up {host}"))?
            .next()
            .with_context(|| format!("{host} has no address"))?;
        let channel = Channel::connect(address, &token)?;
        Ok(Self {
            address,
            channel: Mutex::new(channel),
        })
    }

    pub(crate) fn environment(&self) -> Result<BTreeMap<String, String>> {
        let version = VERSION;
        let Response::Facts(far) = self.ask(&Request::Facts { version })? else {
            bail!("unexpected answer from the agent");
        };
        let mut all = host::facts(self.address.ip());
        all.extend(
            far.into_iter()
                .map(|(name, value)| (format!("far: {name}"), value)),
        );
        let mut round_trip = Duration::MAX;
        for _ in 0..PINGS {
            let begin = Instant::now();
            self.ask(&Request::Ping)?;
            round_trip = round_trip.min(begin.elapsed());
        }
        let us = round_trip.as_micros();
        all.insert(
            "round trip, idle".to_owned(),
            format!("{us} us, least of {PINGS}"),
        );
        Ok(all)
    }

    fn ask(&self, ask: &Request) -> Result<Response> {
        let mut channel = self.channel.lock().unwrap_or_else(PoisonError::into_inner);
        channel.send(ask)?;
        match channel
            .receive(ANSWER)?
            .context("the agent did not answer")?
        {
            Response::Refused(why) => bail!("the agent: {why}"),
            answer => Ok(answer),
        }
    }

    pub(crate) fn cross(
        &self,
        observer: &Observer,
        arm: &Arm,
        load: &Load,
        cell: &mut Cell,
    ) -> Result<()> {
        let generator = Generator::of(arm);
        let start = StartRequest {
            traffic: match generator {
                Generator::Perf(transport) => transport.to_owned(),
                Generator::Iperf3 => "iperf3".to_owned(),
            },
            tunnel: arm.through_tunnel,
            flags: arm.server_flags.clone(),
        };
        let Response::Started(serving) = self.ask(&Request::Start(start))? else {
            bail!("unexpected answer from the agent");
        };
        let here = NetNamespace::current()?;
        let before = Counters::read(&here);
        self.measure(observer, arm, load, cell, &serving, &here)?;
        let Response::Stopped(far) = self.ask(&Request::Stop)? else {
            bail!("unexpected answer from the agent");
        };
        let near = Counters::read(&here).since(before);
        #[expect(clippy::cast_precision_loss, reason = "segments of an hour")]
        for (id, count) in [
            (Metric::TcpResentNear, near.tcp_resent),
            (Metric::TcpResentFar, far.tcp_resent),
            (Metric::UdpOverflowsNear, near.udp_overflows),
            (Metric::UdpOverflowsFar, far.udp_overflows),
        ] {
            cell.metrics.insert(id, count as f64);
        }
        settle(cell, judge(None, load.mode, cell.steal));
        Ok(())
    }

    fn measure(
        &self,
        observer: &Observer,
        arm: &Arm,
        load: &Load,
        cell: &mut Cell,
        serving: &StartedServer,
        here: &NetNamespace,
    ) -> Result<()> {
        let generator = Generator::of(arm);
        let mut to = SocketAddr::new(self.address.ip(), serving.port);
        let tunnel = match &serving.tunnel {
            Some(entry) => Some(self.tunnel(arm, entry, here)?),
            None => None,
        };
        let datagrams = datagram_entry(arm);
        to = tunnel
            .as_ref()
            .map_or(to, |tunnel| datagrams.unwrap_or(tunnel.entries[0]));
        let begin = Instant::now();
        let arguments = generator.client(arm, load, to);
        let client = ChildProgram::new("the client", here, program(generator)?.args(arguments))?;
        let mut groups: ProcessGroups = vec![("client", client.group())];
        groups.extend(
            tunnel
                .iter()
                .map(|tunnel| ("tunnel client", tunnel.program.group())),
        );
        let mut watch = UsageMeter::new(groups, &observer.host);
        let ended = client.wait_end(&observer.waiter, load.time_limit, || {
            watch.read();
            Ok(())
        })?;
        let end = Instant::now();
        let (from, until) = counted(load, begin, end);
        let far = self.usage(from, until)?;
        let outcome = figures("the client", &ended, generator, load)?;
        let usage = watch.usage(from, until).map(|mut usage| {
            usage.processes.extend(far.processes);
            usage.idle = usage.idle.min(far.idle);
            usage.steal = usage.steal.max(far.steal);
            usage.hidden |= far.hidden;
            usage
        });
        enter(cell, outcome, usage, load);
        tunnel.map_or(Ok(()), |tunnel| tunnel.program.stop())
    }

    /// Asks for the processor time of the far programs between two moments. The moments are sent as time before now,
    /// because the machines share no clock.
    fn usage(&self, from: Instant, until: Instant) -> Result<UsageReport> {
        let ago = |moment: Instant| u64::try_from(moment.elapsed().as_micros()).unwrap_or(u64::MAX);
        let ask = Request::Usage {
            from_us: ago(from),
            until_us: ago(until),
        };
        match self.ask(&ask)? {
            Response::Usage(used) => Ok(used),
            _ => bail!("unexpected answer from the agent"),
        }
    }

    fn tunnel(&self, arm: &Arm, entry: &TunnelEntry, here: &NetNamespace) -> Result<Client> {
        // The keys are on disk only until the client has read them.
        let keys = KeyDirectory::new()?;
        let psk = keys.psk_file();
        OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&psk)
            .and_then(|mut file| file.write_all(entry.psk.as_bytes()))
            .with_context(|| format!("cannot write {}", psk.display()))?;
        let address = SocketAddr::new(self.address.ip(), entry.port).to_string();
        let [mut flags, _] = crate::arm::tunnel_flags(arm);
        if let Some(at) = datagram_entry(arm) {
            flags.extend(datagram_forwards(at, &entry.target));
        }
        let targets = std::slice::from_ref(&entry.target);
        let spawn = in_network(here);
        Client::start(&spawn, &keys, &address, &entry.pin, targets, &flags)
    }
}
