//! The network: hosts, links, the current time, and the operations on them.

use std::any::Any;
use std::net::SocketAddr;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use quictun_engine::{ClientEngine, ClientRole, EngineConfig, ServerEngine, ServerRole};
use quictun_link::{Counters, Link, LinkConfig};

use crate::addresses::Addresses;
use crate::app::{App, AppOutcome};
#[cfg(feature = "evidence")]
use crate::evidence::Evidence;
use crate::filter::Filters;
use crate::host::Host;
use crate::host_engine::HostEngine;
use crate::in_flight::{Arrival, InFlight};
use crate::node::{Guest, Node, NodeKind};
use crate::packet::{IpPacket, OutgoingPacket, PacketBody};
use crate::plain::{CrossTraffic, PlainHost, TrafficEnds};
use crate::script::Script;
use crate::seed::Seed;
use crate::socket::MemSocket;
use crate::tcp::TrafficReport;
use crate::topology::{Topology, make_link};
use crate::transcript::{Transcript, TranscriptDetail};
use crate::wakeups::HostWakeups;

pub(crate) const TAIL: usize = 60;

/// Identifies a host or a router of one network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostId(pub(crate) usize);

/// Identifies an application of one network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AppId {
    host: HostId,
    index: usize,
}

/// Identifies a stream of cross traffic of one network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrafficId {
    from: HostId,
    to: HostId,
    ends: TrafficEnds,
}

/// A simulated network: its hosts, its links and its clock.
#[derive(Debug)]
pub struct Network {
    seed: Seed,
    pub(crate) start: Instant,
    pub(crate) now: Instant,
    pub(crate) nodes: Vec<Node>,
    pub(crate) wakeups: HostWakeups,
    pub(crate) addresses: Addresses,
    pub(crate) topology: Topology,
    pub(crate) in_flight: InFlight,
    pub(crate) datagrams: u64,
    pub(crate) packets: u64,
    pub(crate) transcript: Transcript,
    pub(crate) filters: Filters,
    pub(crate) departures: Vec<OutgoingPacket>,
    #[cfg(feature = "evidence")]
    pub(crate) evidence: Evidence,
}

impl Network {
    /// Creates an empty network at time zero.
    pub fn new(seed: Seed) -> Self {
        // `Instant` has no zero value of its own. Only differences between instants are ever used.
        static BASE: OnceLock<Instant> = OnceLock::new();
        let start = *BASE.get_or_init(Instant::now);
        Self {
            #[cfg(feature = "evidence")]
            evidence: Evidence::of(&seed),
            transcript: Transcript::of(&seed),
            seed,
            start,
            now: start,
            nodes: Vec::new(),
            wakeups: HostWakeups::default(),
            addresses: Addresses::default(),
            topology: Topology::default(),
            in_flight: InFlight::default(),
            datagrams: 0,
            packets: 0,
            filters: Filters::default(),
            departures: Vec::new(),
        }
    }

    /// Adds a server with the given configuration.
    pub fn add_server(&mut self, name: &str, config: EngineConfig<ServerRole>) -> HostId {
        self.add_guest(name, Host::server(config))
    }

    /// Adds a client of `server`; the server's name resolves at once.
    pub fn add_client(
        &mut self,
        name: &str,
        config: EngineConfig<ClientRole>,
        server: HostId,
    ) -> HostId {
        let address = self.addresses.next();
        self.add_client_at(name, config, &[server], address)
    }

    /// Adds a client of all `servers`, in the order of the servers in its configuration.
    pub fn add_client_of(
        &mut self,
        name: &str,
        config: EngineConfig<ClientRole>,
        servers: &[HostId],
    ) -> HostId {
        let address = self.addresses.next();
        self.add_client_at(name, config, servers, address)
    }

    /// Adds a client of `server` that shares the address of `neighbour`, as behind one NAT.
    pub fn add_client_beside(
        &mut self,
        name: &str,
        config: EngineConfig<ClientRole>,
        server: HostId,
        neighbour: HostId,
    ) -> HostId {
        let neighbour = self.address(neighbour);
        let address = self.addresses.beside(neighbour);
        self.add_client_at(name, config, &[server], address)
    }

    fn add_client_at(
        &mut self,
        name: &str,
        config: EngineConfig<ClientRole>,
        servers: &[HostId],
        address: SocketAddr,
    ) -> HostId {
        #[cfg(feature = "evidence")]
        let config = self.evidence.log_keys(config);
        let host = Host::client(config, servers.iter().map(|&at| self.address(at)).collect());
        self.add_at(name, address, NodeKind::Guest(Box::new(host)))
    }

    /// Adds a host that runs a program of the caller.
    pub fn add_guest(&mut self, name: &str, guest: impl Guest) -> HostId {
        self.add(name, NodeKind::Guest(Box::new(guest)))
    }

    /// Adds a host that sends and receives cross traffic.
    pub fn add_plain(&mut self, name: &str) -> HostId {
        self.add(name, NodeKind::Plain(Box::default()))
    }

