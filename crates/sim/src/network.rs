//! Time, links, and the hosts they join.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use quictun_engine::{ClientRole, EngineConfig, ServerRole};
use quictun_link::{Counters, Fate, Link, LinkConfig, Packet};
use quinn_proto::EcnCodepoint;

use crate::app::Outcome;
use crate::bare::Bare;
use crate::host::{Departure, Host};
use crate::original::{Original, OriginalOptions};
use crate::script::Script;
use crate::seed::Seed;
use crate::transcript::{Detail, Transcript};

/// UDP port of every host.
const PORT: u16 = 7500;

/// Lines of the transcript shown with a failure.
const TAIL: usize = 60;

/// Names a host of one network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostId(usize);

/// Names an application of one network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AppId {
    host: HostId,
    index: usize,
}

/// Hosts, links and the time.
#[derive(Debug)]
pub struct Network {
    seed: Seed,
    start: Instant,
    now: Instant,
    hosts: Vec<Machine>,
    /// Hosts with work to do at this instant.
    dirty: Vec<bool>,
    addresses: BTreeMap<SocketAddr, usize>,
    addresses_given: u8,
    links: BTreeMap<(usize, usize), Link>,
    under_way: BinaryHeap<Reverse<Arrival>>,
    sequence: u64,
    datagrams: u64,
    transcript: Transcript,
    departures: Vec<Departure>,
}

/// What a host runs.
#[derive(Debug)]
enum Machine {
    Engine(Box<Host>),
    Original(Box<Original>),
    Bare(Box<Bare>),
}

/// A datagram under way, ordered by arrival, then by departure.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Arrival {
    at: Instant,
    sequence: u64,
    to: usize,
    destination: SocketAddr,
    from: SocketAddr,
    ecn: Option<u8>,
    bytes: Vec<u8>,
}

impl Network {
    /// An empty network at time zero.
    pub fn new(seed: Seed) -> Self {
        // The library's clock type has no zero of its own; only differences are ever looked at.
        static BASE: OnceLock<Instant> = OnceLock::new();
        let start = *BASE.get_or_init(Instant::now);
        Self {
            seed,
            start,
            now: start,
            hosts: Vec::new(),
            dirty: Vec::new(),
            addresses: BTreeMap::new(),
            addresses_given: 0,
            links: BTreeMap::new(),
            under_way: BinaryHeap::new(),
            sequence: 0,
            datagrams: 0,
            transcript: Transcript::default(),
            departures: Vec::new(),
        }
    }

    /// Adds a server.
    pub fn add_server(&mut self, name: &str, config: EngineConfig<ServerRole>) -> HostId {
        let address = self.next_address();
        let host = Host::server(name, address, config);
        self.add(Machine::Engine(Box::new(host)))
    }

    /// Adds a client of `server`, whose name resolves at once.
    pub fn add_client(
        &mut self,
        name: &str,
        config: EngineConfig<ClientRole>,
        server: HostId,
    ) -> HostId {
        let servers = vec![self.address(server)];
        let address = self.next_address();
        let host = Host::client(name, address, config, servers, self.now);
        self.add(Machine::Engine(Box::new(host)))
    }

    /// Adds a server that behaves as the original does.
    pub fn add_original(&mut self, name: &str, options: OriginalOptions) -> HostId {
        let address = self.next_address();
        let original = Original::new(name, address, options, self.seed.value());
        self.add(Machine::Original(Box::new(original)))
    }

    /// Adds a QUIC client without a tunnel, which connects to `server` at once.
    pub fn add_bare(&mut self, name: &str, protocols: &[&[u8]], server: HostId) -> HostId {
        let (address, remote) = (self.next_address(), self.address(server));
        let bare = Bare::new(
            name,
            address,
            protocols,
            remote,
            self.seed.value(),
            self.now,
        );
        self.add(Machine::Bare(Box::new(bare)))
    }

    /// Puts a restarted server, with nothing but `config`, in the place of another.
    pub fn replace(&mut self, id: HostId, config: EngineConfig<ServerRole>) {
        let (name, address) = (self.name(id).to_owned(), self.address(id));
        self.hosts[id.0] = Machine::Engine(Box::new(Host::server(&name, address, config)));
        self.note(id.0, "is restarted".to_owned());
    }

