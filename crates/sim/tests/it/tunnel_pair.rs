//! A client and a server joined by one link, as most tests need them.

use std::time::Duration;

use quictun_sim::engine::{
    ClientRole, EngineConfig, EngineEvent, Event, FlowResources, FlowSummary, ServerRole,
};
use quictun_sim::{AppId, HostId, IncomingState, LinkConfig, Network, Queue, Seed, config};
use quictun_wire::listening::{HOLDER_LEN, Listen};
use quictun_wire::open::Open;
use quictun_wire::token;

pub(crate) const MS: Duration = Duration::from_millis(1);
pub(crate) const SECOND: Duration = Duration::from_secs(1);

/// Protocols that a client may speak with a simulated server.
pub(crate) const PROTOCOLS: [&[&[u8]]; 2] = [config::NATIVE, config::COMPAT];

/// A network of one client and one server.
pub(crate) struct TunnelPair {
    pub(crate) network: Network,
    pub(crate) client: HostId,
    pub(crate) server: HostId,
}

/// Returns a client's request for a listener of its reverse forward `id`.
pub(crate) fn listen(id: u64) -> Listen {
    Listen {
        id,
        wait: false,
        holder: [1; HOLDER_LEN],
        address: "tcp:127.0.0.1:0".to_owned(),
    }
}

/// Returns a link without faults whose round-trip time is `round_trip`.
pub(crate) fn wire(round_trip: Duration) -> LinkConfig {
    LinkConfig {
        delay: round_trip / 2,
        mtu: 1500,
        ..LinkConfig::default()
    }
}

/// Returns a link of `rate` bytes per second with a queue of one bandwidth-delay product, at least 64 KiB.
pub(crate) fn limited(rate: u64, round_trip: Duration) -> LinkConfig {
    let mut link = wire(round_trip);
    link.rate = Some(rate);
    link.queue = Queue::Bytes(link.bandwidth_delay(round_trip).max(64 * 1024));
    link
}

impl TunnelPair {
    /// Creates a pair with the same link in both directions.
    pub(crate) fn new(seed: Seed, protocols: &[&[u8]], link: LinkConfig) -> Self {
        let value = seed.value();
        Self::with(
            seed,
            config::client_speaking(protocols, value),
            config::server(value),
            link.clone(),
            link,
        )
    }

    pub(crate) fn with(
        seed: Seed,
        client: EngineConfig<ClientRole>,
        server: EngineConfig<ServerRole>,
        up: LinkConfig,
        down: LinkConfig,
    ) -> Self {
        let mut network = Network::new(seed);
        let server = network.add_server("server", server);
        let client = network.add_client("client", client, server);
        network.link(client, server, up, down);
        Self {
            network,
            client,
            server,
        }
    }

    /// Waits until the connection is up.
    pub(crate) fn connect(&mut self) {
        let client = self.client;
        self.network
            .run_until(30 * SECOND, |network| network.client(client).is_connected());
        self.network.run_for(SECOND);
    }

    /// Lets the client ask for a listener and waits until the server listens.
    pub(crate) fn listen(&mut self, id: u64) {
        let listen = listen(id);
        let asked = self.network.command(self.client, |engine, _| {
            let connection = engine.connection_reports()[0].id;
            engine.client().listen(connection, listen)
        });
        assert!(asked, "the server listens for clients");
        self.network.run_for(SECOND);
    }

    /// Returns the summaries of the flows that a host has closed.
    pub(crate) fn closed(&mut self, host: HostId) -> Vec<FlowSummary> {
        let events = self.network.host(host).events().iter();
        let summaries = events.filter_map(|(_, event)| match event {
            EngineEvent::Shared(Event::FlowClosed(summary)) => Some(summary.clone()),
            _ => None,
        });
        summaries.collect()
    }

    /// Returns the number of events of a host for which `kind` is true.
    pub(crate) fn count(&mut self, host: HostId, kind: impl Fn(&EngineEvent) -> bool) -> usize {
        let events = self.network.host(host).events().iter();
        events.filter(|(_, event)| kind(event)).count()
    }

    /// Returns how often flows have moved to another connection, as the client and the server report it.
    pub(crate) fn moves(&mut self) -> [usize; 2] {
        let moved = |event: &EngineEvent| matches!(event, EngineEvent::Shared(Event::Moved { .. }));
        [self.client, self.server].map(|host| self.count(host, moved))
    }

    /// Runs until the application is done. Checks that it has received `bytes` bytes and a FIN, and that nothing of its
    /// flow is left.
    pub(crate) fn finish(&mut self, app: AppId, bytes: u64, within: Duration) {
        self.network
            .run_until(within, |network| network.outcome(app).is_over());
        let outcome = self.network.outcome(app);
        assert_eq!(outcome.incoming, IncomingState::Fin, "{outcome:?}");
        assert_eq!(outcome.received, bytes);
        self.check_nothing_left();
    }

    /// Panics if anything of a flow is left on either side after 15 s, by which time the last dial must have ended.
    pub(crate) fn check_nothing_left(&mut self) {
        self.network.run_for(15 * SECOND);
        for host in [self.client, self.server] {
            let residue = self.network.host(host).engine().flow_resources();
            let name = self.network.name(host).to_owned();
            assert_eq!(residue, FlowResources::default(), "left on the {name}");
        }
    }
}

/// Returns the bytes with which a client asks for `target`.
pub(crate) fn request(protocols: &[&[u8]], target: &str) -> Vec<u8> {
    if protocols == config::COMPAT {
        return token::pack(target).expect("a short token").to_vec();
    }
    let open = Open {
        target: target.to_owned(),
        ..Open::default()
    };
    let mut bytes = Vec::new();
    open.encode(&mut bytes).expect("a short target");
    bytes
}
