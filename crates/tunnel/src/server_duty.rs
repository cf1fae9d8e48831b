//! What a server's worker does: it judges requests and dials targets.

pub(crate) mod again;

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use quictun_engine::report::Protocol;
use quictun_engine::{ConnectionId, Event, Opened};
use quictun_wire::code::{CloseCode, FlowCode};
use quictun_wire::target::Target;
use rustls::pki_types::CertificateDer;
use tokio::sync::mpsc::Sender;
use tracing::{debug, info, warn};

use crate::access::{Denied, Peer, Policy, dialled_as};
use crate::congestion_log::log_congestion;
use crate::control::Request;
use crate::descriptors::Descriptors;
use crate::dial::{Dialed, Dials, dial_unix};
use crate::flow_log::log_closed;
use crate::lookups::Lookups;
use crate::mailbox::Message;
use crate::poller::{Key, Ready};
use crate::reload::Rules;
use crate::settings::TokenParser;
use crate::shares::Holder;
use crate::token_source::parse_token;
use crate::worker::{Duty, Io};
use again::Leaving;

/// A server's worker.
#[derive(Debug)]
pub(crate) struct ServerDuty {
    pub(crate) index: usize,
    pub(crate) policy: Arc<Policy>,
    pub(crate) token_parser: TokenParser,
    pub(crate) dial_timeout: Duration,
    pub(crate) control: Sender<Request>,
    pub(crate) dials: Dials,
    /// Who is at the other end of each connection.
    pub(crate) peers: HashMap<ConnectionId, Peer>,
    pub(crate) leaving: Leaving,
    pub(crate) lookups: Lookups,
    pub(crate) descriptors: Descriptors,
}

impl Duty for ServerDuty {
    fn start(&mut self, _io: &mut Io<'_>) -> io::Result<()> {
        Ok(())
    }

    fn handle_event(&mut self, io: &mut Io<'_>, event: Event) {
        match event {
            Event::Connected {
                connection,
                remote,
                protocol,
                certificates,
            } => {
                let shown = certificates.as_deref();
                self.handle_connected(io, connection, remote, protocol, shown);
            }
            Event::Hello {
                connection,
                remote,
                proof,
            } => self.handle_hello(io, connection, remote, proof),
            Event::Unproven { remote, .. } => {
                // A flood of strangers must not fill the log.
                debug!(target: "quictun", { "Client-Endpoint-Addr" = %remote }, "client endpoint refused: it did not say who it is in time");
            }
            Event::Open(opened) => self.handle_open(io, &opened),
            Event::Established { flow, stream_id } => {
                info!(target: "quictun", { "Stream-ID" = stream_id, flow = flow.0 }, "Handshake successful");
                info!(target: "quictun", { "Stream-ID" = stream_id }, "Tunnel established successful");
            }
            Event::Congestion {
                connection,
                remote,
                controller,
                limit,
            } => log_congestion(connection.0, remote, controller, limit),
            Event::FlowClosed(summary) => {
                log_closed(&summary);
                self.leaving.handle_closed(&summary);
                self.descriptors.close(summary.flow);
                self.dials.cancel(summary.flow);
                self.lookups.forget(summary.flow);
            }
            Event::HandshakeFailed { remote, reason } => {
                debug!(target: "quictun", { "Client-Endpoint-Addr" = %remote, %reason }, "a client's handshake failed");
            }
            Event::Disconnected {
                connection,
                remote,
                reason,
                flows,
                salvaged,
            } => {
                if let Some(peer) = self.peers.remove(&connection) {
                    self.leaving.add(connection, peer, salvaged);
                }
                if salvaged > 0 {
                    info!(target: "quictun", { "Client-Endpoint-Addr" = %remote, flows = salvaged }, "client endpoint gone: what its flows had received whole is still delivered");
                }
                if flows == 0 {
                    info!(target: "quictun", { "Client-Endpoint-Addr" = %remote, %reason }, "client endpoint gone");
                } else {
                    warn!(target: "quictun", { "Client-Endpoint-Addr" = %remote, %reason, flows }, "client endpoint lost: its tunnels were reset");
                }
            }
            Event::Unresponsive { remote, .. } => {
                warn!(target: "quictun", { "Client-Endpoint-Addr" = %remote }, "client endpoint does not answer");
            }
            Event::Responsive { remote, .. } => {
                info!(target: "quictun", { "Client-Endpoint-Addr" = %remote }, "client endpoint answers again");
            }
            Event::Migrated { from, to, .. } => {
                info!(target: "quictun", %from, %to, "client endpoint changed its address");
            }
            _ => {}
        }
    }

    fn handle_ready(&mut self, io: &mut Io<'_>, ready: Ready) {
        if let Key::Dial(key) = ready.key {
            let dialed = self.dials.handle_ready(io.now, io.poller, key);
            answer(io, dialed);
        }
    }