    /// Adds a router. It forwards packets on the route with the fewest links.
    pub fn add_router(&mut self, name: &str) -> HostId {
        self.add(name, NodeKind::Router)
    }

    /// Joins two hosts or routers: `there` configures the link from `a` to `b`, `back` the one from `b` to `a`. Both
    /// count the lengths of IP packets.
    pub fn link(&mut self, a: HostId, b: HostId, there: LinkConfig, back: LinkConfig) {
        for (from, to, config) in [(a.0, b.0, there), (b.0, a.0, back)] {
            let link = make_link(self.seed.value(), from, to, config, self.start);
            self.topology.join(from, to, link);
        }
    }

    /// Joins every host on the left with every host on the right over one bottleneck. Each host has an access link
    /// without limits, whose one-way delay is `access_delay`. Returns the routers at the left and the right end of the
    /// bottleneck, to be passed to [`Network::counters`] and [`Network::set_link`].
    pub fn dumbbell(
        &mut self,
        left: &[HostId],
        right: &[HostId],
        there: LinkConfig,
        back: LinkConfig,
        access_delay: Duration,
    ) -> (HostId, HostId) {
        let ends = (self.add_router("left"), self.add_router("right"));
        let access = LinkConfig {
            delay: access_delay,
            ..LinkConfig::default()
        };
        for (hosts, router) in [(left, ends.0), (right, ends.1)] {
            for &host in hosts {
                self.link(host, router, access.clone(), access.clone());
            }
        }
        self.link(ends.0, ends.1, there, back);
        ends
    }

    /// Changes the configuration of one direction of a link from now on.
    pub fn set_link(&mut self, from: HostId, to: HostId, change: impl FnOnce(&mut LinkConfig)) {
        if let Some(link) = self.topology.link_mut(from.0, to.0) {
            let mut config = link.config().clone();
            change(&mut config);
            link.reconfigure(config);
        }
    }

    /// Starts cross traffic between two hosts created by [`Network::add_plain`].
    pub fn add_traffic(&mut self, from: HostId, to: HostId, traffic: &CrossTraffic) -> TrafficId {
        let addresses = [self.address(from), self.address(to)];
        let now = self.now;
        let (sender, receiver) = self.plain_pair(from, to);
        let ends = sender.send(traffic, receiver, addresses[1], now);
        receiver.receive(ends, addresses[0]);
        self.wakeups.wake(from.0);
        TrafficId { from, to, ends }
    }

    fn plain_pair(&mut self, from: HostId, to: HostId) -> (&mut PlainHost, &mut PlainHost) {
        let pair = self.nodes.get_disjoint_mut([from.0, to.0]);
        let [from, to] = pair.expect("both ids must belong to this network and differ");
        match (&mut from.kind, &mut to.kind) {
            (NodeKind::Plain(from), NodeKind::Plain(to)) => (from, to),
            _ => panic!("cross traffic needs two hosts from add_plain"),
        }
    }

    /// Returns the results of cross traffic so far.
    pub fn traffic(&self, id: TrafficId) -> TrafficReport {
        let kind = |id: HostId| &self.nodes[id.0].kind;
        match (kind(id.from), kind(id.to)) {
            (NodeKind::Plain(sender), NodeKind::Plain(receiver)) => {
                sender.report(id.ends, receiver)
            }
            _ => TrafficReport::default(),
        }
    }

    /// Delivers a datagram to a host now, from an address that need not belong to a host.
    pub fn inject(&mut self, from: SocketAddr, to: HostId, bytes: Vec<u8>) {
        let (SocketAddr::V4(from), SocketAddr::V4(address)) = (from, self.address(to)) else {
            panic!("simulated networks carry IPv4 only");
        };
        let packet = IpPacket {
            from,
            to: address,
            ecn: 0,
            body: PacketBody::Udp(bytes.into_iter().collect()),
        };
        let arrival = Arrival {
            node: to.0,
            host: to.0,
            packet,
        };
        self.in_flight.push_unlinked(self.nanos(self.now), arrival);
    }

    /// Returns the engine host with this id. Panics if the node is of another kind.
    pub fn host(&mut self, id: HostId) -> &mut Host {
        self.guest(id)
    }

    /// Returns the engine of a client. Panics if the node is something else.
    pub fn client(&mut self, id: HostId) -> &mut ClientEngine<MemSocket> {
        self.host(id).engine().client()
    }

    /// Returns the engine of a server. Panics if the node is something else.
    pub fn server(&mut self, id: HostId) -> &mut ServerEngine<MemSocket> {
        self.host(id).engine().server()
    }

    /// Returns the program of type `T` that runs at a host. Panics if the host runs something else.
    pub fn guest<T: Guest>(&mut self, id: HostId) -> &mut T {
        self.wakeups.wake(id.0);
        let NodeKind::Guest(guest) = &mut self.nodes[id.0].kind else {
            panic!("this node is a router or a plain host; no program runs there");
        };
        let guest: &mut dyn Any = guest.as_mut();
        guest.downcast_mut().expect("the host runs another type")
    }

