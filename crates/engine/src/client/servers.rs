//! The servers of a client: how to dial them, what is known of them, and which one is chosen.
//!
//! A client with one server has no choice. The code here then ignores its connections.

mod addresses;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use quictun_flow::{ConnectionKey, FlowKey, Socket};

use super::choice::{Choice, Measurements};
use super::ladder::Ladder;
use super::slot::Slot;
use super::{Client, ResolveResult};
use crate::bonds::Bond;
use crate::carrier::quic::ClientCrypto;
use crate::carrier::tls::TlsClient;
use crate::config::{Prover, ServerPlace, ServerToDial};
use crate::connection::Connection;
use crate::event::ClientEvent;
use crate::loss::LossReason;
use crate::report::{CarrierKind, ChoiceReason, QuicState, ServerId, ServerReport};
use crate::traffic::Traffic;

/// Time between two judgements of the servers while nothing has happened. A worker's turns may be microseconds apart.
const CHOICE_INTERVAL: Duration = Duration::from_millis(50);

/// Time for which a measured bandwidth counts. Later, other flows may use the path.
const BANDWIDTH_KEPT: Duration = Duration::from_mins(1);

/// All servers of a client.
#[derive(Debug)]
pub(crate) struct Servers {
    entries: Vec<ServerEntry>,
    choice: Choice,
    reason: ChoiceReason,
    choose_at: Option<Instant>,
}

/// One server, and how to dial it.
struct ServerEntry {
    crypto: ClientCrypto,
    fallback: Option<ClientCrypto>,
    tls: TlsClient,
    ladder: Ladder,
    name: String,
    prover: Option<Prover>,
    place: ServerPlace,
    resolving: bool,
    /// Reason why the latest attempt or connection ended.
    failure: Option<LossReason>,
    flows_opened: u64,
    /// The addresses of the outbound proxy, if TLS over TCP leads through one.
    proxy: Option<ResolveResult>,
    /// The addresses that the server's name has resolved to.
    addresses: Vec<SocketAddr>,
    /// The round-trip time of the latest connection.
    rtt: Option<Duration>,
    /// Bytes per second that the path has delivered, and the time until which the value counts.
    bandwidth: Option<(u64, Instant)>,
}

/// How to dial a server.
pub(super) struct DialConfig<'a> {
    pub(super) quic: &'a ClientCrypto,
    pub(super) tls: &'a TlsClient,
    pub(super) name: &'a str,
    /// TCP port of the server, if it is another one than that of its addresses.
    pub(super) tls_port: Option<u16>,
}

impl Servers {
    pub(super) fn new(servers: &[ServerToDial]) -> Result<Self, LossReason> {
        let entries = servers.iter().map(ServerEntry::new);
        Ok(Self {
            entries: entries.collect::<Result<_, _>>()?,
            choice: Choice::default(),
            reason: ChoiceReason::FirstAnswer,
            choose_at: None,
        })
    }