    /// Joins two hosts: `there` from `a` to `b`, `back` from `b` to `a`.
    pub fn link(&mut self, a: HostId, b: HostId, there: LinkConfig, back: LinkConfig) {
        for (from, to, config) in [(a, b, there), (b, a, back)] {
            let seed = self.seed.value() ^ ((from.0 as u64) << 40) ^ ((to.0 as u64) << 20);
            self.links
                .insert((from.0, to.0), Link::new(config, seed, self.start));
        }
    }

    /// Changes one direction of a link from now on.
    pub fn set_link(&mut self, from: HostId, to: HostId, change: impl FnOnce(&mut LinkConfig)) {
        if let Some(link) = self.links.get_mut(&(from.0, to.0)) {
            let mut config = link.config().clone();
            change(&mut config);
            link.reconfigure(config);
        }
    }

    /// Gives a host another address; datagrams for the old one are lost.
    pub fn move_host(&mut self, id: HostId) {
        let address = self.next_address();
        self.addresses.retain(|_, host| *host != id.0);
        self.addresses.insert(address, id.0);
        if let Machine::Engine(host) = &mut self.hosts[id.0] {
            host.set_address(address);
        }
        self.note(id.0, format!("moves to {address}"));
    }

    /// A datagram from an address that is not one of the hosts' enters a host now.
    pub fn inject(&mut self, from: SocketAddr, to: HostId, bytes: Vec<u8>) {
        self.sequence += 1;
        self.under_way.push(Reverse(Arrival {
            at: self.now,
            sequence: self.sequence,
            to: to.0,
            destination: self.address(to),
            from,
            ecn: None,
            bytes,
        }));
    }

    /// A host with an engine.
    pub fn host(&mut self, id: HostId) -> &mut Host {
        self.dirty[id.0] = true;
        match &mut self.hosts[id.0] {
            Machine::Engine(host) => host,
            Machine::Original(_) | Machine::Bare(_) => panic!("this host has no engine"),
        }
    }

    /// A host that is an original server.
    pub fn original(&mut self, id: HostId) -> &mut Original {
        self.dirty[id.0] = true;
        match &mut self.hosts[id.0] {
            Machine::Original(original) => original,
            Machine::Engine(_) | Machine::Bare(_) => panic!("this host is not an original"),
        }
    }

    /// A host that is a bare QUIC client.
    pub fn bare(&mut self, id: HostId) -> &mut Bare {
        self.dirty[id.0] = true;
        match &mut self.hosts[id.0] {
            Machine::Bare(bare) => bare,
            Machine::Engine(_) | Machine::Original(_) => panic!("this host is not a bare client"),
        }
    }

    /// An application connects to a client, which opens a flow for it.
    pub fn open(&mut self, client: HostId, token: &str, script: Script) -> AppId {
        let now = self.now;
        let index = self.host(client).open(now, token, script);
        AppId {
            host: client,
            index,
        }
    }

    /// What an application has seen and done.
    pub fn outcome(&self, app: AppId) -> &Outcome {
        self.engine_host(app.host).apps()[app.index].outcome()
    }

    /// The outcome of the last application that a server dialled for a token.
    pub fn dialled(&self, server: HostId, token: &str) -> Option<&Outcome> {
        let mut apps = self.engine_host(server).apps().iter().rev();
        apps.find(|app| app.name() == token)
            .map(crate::App::outcome)
    }

    /// A command to an engine, at this instant.
    pub fn command<R>(
        &mut self,
        id: HostId,
        command: impl FnOnce(&mut quictun_engine::Engine<crate::MemSocket>, Instant) -> R,
    ) -> R {
        let now = self.now;
        command(self.host(id).engine(), now)
    }

    /// Lets time pass.
    pub fn run_for(&mut self, time: Duration) {
        let until = self.now + time;
        while self.step(until) {}
        self.now = until;
    }

