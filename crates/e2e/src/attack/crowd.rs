//! Thousands of hostile connections from many addresses, on one thread.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use bytes::BytesMut;
use quinn_proto::congestion::CubicConfig;
use quinn_proto::{
    ClientConfig, ConnectionHandle, DatagramEvent, Endpoint, EndpointConfig, TransportConfig,
    VarInt,
};
use quinn_udp::UdpSocketState;
use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};

use super::peer::{HostilePeer, PeerCounts, PeerState};
use super::session::{self, Tamper};

/// The number of batches that one connection may send before others have their turn.
const BATCHES: usize = 8;

/// The number of datagrams read from one socket before others have their turn.
const READS: usize = 256;

/// Unacknowledged bytes per connection. The limit keeps the attacker's own memory small with many connections.
const SEND_WINDOW: u64 = 512 * 1024;

/// The largest datagram sent, in bytes: the payload that an Ethernet frame can carry.
const MTU: u16 = 1452;

/// Datagrams per send call: together they must fit into one IP packet.
const SEGMENTS: usize = 65_000 / MTU as usize;

/// Selects which packets of the server the attacker processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProcessedPackets {
    /// The attacker processes all packets.
    #[default]
    All,
    /// The attacker processes only Retry packets.
    Retry,
    /// The attacker processes no packets.
    Nothing,
}

/// The behaviour of a crowd.
#[derive(Clone, Debug)]
pub struct CrowdBehaviour {
    /// The application protocol that the client offers (ALPN).
    pub protocol: &'static [u8],
    /// The number of source addresses.
    pub sources: usize,
    /// Changes made to packets before they are sent.
    pub tamper: Tamper,
    /// The server's packets that the attacker processes.
    pub hears: ProcessedPackets,
    /// True if streams are read beyond their first byte.
    pub reads: bool,
    /// Connection-level flow-control credit for the server, in bytes.
    pub credit: u64,
    /// Stream-level flow-control credit for the server, in bytes.
    pub stream_credit: u64,
    /// The length of the chain of certificates that the client shows, in bytes. With 0 it shows none.
    pub chain: usize,
}

impl Default for CrowdBehaviour {
    fn default() -> Self {
        Self {
            protocol: NATIVE,
            sources: 1,
            tamper: Tamper::default(),
            hears: ProcessedPackets::All,
            reads: true,
            credit: 1 << 20,
            stream_credit: 1 << 20,
            chain: 0,
        }
    }
}

/// The ALPN protocol `quictun/1`.
pub const NATIVE: &[u8] = b"quictun/1";

/// Hostile connections to one server.
#[derive(Debug)]
pub struct Crowd {
    server: SocketAddr,
    behaviour: CrowdBehaviour,
    /// The server's initial connection-level credit in bytes (`initial_max_data`); 0 until it is announced.
    granted: Arc<AtomicU64>,
    endpoint: Endpoint,
    config: ClientConfig,
    sources: Vec<SourceSocket>,
    epoll: OwnedFd,
    peers: Vec<HostilePeer>,
    by_handle: BTreeMap<usize, usize>,
    timers: BTreeSet<(Instant, usize)>,
    dirty: Vec<usize>,
    buffer: Vec<u8>,
}

#[derive(Debug)]
struct SourceSocket {
    socket: UdpSocket,
    state: UdpSocketState,
}

impl Crowd {
    /// Opens the sockets, without any connection.
    ///
    /// # Errors
    ///
    /// Fails if a socket cannot be created or the TLS configuration is invalid.
    pub fn new(server: SocketAddr, behaviour: CrowdBehaviour) -> Result<Self> {
        let granted = Arc::<AtomicU64>::default();
        let tamper = behaviour.tamper.clone();
        let chain = behaviour.chain;
        let crypto = session::client_config(behaviour.protocol, chain, tamper, granted.clone())?;
        let mut transport = TransportConfig::default();
        let credit = VarInt::from_u64(behaviour.credit)?;
        let mut congestion = CubicConfig::default();
        // A hostile client skips slow start.
        congestion.initial_window(SEND_WINDOW);
        transport
            .initial_mtu(MTU)
            .mtu_discovery_config(None)
            .send_window(SEND_WINDOW)
            .stream_receive_window(VarInt::from_u64(behaviour.stream_credit)?)
            .receive_window(credit)
            .max_concurrent_bidi_streams(VarInt::from_u32(0))
            .max_concurrent_uni_streams(VarInt::from_u32(0))
            .max_idle_timeout(None)
            .congestion_controller_factory(Arc::new(congestion));
        let mut config = ClientConfig::new(crypto);
        config.transport_config(Arc::new(transport));
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let mut sources = Vec::new();
        for number in 0..behaviour.sources {
            let source = SourceSocket::new(source_address(number))?;
            let data = EventData::new_u64(number as u64);
            epoll::add(&epoll, &source.socket, data, EventFlags::IN)?;
            sources.push(source);
        }
        Ok(Self {
            server,
            behaviour,
            granted,
            endpoint: Endpoint::new(Arc::new(EndpointConfig::default()), None, false, None),
            config,
            sources,
            epoll,
            peers: Vec::new(),
            by_handle: BTreeMap::new(),
            timers: BTreeSet::new(),
            dirty: Vec::new(),
            buffer: vec![0; 64 * 1024],
        })
    }