    /// Connects an application to a client; the client opens a flow for it.
    pub fn open(&mut self, client: HostId, token: &str, script: Script) -> AppId {
        let now = self.now;
        let index = self.host(client).open(now, token, script);
        AppId {
            host: client,
            index,
        }
    }

    /// Server: connects an application to the listener of a client's reverse forward.
    pub fn open_incoming(&mut self, server: HostId, id: u64, script: Script) -> AppId {
        let now = self.now;
        let index = self.host(server).open_incoming(now, id, script);
        AppId {
            host: server,
            index,
        }
    }

    /// Returns what an application has observed and done so far.
    pub fn outcome(&self, app: AppId) -> &AppOutcome {
        self.app(app).outcome()
    }

    /// Returns an application, also one that a server has dialled.
    pub fn app(&self, app: AppId) -> &App {
        &self.engine_host(app.host).apps()[app.index]
    }

    /// Returns the outcome of the latest application that a server dialled for a token.
    pub fn dialled(&self, server: HostId, token: &str) -> Option<&AppOutcome> {
        self.all_dialled(server, token).next()
    }

    /// Returns the outcomes of all applications that a server has dialled for `token`, the latest first. There are several
    /// if a client has given up a request that was not answered, and has asked again.
    pub fn all_dialled(&self, server: HostId, token: &str) -> impl Iterator<Item = &AppOutcome> {
        self.apps_of(server, token).map(App::outcome)
    }

    /// Returns all applications that a server has dialled for `token`, the latest first.
    pub fn apps_of(&self, server: HostId, token: &str) -> impl Iterator<Item = &App> {
        let apps = self.engine_host(server).apps().iter().rev();
        apps.filter(move |app| app.name() == token)
    }

    /// Runs a command on an engine at the current time.
    pub fn command<R>(
        &mut self,
        id: HostId,
        command: impl FnOnce(&mut HostEngine, Instant) -> R,
    ) -> R {
        let now = self.now;
        command(self.host(id).engine(), now)
    }

    /// Returns the time since the network was created.
    pub fn elapsed(&self) -> Duration {
        self.now - self.start
    }

    /// Returns the current time.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// Returns the instant that is `after` later than the creation of the network.
    pub fn at(&self, after: Duration) -> Instant {
        self.start + after
    }

    /// Returns the seed of the run.
    pub fn seed(&self) -> &Seed {
        &self.seed
    }

    /// Returns the current address of a host.
    pub fn address(&self, id: HostId) -> SocketAddr {
        self.nodes[id.0].address
    }

    /// Returns the packet counts of one direction of a link.
    pub fn counters(&self, from: HostId, to: HostId) -> Counters {
        let link = self.topology.link(from.0, to.0);
        link.map_or_else(Counters::default, Link::counters)
    }

    /// Returns the number of packets that have reached a host so far.
    pub fn datagrams(&self) -> u64 {
        self.datagrams
    }

    /// Returns the number of packets that have entered a link so far. A packet that crosses three links counts three
    /// times.
    pub fn packets(&self) -> u64 {
        self.packets
    }

    /// Returns the record of the run so far.
    pub fn transcript(&self) -> &Transcript {
        &self.transcript
    }

    /// Sets how much detail the transcript keeps from now on.
    pub fn set_detail(&mut self, detail: TranscriptDetail) {
        self.transcript.set_detail(detail);
    }

    /// Returns the name of a host in the transcript.
    pub fn name(&self, id: HostId) -> &str {
        &self.nodes[id.0].name
    }

    fn add(&mut self, name: &str, kind: NodeKind) -> HostId {
        let address = self.addresses.next();
        self.add_at(name, address, kind)
    }

    fn add_at(&mut self, name: &str, address: SocketAddr, kind: NodeKind) -> HostId {
        self.topology.add_node(matches!(kind, NodeKind::Router));
        let id = HostId(self.nodes.len());
        self.nodes.push(Node {
            name: name.to_owned(),
            address,
            kind,
        });
        self.wakeups.add_host();
        self.addresses.assign(address, id.0);
        id
    }

    fn engine_host(&self, id: HostId) -> &Host {
        let NodeKind::Guest(guest) = &self.nodes[id.0].kind else {
            panic!("this node is a router or a plain host; no program runs there");
        };
        let guest: &dyn Any = guest.as_ref();
        guest.downcast_ref().expect("the host runs no engine")
    }

    pub(crate) fn note(&mut self, host: usize, what: String) {
        let at = self.now - self.start;
        self.transcript.note(at, &self.nodes[host].name, what);
    }

    /// Returns the nanoseconds from the start of the network to an instant.
    pub(crate) fn nanos(&self, at: Instant) -> u64 {
        let time = at.saturating_duration_since(self.start);
        let seconds = time.as_secs().saturating_mul(1_000_000_000);
        seconds.saturating_add(u64::from(time.subsec_nanos()))
    }
}

impl Drop for Network {
    #[expect(
        clippy::print_stderr,
        reason = "the test harness captures it and shows it with the failure"
    )]
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the last of what happened:\n{}", self.transcript.tail(TAIL));
        }
        #[cfg(feature = "evidence")]
        self.leave_evidence();
    }
}