    fn handle_message(&mut self, io: &mut Io<'_>, message: Message) {
        if let Message::Rules(change) = message {
            let Rules::Server(rules) = &change.rules else {
                return;
            };
            let ended = self.apply(io, rules);
            return change.done(ended);
        }
        if let Message::TargetResolved { flow, result } = message {
            let asked = self.lookups.answered(flow);
            let result = result.and_then(|addresses| {
                let (peer, target) = asked.ok_or(FlowCode::Internal)?;
                self.permitted(&peer, &target, addresses)
            });
            let dialed = self.dials.handle_resolved(io.now, io.poller, flow, result);
            answer(io, dialed);
        }
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.dials.next_timeout()
    }

    fn handle_timeout(&mut self, io: &mut Io<'_>) {
        while let Some(dialed) = self.dials.handle_timeout(io.now, io.poller) {
            answer(io, Some(dialed));
        }
    }

    fn stop_accepting(&mut self, _io: &mut Io<'_>) {}

    fn is_busy(&self) -> bool {
        false
    }
}

impl ServerDuty {
    fn handle_connected(
        &mut self,
        io: &mut Io<'_>,
        connection: ConnectionId,
        remote: SocketAddr,
        protocol: Protocol,
        certificates: Option<&[CertificateDer<'static>]>,
    ) {
        let peer = self.policy.identify(certificates);
        if peer == Peer::Unknown {
            // It may prove to know a secret, in the protocol that has a place for that.
            let may_prove = self.policy.accepts_proofs() && protocol == Protocol::Native;
            if !may_prove {
                warn!(target: "quictun", { "Client-Endpoint-Addr" = %remote }, "client endpoint refused: it has none of the keys in the configuration");
                io.engine
                    .close_connection(io.now, connection, CloseCode::NotAuthorized);
            }
            return;
        }
        self.welcome(io, connection, remote, peer);
    }

    /// The client on a connection is known, or need not be.
    fn welcome(
        &mut self,
        io: &mut Io<'_>,
        connection: ConnectionId,
        remote: SocketAddr,
        peer: Peer,
    ) {
        info!(target: "quictun", { "Client-Endpoint-Addr" = %remote, client = name_of(&peer) }, "A new client endpoint connect request accepted.");
        if let Peer::Named(client) = &peer {
            io.engine.name_peer(connection, client.name().to_owned());
        }
        self.peers.insert(connection, peer);
        io.engine.admit(io.now, connection);
    }

    /// An unknown client says who it is (PROTOCOL AUTH-4).
    fn handle_hello(
        &mut self,
        io: &mut Io<'_>,
        connection: ConnectionId,
        remote: SocketAddr,
        proof: Option<[u8; 32]>,
    ) {
        if !io.engine.awaits_identity(connection) {
            // Its certificate has told, in the same turn.
            return;
        }
        let exporter = io.engine.exporter(connection);
        let known = exporter
            .zip(proof)
            .and_then(|(exporter, proof)| self.policy.identify_by_proof(&exporter, &proof));
        if let Some(client) = known {
            return self.welcome(io, connection, remote, Peer::Named(client));
        }
        let cause = if proof.is_some() {
            "its secret is none of those in the configuration"
        } else {
            "it has neither a key nor a secret of the configuration"
        };
        warn!(target: "quictun", { "Client-Endpoint-Addr" = %remote, cause }, "client endpoint refused");
        io.engine
            .close_connection(io.now, connection, CloseCode::NotAuthorized);
    }

    fn handle_open(&mut self, io: &mut Io<'_>, opened: &Opened) {
        info!(target: "quictun", { "Client-Endpoint-Addr" = %opened.remote, "Stream-ID" = opened.stream_id }, "Starting handshake with client endpoint");
        let target = match parse_token(self.token_parser, &opened.token) {
            Ok(target) => target,
            Err(cause) => {
                warn!(target: "quictun", { "Client-Endpoint-Addr" = %opened.remote, %cause }, "Failed to parse token");
                return refuse(io, opened, cause.code());
            }
        };
        let peer = self.peer_of(io, opened);
        if let Err(denied) = self.policy.may_reach(&peer, &target) {
            warn!(target: "quictun", { "Client-Endpoint-Addr" = %opened.remote, client = name_of(&peer), %denied }, "a tunnel was refused");
            return refuse(io, opened, code_of(&denied));
        }
        let holder = holder_of(&peer, opened.remote);
        if !self.descriptors.open(opened.flow, &holder) {
            warn!(target: "quictun", { "Client-Endpoint-Addr" = %opened.remote, client = name_of(&peer) }, "a tunnel was refused: its client has its share of the descriptors; raise the limit (ulimit -n, LimitNOFILE=)");
            return refuse(io, opened, FlowCode::Limit);
        }
        info!(target: "quictun", { "Server-App-Addr" = %target }, "starting connect to server app");
        self.dial(io, opened, peer, &holder, target);
    }

    fn dial(
        &mut self,
        io: &mut Io<'_>,
        opened: &Opened,
        peer: Peer,
        holder: &Holder,
        target: Target,
    ) {
        let (host, port, family) = match &target {
            Target::Unix { path } => {
                let result = dial_unix(path).and_then(|socket| {
                    io.poller
                        .add_flow(&socket, Key::Flow(opened.flow))
                        .map_err(|_| FlowCode::Limit)?;
                    Ok((socket, target.to_string()))
                });
                return answer(
                    io,
                    Some(Dialed {
                        flow: opened.flow,
                        result,
                    }),
                );
            }
            Target::Tcp { family, host, port } => (host.clone(), *port, *family),
        };
        let deadline = io.now + self.dial_timeout;
        if !self.dials.resolve(opened.flow, holder, deadline) {
            warn!(target: "quictun", { "Client-Endpoint-Addr" = %opened.remote, client = name_of(&peer) }, "a tunnel was refused: too many targets are being dialled for its client");
            return refuse(io, opened, FlowCode::Limit);
        }
        if let Some(ip) = target.ip_literal() {
            // Judged by `may_reach` already.
            let addresses = Ok(vec![dialled_as(SocketAddr::new(ip, port))]);
            let dialed = self
                .dials
                .handle_resolved(io.now, io.poller, opened.flow, addresses);
            return answer(io, dialed);
        }
        let name = name_of(&peer).to_owned();
        let Some(wanted) = self.lookups.ask(opened.flow, holder, peer, target) else {
            warn!(target: "quictun", { "Client-Endpoint-Addr" = %opened.remote, client = name }, "a tunnel was refused: too many names are being looked up for its client");
            // The dial ends with the flow.
            return refuse(io, opened, FlowCode::Limit);
        };
        let request = Request::ResolveTarget {
            worker: self.index,
            flow: opened.flow,
            holder: holder.clone(),
            wanted,
            host,
            port,
            family,
        };
        if self.control.try_send(request).is_err() {
            // The queue has room for all look-ups that have a place: the control plane is gone.
            self.lookups.answered(opened.flow);
            refuse(io, opened, FlowCode::Limit);
        }
    }

    /// Who asks: known by certificate since the handshake, or by the proof in this request.
    fn peer_of(&mut self, io: &mut Io<'_>, opened: &Opened) -> Peer {
        let known = self
            .peers
            .get(&opened.connection)
            .cloned()
            .unwrap_or(Peer::Unknown);
        let (Peer::Unknown, Some(proof)) = (&known, &opened.proof) else {
            return known;
        };
        let Some(exporter) = io.engine.exporter(opened.connection) else {
            return known;
        };
        match self.policy.identify_by_proof(&exporter, proof) {
            Some(client) => {
                let peer = Peer::Named(client);
                self.welcome(io, opened.connection, opened.remote, peer.clone());
                peer
            }
            None => known,
        }
    }

    /// Those of a name's addresses that the peer may be connected to, as they are dialled.
    fn permitted(
        &self,
        peer: &Peer,
        target: &Target,
        addresses: Vec<SocketAddr>,
    ) -> Result<Vec<SocketAddr>, FlowCode> {
        let mut denied = None;
        let permitted: Vec<SocketAddr> = addresses
            .into_iter()
            .map(dialled_as)
            .filter(
                |address| match self.policy.may_reach_addr(peer, target, address.ip()) {
                    Ok(()) => true,
                    Err(why) => {
                        denied = Some(why);
                        false
                    }
                },
            )
            .collect();
        match denied {
            Some(denied) if permitted.is_empty() => {
                warn!(target: "quictun", client = name_of(peer), %denied, "a tunnel was refused");
                Err(code_of(&denied))
            }
            _ => Ok(permitted),
        }
    }
}

/// Tells the engine how a dial ended.
fn answer(io: &mut Io<'_>, dialed: Option<Dialed>) {
    let Some(Dialed { flow, result }) = dialed else {
        return;
    };
    match &result {
        Ok((_, address)) => {
            info!(target: "quictun", { "Server-App-Addr" = address }, "Server app connect successful");
        }
        Err(code) => {
            warn!(target: "quictun", flow = flow.0, reason = %code, "Failed to dial server app");
        }
    }
    io.engine.handle_dialed(io.now, flow, result);
}

fn refuse(io: &mut Io<'_>, opened: &Opened, code: FlowCode) {
    io.engine.handle_dialed(io.now, opened.flow, Err(code));
}

/// For whom a flow takes its places.
fn holder_of(peer: &Peer, remote: SocketAddr) -> Holder {
    match peer {
        Peer::Named(client) => Holder::Client(client.shared_name()),
        Peer::Anyone | Peer::Unknown => Holder::at(remote.ip()),
    }
}

fn name_of(peer: &Peer) -> &str {
    match peer {
        Peer::Anyone => "anyone",
        Peer::Named(client) => client.name(),
        Peer::Unknown => "unknown",
    }
}

fn code_of(denied: &Denied) -> FlowCode {
    match denied {
        Denied::UnknownClient { .. } => FlowCode::Unauthenticated,
        _ => FlowCode::Denied,
    }
}