    /// Starts one more connection, from the next source address, and returns its number.
    ///
    /// # Errors
    ///
    /// Fails if the QUIC library refuses the connection.
    pub fn connect(&mut self) -> Result<usize> {
        let number = self.peers.len();
        let config = self.config.clone();
        let (handle, connection) =
            self.endpoint
                .connect(Instant::now(), config, self.server, "attacked.test")?;
        let source = number % self.sources.len();
        self.peers.push(HostilePeer::new(
            connection,
            handle,
            source,
            self.behaviour.reads,
        ));
        self.by_handle.insert(handle.0, number);
        self.dirty.push(number);
        Ok(number)
    }

    /// Returns a connection, and marks it to be served in the next turn.
    pub fn peer(&mut self, number: usize) -> &mut HostilePeer {
        mark(&mut self.peers[number], number, &mut self.dirty);
        &mut self.peers[number]
    }

    /// Stops serving a connection, as if its process had been killed.
    pub fn abandon(&mut self, number: usize) {
        let peer = &mut self.peers[number];
        self.by_handle.remove(&peer.handle.0);
        if let Some(at) = peer.timer.take() {
            self.timers.remove(&(at, number));
        }
        self.dirty.retain(|&other| other != number);
        // A connection that counts as dirty is not marked again.
        peer.dirty = true;
    }

    /// Returns all connections of the crowd.
    pub fn peers(&self) -> &[HostilePeer] {
        &self.peers
    }

    /// Returns the server's initial connection-level credit in bytes; 0 if the server has not announced it yet.
    pub fn granted(&self) -> u64 {
        self.granted.load(Ordering::Relaxed)
    }

    /// Returns the number of established connections.
    pub fn connected(&self) -> usize {
        let connected = |peer: &&HostilePeer| *peer.phase() == PeerState::Connected;
        self.peers.iter().filter(connected).count()
    }

    /// Returns the reasons for which connections were lost, with the number of connections for each.
    pub fn losses(&self) -> BTreeMap<&str, usize> {
        let mut losses = BTreeMap::new();
        for peer in &self.peers {
            if let PeerState::Lost(reason) = peer.phase() {
                *losses.entry(reason.as_str()).or_default() += 1;
            }
        }
        losses
    }

    /// Returns the counts of all connections, summed.
    pub fn counts(&self) -> PeerCounts {
        let mut sum = PeerCounts::default();
        for counts in self.peers.iter().map(HostilePeer::counts) {
            sum.answered += counts.answered;
            sum.refused += counts.refused;
            sum.poured += counts.poured;
            sum.received += counts.received;
        }
        sum
    }

    /// Handles due timers and pending output, then waits at most `timeout` for datagrams.
    ///
    /// # Errors
    ///
    /// Fails if sending, receiving or polling fails.
    pub fn turn(&mut self, timeout: Duration) -> Result<()> {
        let now = Instant::now();
        while let Some(&(at, number)) = self.timers.first() {
            if at > now {
                break;
            }
            self.timers.pop_first();
            self.peers[number].timer = None;
            self.peers[number].connection.handle_timeout(now);
            mark(&mut self.peers[number], number, &mut self.dirty);
        }
        for number in std::mem::take(&mut self.dirty) {
            self.peers[number].dirty = false;
            self.serve(number, now)?;
        }
        let next = self.timers.first().map(|(at, _)| *at);
        let until = next.map_or(timeout, |at| at.saturating_duration_since(now));
        let wait = if self.dirty.is_empty() {
            until.min(timeout)
        } else {
            Duration::ZERO
        };
        self.receive(wait)
    }

