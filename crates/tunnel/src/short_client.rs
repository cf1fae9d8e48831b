//! A client's engine and its sockets in the calling thread, for a program that makes one connection and ends.
//!
//! In each turn of a loop, call [`ShortClient::drive`], take the events, and then [`ShortClient::wait`].

use std::io;
use std::net::ToSocketAddrs as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use quictun_engine::report::ServerId;
use quictun_engine::{
    Client, ClientEngine, ClientEvent, ClientRole, Engine, EngineConfig, Joiner, ServerToDial,
    Transport,
};
use quictun_io::EnginePort;
use quictun_io::poller::{Key, Poller, ReadyEvent};
use quictun_io::udp_port::{UdpPort, path_mtu};

use crate::app_socket::AppSocket;
use crate::blocking_lookup::resolve;
use crate::carrier_dials::CarrierDials;
use crate::client::any_socket;
use crate::launch;
use crate::outbound_proxy::{OpenProxy, ProxiedServer};
use crate::role::ClientContext;
use crate::settings::HostPort;

/// Makes an engine for one connection to `server`. The connection carries no flows.
pub(crate) fn engine(
    server: ServerToDial,
    joiner: Option<Joiner>,
) -> anyhow::Result<ClientEngine<AppSocket>> {
    let config = EngineConfig {
        role: ClientRole {
            servers: vec![server],
            connections: 1,
            joiner,
            reverse: false,
            wait_timeout: Duration::ZERO,
            bond_ttl: Duration::ZERO,
            compat_streams: 1,
            surroundings: quictun_engine::Surroundings::default(),
        },
        transport: Transport::new(path_mtu(None)),
        worker: 0,
        seed: launch::random()?,
        reset_key: launch::random()?,
    };
    Ok(Engine::client(config)?)
}

/// Size of the UDP socket's buffers, bytes. A handshake and one frame would also fit the system's default.
const BUFFER: usize = 256 << 10;

pub(crate) struct ShortClient {
    port: EnginePort<AppSocket, Client>,
    poller: Poller,
    carriers: CarrierDials,
    ready: Vec<ReadyEvent>,
    answered: bool,
    /// True if a TCP connection was dialled in this turn, so that the engine may have work.
    has_dialled: bool,
}

impl ShortClient {
    /// Opens the sockets for a server at `host`. TLS over TCP leads through the proxy, if there is one.
    pub(crate) fn new(
        host: &str,
        engine: ClientEngine<AppSocket>,
        proxy: Option<Arc<OpenProxy>>,
    ) -> io::Result<Self> {
        let udp = UdpPort::new(any_socket(&[host].into_iter())?, BUFFER, false)?;
        let poller = Poller::new()?;
        poller.add_input(&udp, Key::Udp)?;
        Ok(Self {
            port: EnginePort::new(engine, udp),
            poller,
            carriers: CarrierDials::new(None, None, proxy),
            ready: Vec::new(),
            answered: false,
            has_dialled: false,
        })
    }

    pub(crate) fn engine(&mut self) -> &mut ClientEngine<AppSocket> {
        &mut self.port.engine
    }

    /// Returns whether a datagram has arrived or a TCP connection was made.
    pub(crate) fn is_answered(&self) -> bool {
        self.answered
    }

    /// Sends the data that is due. Returns whether there is more.
    pub(crate) fn drive(&mut self) -> bool {
        self.has_dialled = false;
        self.port.engine.handle_timeout(Instant::now());
        self.port.transmit()
    }

    /// Returns the engine's next event. Dials TCP connections for the engine.
    pub(crate) fn poll_event(&mut self) -> Option<ClientEvent> {
        loop {
            match self.port.engine.poll_event()? {
                ClientEvent::DialCarrier {
                    connection,
                    server,
                    remote,
                    through_proxy,
                } => {
                    self.has_dialled = true;
                    let to = through_proxy.then_some(server);
                    let (carriers, mut cx) = self.context();
                    carriers.dial(&mut cx, connection, remote, to);
                }
                event => return Some(event),
            }
        }
    }

    /// Waits until something arrives, the engine has work, or `until` has passed, and passes arrivals to the engine.
    pub(crate) fn wait(&mut self, until: Instant) -> io::Result<()> {
        let now = Instant::now();
        let timeout = self.port.engine.next_timeout();
        let own = self.carriers.next_timeout();
        let until = timeout.into_iter().chain(own).fold(until, Instant::min);
        let until = if self.has_dialled { now } else { until };
        let plan = self.port.wait_plan(now);
        self.poller.wait(Some(until), plan, &mut self.ready)?;
        for ready in std::mem::take(&mut self.ready) {
            if let Key::Carrier(connection) = ready.key {
                self.answered |= !ready.failed;
                let (carriers, mut cx) = self.context();
                carriers.handle_ready(&mut cx, connection, ready);
            }
        }
        let (carriers, mut cx) = self.context();
        carriers.handle_timeout(&mut cx);
        let answered = &mut self.answered;
        self.port.receive(|datagram| {
            *answered = true;
            Some(datagram)
        });
        Ok(())
    }

    /// Looks up the proxy's addresses, which takes at most `limit`, and sets the way to `target` through it.
    pub(crate) fn go_through_proxy(
        &mut self,
        proxy: &OpenProxy,
        server: ServerId,
        target: HostPort,
        limit: Duration,
    ) {
        let lookup = |host: &str, port| (host, port).to_socket_addrs();
        let resolved = resolve(proxy.at(), limit, lookup);
        let addresses = resolved.map_err(|error| proxy.unresolved(&error));
        let way = ProxiedServer { target, addresses };
        let (carriers, mut cx) = self.context();
        carriers.set_way(&mut cx, server, Some(way));
    }

    /// Closes the connection, so that the server knows of its end.
    pub(crate) fn close(&mut self) {
        self.port.engine.close(Instant::now());
        self.port.transmit();
    }

    fn context(&mut self) -> (&mut CarrierDials, ClientContext<'_>) {
        let cx = ClientContext {
            now: Instant::now(),
            engine: &mut self.port.engine,
            poller: &self.poller,
            udp: &self.port.udp,
        };
        (&mut self.carriers, cx)
    }
}