    pub(crate) fn add(&mut self, server: &ServerToDial) -> Result<(), LossReason> {
        self.entries.push(ServerEntry::new(server)?);
        Ok(())
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = ServerId> + use<> {
        (0..self.entries.len()).map(ServerId)
    }

    /// Returns what is known of the carriers to a server.
    pub(super) fn ladder(&mut self, server: ServerId) -> Option<&mut Ladder> {
        Some(&mut self.get(server)?.ladder)
    }

    fn is_one(&self) -> bool {
        self.entries.len() == 1
    }

    /// Returns the place of a server at the moment, or `None` if there is no such server.
    pub(super) fn place(&self, server: ServerId) -> Option<ServerPlace> {
        Some(self.entries.get(server.0)?.place)
    }

    /// Replaces the place of a server, and returns the previous one. A new tenant clears the measurements of the old
    /// one.
    pub(super) fn set_place(
        &mut self,
        server: ServerId,
        place: ServerPlace,
    ) -> Option<ServerPlace> {
        let entry = self.get(server)?;
        let before = std::mem::replace(&mut entry.place, place);
        let is_another = before.tenant != place.tenant;
        if is_another {
            entry.resolving = false;
            entry.ladder.forget();
        }
        // The failure of a place without records was that of their look-up.
        if is_another || before.rank.is_none() != place.rank.is_none() {
            entry.failure = None;
            entry.bandwidth = None;
        }
        Some(before)
    }

    fn get(&mut self, server: ServerId) -> Option<&mut ServerEntry> {
        self.entries.get_mut(server.0)
    }

    /// Returns the server that new flows go to, once one has answered.
    pub(super) fn chosen(&self) -> Option<ServerId> {
        if self.is_one() {
            return Some(ServerId(0));
        }
        self.choice.chosen().map(ServerId)
    }

    /// Returns whether flows may use a connection of the chosen server. If there is no other server, flows need not
    /// wait until the server has admitted this client.
    pub(super) fn can_use(&self, connection: &Connection) -> bool {
        let usable = connection.is_usable() && !connection.for_transfers;
        usable && (self.is_one() || connection.is_ready())
    }

    pub(super) fn next_timeout(&self) -> Option<Instant> {
        let probes = self.entries.iter();
        let probes = probes.filter_map(|entry| entry.ladder.next_timeout());
        let times = probes.chain(self.choice.next_timeout());
        times.min()
    }

    pub(crate) fn set_identity(
        &mut self,
        server: ServerId,
        crypto: &Arc<rustls::ClientConfig>,
        fallback: Option<&Arc<rustls::ClientConfig>>,
        prover: Option<Prover>,
    ) -> Result<(), LossReason> {
        let fallback = fallback.map(ClientCrypto::new).transpose()?;
        let (tls, crypto) = (TlsClient::new(crypto), ClientCrypto::new(crypto)?);
        if let Some(entry) = self.get(server) {
            entry.tls = tls;
            (entry.crypto, entry.fallback, entry.prover) = (crypto, fallback, prover);
        }
        Ok(())
    }

    /// Returns the TLS configuration and name with which to dial the server. `fallback` selects the shorter
    /// `ClientHello`.
    pub(super) fn dial_config(&self, server: ServerId, fallback: bool) -> DialConfig<'_> {
        let entry = &self.entries[server.0];
        let shorter = entry.fallback.as_ref().filter(|_| fallback);
        DialConfig {
            quic: shorter.unwrap_or(&entry.crypto),
            tls: &entry.tls,
            name: &entry.name,
            tls_port: entry.place.tls_port,
        }
    }

    pub(super) fn prover(&self, server: ServerId) -> Option<&Prover> {
        self.entries.get(server.0)?.prover.as_ref()
    }

    pub(super) fn note_failure(&mut self, server: ServerId, reason: &LossReason) {
        if let Some(entry) = self.get(server) {
            entry.failure = Some(reason.clone());
        }
    }

    pub(super) fn note_opened(&mut self, server: ServerId) {
        if let Some(entry) = self.get(server) {
            entry.flows_opened += 1;
        }
    }

    fn measurements<S: Socket>(&mut self, now: Instant, traffic: &Traffic<S>) -> Vec<Measurements> {
        let mut measured = vec![Measurements::default(); self.entries.len()];
        let connections = traffic.connections.iter().map(|(_, connection)| connection);
        for connection in connections.filter(|connection| connection.is_ready()) {
            let server = connection.server.0;
            let (Some(entry), Some(known)) =
                (self.entries.get_mut(server), measured.get_mut(server))
            else {
                continue;
            };
            if !entry.place.wanted {
                continue;
            }
            let rtt = connection.path().rtt;
            let first = known.rtt.is_none();
            known.drains = connection.is_draining() && (first || known.drains);
            known.rtt = Some(known.rtt.map_or(rtt, |least| least.min(rtt)));
            entry.failure = None;
            if let Some(bandwidth) = connection.bandwidth_in_use() {
                entry.bandwidth = Some((bandwidth, now + BANDWIDTH_KEPT));
            }
        }
        for (entry, known) in self.entries.iter().zip(&mut measured) {
            let bandwidth = entry.bandwidth.filter(|&(_, until)| now < until);
            known.bandwidth = bandwidth.map(|(bandwidth, _)| bandwidth);
            known.rank = entry.place.rank;
            known.unlisted = !entry.place.wanted;
            known.no_answer_expected = known.unlisted || entry.failure.is_some();
        }
        leave_draining(&mut measured);
        measured
    }