    /// Handles the events of one connection, writes to its streams, and sends its packets.
    fn serve(&mut self, number: usize, now: Instant) -> Result<()> {
        let peer = &mut self.peers[number];
        while let Some(event) = peer.connection.poll_endpoint_events() {
            if let Some(answer) = self.endpoint.handle_event(peer.handle, event) {
                peer.connection.handle_event(answer);
            }
        }
        peer.handle_events();
        let mut more = peer.pour_ready();
        let source = &self.sources[peer.source];
        let segments = source.state.max_gso_segments().min(SEGMENTS);
        let mut buffer = Vec::new();
        for batch in 0..=BATCHES {
            if batch == BATCHES {
                more = true;
                break;
            }
            buffer.clear();
            let Some(transmit) = peer.connection.poll_transmit(now, segments, &mut buffer) else {
                break;
            };
            source.send(&transmit, &buffer[..transmit.size])?;
        }
        if let Some(at) = peer.timer.take() {
            self.timers.remove(&(at, number));
        }
        peer.timer = peer.connection.poll_timeout();
        if let Some(at) = peer.timer {
            self.timers.insert((at, number));
        }
        if more {
            mark(peer, number, &mut self.dirty);
        }
        Ok(())
    }

    fn receive(&mut self, wait: Duration) -> Result<()> {
        let mut events = Vec::with_capacity(256);
        let wait = Timespec::try_from(wait)?;
        match epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&wait)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        for event in events {
            let number = usize::try_from(event.data.u64())?;
            for _ in 0..READS {
                let (read, from) = match self.sources[number].socket.recv_from(&mut self.buffer) {
                    Ok(found) => found,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    // The server may have ended; the thread that watches it reports that.
                    Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => break,
                    Err(error) => return Err(error).context("receiving"),
                };
                if self.behaviour.hears.takes(self.buffer[0]) {
                    self.handle(from, BytesMut::from(&self.buffer[..read]));
                }
            }
        }
        Ok(())
    }

    fn handle(&mut self, from: SocketAddr, datagram: BytesMut) {
        let mut response = Vec::new();
        let now = Instant::now();
        let event = self
            .endpoint
            .handle(now, from, None, None, datagram, &mut response);
        match event {
            Some(DatagramEvent::ConnectionEvent(ConnectionHandle(handle), event)) => {
                if let Some(&number) = self.by_handle.get(&handle) {
                    self.peers[number].connection.handle_event(event);
                    mark(&mut self.peers[number], number, &mut self.dirty);
                }
            }
            Some(DatagramEvent::NewConnection(incoming)) => self.endpoint.ignore(incoming),
            // A stateless response for a connection that is gone can be dropped.
            Some(DatagramEvent::Response(_)) | None => {}
        }
    }
}

fn mark(peer: &mut HostilePeer, number: usize, dirty: &mut Vec<usize>) {
    if !std::mem::replace(&mut peer.dirty, true) {
        dirty.push(number);
    }
}

impl ProcessedPackets {
    /// Returns true if a datagram with this first byte is processed.
    fn takes(self, first: u8) -> bool {
        match self {
            Self::All => true,
            // Long header, type 3 (RFC 9000 section 17.2.5).
            Self::Retry => first & 0xb0 == 0xb0,
            Self::Nothing => false,
        }
    }
}

impl SourceSocket {
    fn new(address: Ipv4Addr) -> Result<Self> {
        let socket = UdpSocket::bind((address, 0)).with_context(|| format!("binding {address}"))?;
        socket.set_nonblocking(true)?;
        let state = UdpSocketState::new((&socket).into())?;
        Ok(Self { socket, state })
    }

    /// Sends a datagram or a batch. Drops it if the socket's buffer is full.
    fn send(&self, transmit: &quinn_proto::Transmit, contents: &[u8]) -> Result<()> {
        let transmit = quinn_udp::Transmit {
            destination: transmit.destination,
            ecn: None,
            contents,
            segment_size: transmit.segment_size,
            src_ip: None::<IpAddr>,
        };
        match self.state.try_send((&self.socket).into(), &transmit) {
            Err(error)
                if !matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::ConnectionRefused
                ) =>
            {
                Err(error).context("sending")
            }
            _ => Ok(()),
        }
    }
}

/// Returns a separate address of the loopback device for each of the first 8 million sources. 127.0.0.0/16 stays free
/// for other uses.
pub(super) fn source_address(number: usize) -> Ipv4Addr {
    let number = u32::try_from(number).unwrap_or(0) % (1 << 23);
    Ipv4Addr::from_bits(Ipv4Addr::new(127, 1, 0, 1).to_bits() + number)
}
