//! A client and a server of this workspace under load, with the application, on loopback or on two machines.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use quictun_emu::{FarSide, LossUnit, RunningEmulator, World, WorldOptions};
use quictun_link::{LinkConfig, Queue};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use quictun_testbed::connection::Endpoint;
use quictun_testbed::machine::Machine;
use quictun_testbed::program::Program;
use quictun_testbed::rest;
use quictun_testbed::tunnel::{Client, Home, Server};
use quictun_testbed::work::Work;
use quictun_testbed::{application, deadline};

use super::relay::Relay;

/// The number of cables created so far.
static CABLES: AtomicU8 = AtomicU8::new(0);

const SETTLED: Duration = Duration::from_secs(10);

/// The machines on which the two programs run, and the link between them.
#[derive(Clone, Debug)]
pub enum LinkKind {
    /// Both on one machine.
    Loopback,
    /// On two network namespaces connected by a cable. Requires [`quictun_testbed::isolation`].
    Veth,
    /// Like [`LinkKind::Veth`], but neither end merges or segments packets: the cable carries single packets of 1500
    /// bytes, as a wire would.
    Packets,
    /// On the two sides of an emulated link. Requires [`quictun_testbed::isolation`].
    Emulated(EmulatedPath),
}

/// An emulated path, symmetric in both directions; its queue holds one bandwidth-delay product.
#[derive(Clone, Debug)]
pub struct EmulatedPath {
    /// The rate in bytes per second.
    pub rate: u64,
    /// The round-trip time of the path.
    pub round_trip: Duration,
    /// The share of packets that are lost, from 0 to 1.
    pub loss: f64,
}

/// The minimum queue in bytes: a burst that a sender may send at once.
const QUEUE_MIN: u64 = 64 * 1500;

impl EmulatedPath {
    fn plan(&self) -> quictun_emu::EmulatorConfig {
        let product = u128::from(self.rate) * self.round_trip.as_nanos() / 1_000_000_000;
        let product = u64::try_from(product).unwrap_or(u64::MAX).max(QUEUE_MIN);
        let way = LinkConfig {
            rate: Some(self.rate),
            delay: self.round_trip / 2,
            loss: self.loss,
            queue: Queue::Bytes(usize::try_from(product).unwrap_or(usize::MAX)),
            ..LinkConfig::default()
        };
        quictun_emu::EmulatorConfig {
            up: way.clone(),
            down: way,
            seed: 1,
            coalesce: Duration::ZERO,
            loss_unit: LossUnit::default(),
        }
    }
}

/// The programs to start and their settings.
#[derive(Clone, Debug)]
pub struct LoadOptions {
    /// The link between the two programs.
    pub link: LinkKind,
    /// Additional arguments for `quictun-server`.
    pub server: Vec<String>,
    /// Additional arguments for `quictun-client`.
    pub client: Vec<String>,
    /// The directory of the programs; `None` for the programs under test.
    pub programs: Option<PathBuf>,
    /// True if clients reach the server through a [`Relay`].
    pub is_relayed: bool,
}

/// Both programs, ready for load.
#[derive(Debug)]
pub struct LoadTunnel {
    /// The first client of the site.
    pub client: Client,
    /// The server of the site.
    pub server: Server,
    /// The relay in front of the clients, if the plan has one.
    pub relay: Option<Relay>,
    /// The clients in addition to the first one.
    others: Vec<Client>,
    /// The application, if it is a separate process.
    application: Option<Program>,
    /// The HTTP interfaces of server and client.
    http: [SocketAddr; 2],
    near: Machine,
    far: Machine,
    target: SocketAddr,
    emulated: Option<LinkEmulation>,
}

/// A running emulator and the networks around it.
struct LinkEmulation {
    running: RunningEmulator,
    _world: World,
}

impl fmt::Debug for LinkEmulation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Emulated")
    }
}

impl LoadTunnel {
    /// Starts an application that `serve` runs on its own threads, and a tunnel that leads to it. Also returns the
    /// address of the application's listener.
    ///
    /// # Errors
    ///
    /// Fails if any part does not start.
    pub fn start(
        plan: &LoadOptions,
        serve: impl FnOnce(TcpListener) + Send,
    ) -> Result<(Self, SocketAddr)> {
        Self::start_with(plan, |far, address| {
            let target = far.within(|| {
                let listener = application::listen(address)?;
                let target = listener.local_addr()?;
                serve(listener);
                Ok(target)
            })?;
            Ok((target, None))
        })
    }