    /// Lets time pass until something is true, which must happen within `most`. Returns how long it took.
    pub fn run_until(
        &mut self,
        most: Duration,
        mut done: impl FnMut(&mut Self) -> bool,
    ) -> Duration {
        let (from, until) = (self.now, self.now + most);
        loop {
            self.settle();
            if done(self) {
                return self.now - from;
            }
            assert!(
                self.step(until),
                "it did not happen within {most:?}\n{}",
                self.transcript.tail(TAIL)
            );
        }
    }

    /// Lets time pass until nothing is under way and no engine wants to be woken, or until `most` has
    /// passed; whether it became quiet.
    pub fn run_to_silence(&mut self, most: Duration) -> bool {
        let until = self.now + most;
        while self.step(until) {}
        self.under_way.is_empty() && self.next_timeout().is_none()
    }

    /// Time since the network was made.
    pub fn elapsed(&self) -> Duration {
        self.now - self.start
    }

    /// The present instant.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// The instant `after` the network was made.
    pub fn at(&self, after: Duration) -> Instant {
        self.start + after
    }

    /// The seed of the run.
    pub fn seed(&self) -> &Seed {
        &self.seed
    }

    /// Where datagrams for a host go.
    pub fn address(&self, id: HostId) -> SocketAddr {
        match &self.hosts[id.0] {
            Machine::Engine(host) => host.address(),
            Machine::Original(original) => original.address(),
            Machine::Bare(bare) => bare.address(),
        }
    }

    /// What became of the packets of one direction of a link.
    pub fn counters(&self, from: HostId, to: HostId) -> Counters {
        self.links
            .get(&(from.0, to.0))
            .map_or_else(Counters::default, Link::counters)
    }

    /// Datagrams handed to links and hosts so far.
    pub fn datagrams(&self) -> u64 {
        self.datagrams
    }

    /// What happened so far.
    pub fn transcript(&self) -> &Transcript {
        &self.transcript
    }

    /// How much the transcript keeps from now on.
    pub fn set_detail(&mut self, detail: Detail) {
        self.transcript.set_detail(detail);
    }

    /// Does what is to be done now, then jumps to the next thing that happens before `until`.
    fn step(&mut self, until: Instant) -> bool {
        self.settle();
        let arrival = self.under_way.peek().map(|Reverse(arrival)| arrival.at);
        let next = [arrival, self.next_timeout()].into_iter().flatten().min();
        let Some(at) = next.filter(|&at| at <= until) else {
            return false;
        };
        self.now = self.now.max(at);
        self.arrive();
        for (index, host) in self.hosts.iter().enumerate() {
            let wants = host.next_timeout();
            self.dirty[index] |= wants.is_some_and(|at| at <= self.now);
        }
        true
    }

    /// Hands over the datagrams that arrive now.
    fn arrive(&mut self) {
        while let Some(Reverse(arrival)) = self.under_way.peek() {
            if arrival.at > self.now {
                return;
            }
            let Some(Reverse(arrival)) = self.under_way.pop() else {
                return;
            };
            self.datagrams += 1;
            if self.address(HostId(arrival.to)) != arrival.destination {
                continue;
            }
            if self.transcript.keeps(Detail::Datagrams) {
                let what = format!("<- {} B from {}", arrival.bytes.len(), arrival.from);
                self.note(arrival.to, what);
            }
            self.dirty[arrival.to] = true;
            let now = self.now;
            match &mut self.hosts[arrival.to] {
                Machine::Engine(host) => {
                    host.handle_datagram(now, arrival.from, arrival.ecn, &arrival.bytes);
                }
                Machine::Original(original) => {
                    original.handle_datagram(now, arrival.from, arrival.ecn, &arrival.bytes);
                }
                Machine::Bare(bare) => {
                    bare.handle_datagram(now, arrival.from, arrival.ecn, &arrival.bytes);
                }
            }
        }
    }