    fn choose<S: Socket>(&mut self, now: Instant, traffic: &mut Traffic<S>) {
        if self.is_one() {
            return;
        }
        self.choose_at = Some(now + CHOICE_INTERVAL);
        let measured = self.measurements(now, traffic);
        if let Some(switch) = self.choice.judge(now, &measured) {
            self.reason = switch.reason;
            traffic.events.push(ClientEvent::Chosen {
                server: ServerId(switch.to),
                before: switch.from.map(ServerId),
                reason: switch.reason,
            });
        }
    }

    fn reports<S: Socket>(&self, now: Instant, traffic: &Traffic<S>) -> Vec<ServerReport> {
        let chosen = self.chosen();
        let report = |(index, entry): (usize, &ServerEntry)| {
            let server = ServerId(index);
            let of = |connection: &&Connection| connection.server == server;
            let connections = || {
                let all = traffic.connections.iter();
                all.map(|(_, connection)| connection).filter(of)
            };
            let ready = || connections().filter(|connection| connection.is_ready());
            let up = || connections().filter(|connection| connection.is_established());
            let answering = connections().filter(|connection| connection.is_answering());
            let mut carriers = ready().map(|connection| connection.carrier.kind());
            let by_quic = carriers.any(|kind| kind == CarrierKind::Quic);
            let (unready, ready_count) = (up().count() - answering.count(), ready().count());
            let bandwidth = entry.bandwidth.filter(|&(_, until)| now < until);
            ServerReport {
                server,
                chosen: (chosen == Some(server)).then_some(self.reason),
                ready: ready_count,
                unready,
                flows: connections()
                    .map(|connection| connection.streams.len())
                    .sum::<usize>()
                    + detached(traffic, server),
                flows_opened: entry.flows_opened,
                rtt: ready().map(|ready| ready.path().rtt).min(),
                bandwidth: bandwidth.map(|(bandwidth, _)| bandwidth),
                failure: entry.failure.clone().filter(|_| ready_count == 0),
                quic: match entry.ladder.state(now) {
                    // A connection that has outlived a change of the network passes the present one.
                    QuicState::Unknown if by_quic => QuicState::Works,
                    state => state,
                },
                probe_in: entry
                    .ladder
                    .next_timeout()
                    .map(|at| at.saturating_duration_since(now)),
                transfers: None,
                draining: up().next().is_some() && up().all(Connection::is_draining),
            }
        };
        self.entries.iter().enumerate().map(report).collect()
    }
}

/// Removes the measurements of servers that drain, if there is another server.
fn leave_draining(measured: &mut [Measurements]) {
    if measured.iter().any(|it| it.rtt.is_some() && !it.drains) {
        for it in measured.iter_mut().filter(|it| it.drains) {
            it.rtt = None;
        }
    }
}

/// Returns the number of a server's flows that wait for a connection.
fn detached<S: Socket>(traffic: &Traffic<S>, server: ServerId) -> usize {
    let bonds = traffic.bonds.iter().filter(|bond| bond.server == server);
    let flows = bonds.flat_map(Bond::flows);
    let waits = |key: &FlowKey| {
        let entry = traffic.flows.get(*key);
        entry.is_some_and(|entry| entry.detached().is_some())
    };
    flows.filter(waits).count()
}