    /// Starts an application with `application`, which receives the address to listen on, and a tunnel that leads to
    /// it. Also returns the application's address.
    ///
    /// # Errors
    ///
    /// Fails if any part does not start.
    pub fn start_with(
        plan: &LoadOptions,
        application: impl FnOnce(&Machine, SocketAddr) -> Result<(SocketAddr, Option<Program>)>,
    ) -> Result<(Self, SocketAddr)> {
        let here = Machine::here;
        let (near, far, address, emulated) = match &plan.link {
            LinkKind::Loopback => (here(), here(), IpAddr::from(Ipv4Addr::LOCALHOST), None),
            LinkKind::Veth | LinkKind::Packets => {
                let far = Machine::new("far")?;
                // The kernel removes the cable of an earlier site with a delay, so each site has its own.
                let number = CABLES.fetch_add(1, Ordering::Relaxed);
                let address = Ipv4Addr::new(10, 30, number, 2);
                let (near, of_far) = (format!("10.30.{number}.1/24"), format!("{address}/24"));
                let device = format!("lan{number}");
                here().join(&far, &device, &near, &of_far)?;
                if plan.is_relayed {
                    // The clients' path has the cable's MTU from end to end. On loopback, each new connection probes
                    // with 64 KiB, which takes the server a millisecond.
                    here().run("ip link set dev lo mtu 1500")?;
                }
                if matches!(plan.link, LinkKind::Packets) {
                    let off = format!(
                        "ethtool -K {device} tso off gso off gro off tx-udp-segmentation off"
                    );
                    here().run(&off)?;
                    far.run(&off)?;
                }
                (here(), far, address.into(), None)
            }
            LinkKind::Emulated(path) => {
                let world = World::build(&WorldOptions {
                    far: FarSide::Own,
                    ..WorldOptions::default()
                })?;
                let running = RunningEmulator::start(&world, path.plan())?;
                let side = |namespace: &quictun_sys::NetNamespace| {
                    Ok::<_, std::io::Error>(Machine::of(namespace.as_fd().try_clone_to_owned()?))
                };
                let (near, far) = (side(world.near())?, side(world.far())?);
                let [address, _] = world.far_addresses();
                let emulated = LinkEmulation {
                    running,
                    _world: world,
                };
                (near, far, address, Some(emulated))
            }
        };
        let (target, application) = application(&far, (address, 0).into())?;
        let [server_http, client_http] = free_ports()?;
        let arguments = [
            format!("--listen-on={address}:0"),
            format!("--httpd-listen-on=127.0.0.1:{server_http}"),
        ];
        let home = || Ok::<_, anyhow::Error>(Home::new()?.with_programs(plan.programs.as_deref()));
        let server = Server::start_at(&far, home()?, &borrowed(&arguments, &plan.server))?;
        let relay = || near.within(|| Relay::start(server.address));
        let relay = plan.is_relayed.then(relay).transpose()?;
        let arguments = [
            format!("--token-source=tcp:{target}"),
            format!("--httpd-listen-on=127.0.0.1:{client_http}"),
        ];
        let dialled = relay.as_ref().map_or(server.address, |relay| relay.address);
        let endpoint = dialled.to_string();
        let client = Client::start_at(
            &near,
            home()?,
            &endpoint,
            &borrowed(&arguments, &plan.client),
        )?;
        let http =
            [server_http, client_http].map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
        Ok((
            Self {
                client,
                server,
                relay,
                others: Vec::new(),
                application,
                http,
                near,
                far,
                target,
                emulated,
            },
            target,
        ))
    }

    /// Starts `count` additional clients that lead to the same application in the same way.
    ///
    /// # Errors
    ///
    /// Fails if a client does not start.
    pub fn add_clients(&mut self, plan: &LoadOptions, count: usize) -> Result<()> {
        let dialled = self.relay.as_ref().map(|relay| relay.address);
        let dialled = dialled.unwrap_or(self.server.address);
        for number in 0..count {
            let client = self.another_client(plan, dialled);
            let client = client.with_context(|| format!("client {number}"))?;
            self.others.push(client);
        }
        Ok(())
    }

    /// Starts a client that dials `server` and leads to the same application.
    ///
    /// # Errors
    ///
    /// Fails if the client does not start.
    pub fn another_client(&self, plan: &LoadOptions, server: SocketAddr) -> Result<Client> {
        let arguments = [format!("--token-source=tcp:{}", self.target)];
        let home = Home::new()?.with_programs(plan.programs.as_deref());
        let arguments = borrowed(&arguments, &plan.client);
        Client::start_at(&self.near, home, &server.to_string(), &arguments)
    }

    /// Returns the addresses at which each client's applications connect.
    pub fn forwards(&self) -> Vec<Endpoint> {
        let clients = std::iter::once(&self.client).chain(&self.others);
        clients.map(|client| client.forward.clone()).collect()
    }