    /// Lets every host with work do it.
    fn settle(&mut self) {
        for index in 0..self.hosts.len() {
            if !std::mem::take(&mut self.dirty[index]) {
                continue;
            }
            let mut departures = std::mem::take(&mut self.departures);
            let now = self.now;
            let notes = match &mut self.hosts[index] {
                Machine::Engine(host) => {
                    host.run(now, &mut departures);
                    host.take_notes()
                }
                Machine::Original(original) => {
                    original.run(now, &mut departures);
                    original.take_notes()
                }
                Machine::Bare(bare) => {
                    bare.run(now, &mut departures);
                    bare.take_notes()
                }
            };
            if self.transcript.keeps(Detail::Events) {
                for note in notes {
                    self.note(index, note);
                }
            }
            for departure in departures.drain(..) {
                self.depart(index, &departure);
            }
            self.departures = departures;
        }
    }

    /// A datagram enters its link.
    fn depart(&mut self, from: usize, departure: &Departure) {
        let source = self.address(HostId(from));
        let length = departure.bytes.len();
        let to = self.addresses.get(&departure.to).copied();
        let link = to.and_then(|to| Some((to, self.links.get_mut(&(from, to))?)));
        let Some((to, link)) = link else {
            if self.transcript.keeps(Detail::Datagrams) {
                self.note(
                    from,
                    format!("-> {length} B to {}: no way there", departure.to),
                );
            }
            return;
        };
        let packet = Packet {
            length,
            ecn_capable: departure.ecn.is_some_and(|ecn| ecn != 0),
        };
        let fate = link.send(self.now, packet);
        if self.transcript.keeps(Detail::Datagrams) {
            self.note(
                from,
                format!("-> {length} B to {}: {}", departure.to, self.describe(fate)),
            );
        }
        let Fate::Delivered { at, copy, marked } = fate else {
            return;
        };
        for at in [Some(at), copy].into_iter().flatten() {
            self.sequence += 1;
            self.under_way.push(Reverse(Arrival {
                at,
                sequence: self.sequence,
                to,
                destination: departure.to,
                from: source,
                ecn: if marked {
                    Some(EcnCodepoint::Ce as u8)
                } else {
                    departure.ecn
                },
                bytes: departure.bytes.clone(),
            }));
        }
    }

    fn describe(&self, fate: Fate) -> String {
        let seconds = |at: Instant| (at - self.start).as_secs_f64();
        match fate {
            Fate::Delivered { at, copy, marked } => {
                let again = copy.map_or_else(String::new, |copy| {
                    format!(" and again at {:.6} s", seconds(copy))
                });
                let mark = if marked { ", marked CE" } else { "" };
                format!("arrives at {:.6} s{again}{mark}", seconds(at))
            }
            Fate::Dropped(reason) => format!("dropped: {reason:?}"),
        }
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.hosts.iter().filter_map(Machine::next_timeout).min()
    }

    fn add(&mut self, machine: Machine) -> HostId {
        let id = HostId(self.hosts.len());
        self.hosts.push(machine);
        self.dirty.push(true);
        let address = self.address(id);
        self.addresses.insert(address, id.0);
        id
    }

    fn next_address(&mut self) -> SocketAddr {
        self.addresses_given += 1;
        SocketAddr::new(
            IpAddr::V4(Ipv4Addr::new(10, 0, 0, self.addresses_given)),
            PORT,
        )
    }

    fn engine_host(&self, id: HostId) -> &Host {
        match &self.hosts[id.0] {
            Machine::Engine(host) => host,
            Machine::Original(_) | Machine::Bare(_) => panic!("this host has no engine"),
        }
    }

    fn name(&self, id: HostId) -> &str {
        match &self.hosts[id.0] {
            Machine::Engine(host) => host.name(),
            Machine::Original(original) => original.name(),
            Machine::Bare(bare) => bare.name(),
        }
    }

    fn note(&mut self, host: usize, what: String) {
        let at = self.now - self.start;
        let name = self.name(HostId(host)).to_owned();
        self.transcript.note(at, &name, what);
    }
}

impl Machine {
    fn next_timeout(&self) -> Option<Instant> {
        match self {
            Self::Engine(host) => host.next_timeout(),
            Self::Original(original) => original.next_timeout(),
            Self::Bare(bare) => bare.next_timeout(),
        }
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
    }
}