impl ServerEntry {
    fn new(server: &ServerToDial) -> Result<Self, LossReason> {
        Ok(Self {
            crypto: ClientCrypto::new(&server.crypto)?,
            fallback: server
                .fallback
                .as_ref()
                .map(ClientCrypto::new)
                .transpose()?,
            tls: TlsClient::new(&server.crypto),
            ladder: Ladder::new(server.carrier),
            name: server.name.clone(),
            prover: server.prover.clone(),
            place: server.place,
            resolving: false,
            failure: None,
            flows_opened: 0,
            proxy: None,
            addresses: Vec::new(),
            rtt: None,
            bandwidth: None,
        })
    }
}

impl std::fmt::Debug for ServerEntry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerEntry")
            .field("name", &self.name)
            .field("failure", &self.failure)
            .finish_non_exhaustive()
    }
}

impl Client {
    /// Asks for the addresses of a server, unless a request is pending.
    /// Returns the state of all servers, in the order of the configuration.
    pub(crate) fn server_reports<S: Socket>(
        &self,
        now: Instant,
        traffic: &Traffic<S>,
    ) -> Vec<ServerReport> {
        let mut reports = self.servers.reports(now, traffic);
        for slot in &self.slots {
            if let Some(report) = reports.get_mut(slot.server.0) {
                report.transfers = report.transfers.or(slot.transfers.over_tls());
            }
        }
        reports
    }

    pub(super) fn want_addresses<S: Socket>(&mut self, traffic: &mut Traffic<S>, server: ServerId) {
        if let Some(entry) = self.servers.get(server)
            && !std::mem::replace(&mut entry.resolving, true)
        {
            let tenant = entry.place.tenant;
            let event = ClientEvent::Resolve { server, tenant };
            traffic.events.push(event);
        }
    }

    /// Chooses the server of new flows.
    pub(super) fn choose<S: Socket>(&mut self, now: Instant, traffic: &mut Traffic<S>) {
        self.servers.choose(now, traffic);
    }

    /// Chooses the server of new flows, unless that was done a moment ago, and places the flows that wait.
    pub(super) fn choose_if_due<S: Socket>(&mut self, now: Instant, traffic: &mut Traffic<S>) {
        let servers = &self.servers;
        let due = [servers.choose_at, servers.choice.next_timeout()];
        let due = due.into_iter().flatten().min();
        if servers.is_one() || due.is_some_and(|at| now < at) {
            return;
        }
        self.choose(now, traffic);
        self.place_waiting(now, traffic);
    }

    /// Handles a suspect path to a server: moves bonded flows to another connection, and opens flows that the server
    /// has not answered at another server, if one is ready.
    pub(super) fn handle_suspect<S: Socket>(
        &mut self,
        now: Instant,
        traffic: &mut Traffic<S>,
        key: ConnectionKey,
    ) {
        traffic.move_flows_away(now, key);
        self.ask_elsewhere(now, traffic, key);
    }

    /// Opens flows that a server has not answered at another server, if one is ready.
    pub(super) fn ask_elsewhere<S: Socket>(
        &mut self,
        now: Instant,
        traffic: &mut Traffic<S>,
        key: ConnectionKey,
    ) {
        let server = traffic.connections.get(key).map(|left| left.server);
        let other = |other: &Connection| {
            other.is_ready() && !other.is_draining() && Some(other.server) != server
        };
        let others = !self.servers.is_one() && traffic.connections.iter().any(|(_, it)| other(it));
        if others {
            self.reopen_unanswered(now, traffic, key, None);
        }
    }

    /// Returns whether flows have to wait until the server of a slot has admitted this client.
    pub(super) fn awaits_admission<S: Socket>(&self, traffic: &Traffic<S>, slot: &Slot) -> bool {
        let connection = slot.up().and_then(|key| traffic.connections.get(key));
        !self.servers.is_one() && connection.is_some_and(|connection| !connection.is_ready())
    }
}