    /// Returns the resident memory of server and client in bytes.
    ///
    /// # Errors
    ///
    /// Fails if one of them has ended.
    pub fn memory(&self) -> Result<[u64; 2]> {
        Ok([
            self.server.program.resident_bytes()?,
            self.client.program.resident_bytes()?,
        ])
    }

    /// Returns the combined work of server and client.
    ///
    /// # Errors
    ///
    /// Fails if one of them has ended.
    pub fn work(&self) -> Result<Work> {
        Ok(self.server.program.work()? + self.client.program.work()?)
    }

    /// Returns the number of open descriptors of server and client.
    ///
    /// # Errors
    ///
    /// Fails if one of them has ended.
    pub fn descriptors(&self) -> Result<[usize; 2]> {
        Ok([
            self.server.program.descriptors()?,
            self.client.program.descriptors()?,
        ])
    }

    /// Returns the number of open flows of server and client.
    ///
    /// # Errors
    ///
    /// Fails if one of them does not answer.
    pub fn flows(&self) -> Result<[u64; 2]> {
        let server = self.far.within(|| flows(self.http[0]))?;
        Ok([server, self.near.within(|| flows(self.http[1]))?])
    }

    /// Returns the number of bytes that both ends of all connections have received, including packet headers.
    ///
    /// # Errors
    ///
    /// Fails if one of them does not answer.
    pub fn received(&self) -> Result<u64> {
        let server = self.far.within(|| sum(self.http[0], "received_bytes"))?;
        let client = self.near.within(|| sum(self.http[1], "received_bytes"))?;
        Ok(server + client)
    }

    /// Runs `act` in the network of the client and its applications: connections made there cross the link.
    ///
    /// # Errors
    ///
    /// Returns the error of `act`.
    pub fn near<T: Send>(&self, act: impl FnOnce(&Client) -> Result<T> + Send) -> Result<T> {
        self.near.within(|| act(&self.client))
    }

    /// Ends a load that went well; checks that all programs still run.
    ///
    /// # Errors
    ///
    /// Fails if a program has ended.
    pub fn end(mut self) -> Result<()> {
        let ours = [&mut self.client.program, &mut self.server.program];
        let others = self.others.iter_mut().map(|client| &mut client.program);
        for program in ours.into_iter().chain(others).chain(&mut self.application) {
            if let Some(status) = program.ended()? {
                bail!("a program ended: {status}");
            }
            program.silence();
        }
        if let Some(emulated) = self.emulated.take() {
            emulated.running.stop()?;
        }
        Ok(())
    }

    /// Waits until both sides have exactly `wanted` open flows.
    ///
    /// # Errors
    ///
    /// Fails if that does not happen in time.
    pub fn settle(&self, wanted: u64) -> Result<()> {
        let mut last = [0; 2];
        deadline::wait(
            &format!("{wanted} open flows at both ends"),
            SETTLED,
            || {
                last = self.flows()?;
                Ok((last == [wanted; 2]).then_some(()))
            },
        )
        .with_context(|| format!("server and client have {last:?} flows open"))
    }
}

fn flows(http: SocketAddr) -> Result<u64> {
    sum(http, "flows")
}

/// Returns the sum of a figure over all connections.
fn sum(http: SocketAddr, figure: &str) -> Result<u64> {
    let answer = rest::get(http, "/v1/connections")?.json()?;
    let connections = answer["connections"].as_array().context("no connections")?;
    Ok(connections
        .iter()
        .filter_map(|connection| connection[figure].as_u64())
        .sum())
}

fn borrowed<'a>(first: &'a [String], second: &'a [String]) -> Vec<&'a str> {
    first.iter().chain(second).map(String::as_str).collect()
}

/// Returns ports that were free a moment ago.
fn free_ports() -> Result<[u16; 2]> {
    let listen = || TcpListener::bind((IpAddr::from(Ipv4Addr::LOCALHOST), 0));
    let (first, second) = (listen()?, listen()?);
    Ok([first.local_addr()?.port(), second.local_addr()?.port()])
}

/// Raises the limit of open files in this process to at least `wanted`.
///
/// # Errors
///
/// Fails if the hard limit is lower; the error names the remedy.
pub fn allow_files(wanted: u64) -> Result<()> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= wanted) {
        return Ok(());
    }
    // Root may also raise the hard limit.
    let maximum = limit.maximum.map(|maximum| maximum.max(wanted));
    setrlimit(
        Resource::Nofile,
        Rlimit {
            current: Some(wanted),
            maximum,
        },
    )
    .with_context(|| {
        format!(
            "{wanted} open files are needed, {:?} are allowed: raise the hard limit (ulimit -Hn)",
            limit.maximum
        )
    })
}
