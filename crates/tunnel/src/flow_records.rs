//! The flows that clients asked a server for: the client of each, its refusal, and its log lines.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use quictun_engine::{Ending, FlowId, FlowSummary};
use quictun_wire::code::FlowCode;
use quictun_wire::listening::IncomingPeer;
use tracing::{debug, warn};

use crate::settings::TokenParser;
use crate::token_source::{ParseTokenError, parse_token};
use quictun_control::flow_log::{FlowFacts, FlowLog};
use quictun_control::line_budget::{LineBudget, LinePermit};
use quictun_control::log::Untrusted;
use quictun_control::settings::Phrases;
use quictun_trust::access::{AccessDenied, Peer};
use quictun_trust::shares::Holder;

#[derive(Debug)]
pub(crate) struct FlowRecords {
    pub(crate) log: FlowLog,
    lines: LineBudget,
    token_parser: TokenParser,
    flows: HashMap<FlowId, FlowRecord>,
}

#[derive(Debug)]
struct FlowRecord {
    peer: Peer,
    remote: SocketAddr,
    opener: Opener,
    /// The reason of the refusal. If the line is `None`, the refusal is not logged.
    refused: Option<(Refusal, Option<LinePermit>)>,
}

/// The program that a flow was opened for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Opener {
    /// An application of the client, at this address if the client reports it.
    Application(Option<SocketAddr>),
    /// A program that has connected to a listener of the client.
    Visitor(IncomingPeer),
}

#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) code: FlowCode,
    pub(crate) denied: String,
    bad_token: bool,
}

impl Refusal {
    pub(crate) fn new(code: FlowCode, denied: String) -> Self {
        let bad_token = false;
        Self {
            code,
            denied,
            bad_token,
        }
    }

    pub(crate) fn limit(denied: &str) -> Self {
        Self::new(FlowCode::Limit, denied.to_owned())
    }
}

impl From<AccessDenied> for Refusal {
    fn from(denied: AccessDenied) -> Self {
        let code = match denied {
            AccessDenied::UnknownClient { .. } => FlowCode::Unauthenticated,
            _ => FlowCode::Denied,
        };
        Self::new(code, denied.to_string())
    }
}

impl From<ParseTokenError> for Refusal {
    fn from(error: ParseTokenError) -> Self {
        Self {
            code: error.code(),
            denied: Untrusted(quictun_trust::error_chain(&error)).to_string(),
            bad_token: true,
        }
    }
}

impl FlowRecords {
    pub(crate) fn new(log: FlowLog, lines: LineBudget, token_parser: TokenParser) -> Self {
        Self {
            log,
            lines,
            token_parser,
            flows: HashMap::new(),
        }
    }

    pub(crate) fn add(&mut self, flow: FlowId, peer: Peer, remote: SocketAddr, opener: Opener) {
        let refused = None;
        self.flows.insert(
            flow,
            FlowRecord {
                peer,
                remote,
                opener,
                refused,
            },
        );
    }

    /// Returns the client that asked for a flow, its address at that time, and the application's address that it
    /// reported.
    pub(crate) fn requester(
        &self,
        flow: FlowId,
    ) -> Option<(&Peer, SocketAddr, Option<SocketAddr>)> {
        let record = self.flows.get(&flow)?;
        let source = match record.opener {
            Opener::Application(source) => source,
            Opener::Visitor(_) => None,
        };
        Some((&record.peer, record.remote, source))
    }

    /// Returns the program that has connected to a listener, if the flow is one to a listener.
    pub(crate) fn visitor_of(&self, flow: FlowId) -> Option<IncomingPeer> {
        match self.flows.get(&flow)?.opener {
            Opener::Visitor(peer) => Some(peer),
            Opener::Application(_) => None,
        }
    }

    /// Returns the identity of the client that asked for a flow, as known at that time.
    pub(crate) fn peer(&self, flow: FlowId) -> Option<&Peer> {
        self.flows.get(&flow).map(|record| &record.peer)
    }

    /// Records the client of a flow as new rules know it. Its name may be another one.
    pub(crate) fn set_peer(&mut self, flow: FlowId, peer: Peer) {
        if let Some(record) = self.flows.get_mut(&flow) {
            record.peer = peer;
        }
    }

    /// Returns, in order, the flows of a client that were not refused: those it asked for and those to its listeners.
    pub(crate) fn flows_of(&self, client: &str) -> Vec<FlowId> {
        let is_its =
            |record: &FlowRecord| matches!(&record.peer, Peer::Named(it) if it.name() == client);
        let flows = self.flows.iter();
        let flows = flows.filter(|(_, record)| record.refused.is_none() && is_its(record));
        let mut flows: Vec<FlowId> = flows.map(|(flow, _)| *flow).collect();
        flows.sort_unstable();
        flows
    }

    /// Returns the names of the clients that have flows, once for each flow.
    pub(crate) fn clients(&self) -> impl Iterator<Item = Arc<str>> {
        let peers = self.flows.values().map(|record| &record.peer);
        peers.filter_map(|peer| match peer {
            Peer::Named(client) => Some(client.shared_name()),
            Peer::Anyone | Peer::Unknown => None,
        })
    }

    /// Notes the refusal of a flow. Returns whether it is logged: the refused flows of unknown clients use up their
    /// line budget.
    pub(crate) fn refuse(&mut self, now: Instant, flow: FlowId, refusal: Refusal) -> bool {
        let Some(record) = self.flows.get_mut(&flow) else {
            return false;
        };
        let line = line(&self.lines, now, &record.peer, record.remote);
        record.refused = Some((refusal, line));
        line.is_some()
    }

    /// Logs the refusal of a flow at once, as quic-tun does. Otherwise the flow's last line reports it.
    pub(crate) fn log_refusal(&self, flow: FlowId) {
        let Some(FlowRecord {
            peer,
            remote,
            refused: Some((refused, Some(_))),
            ..
        }) = self.flows.get(&flow)
        else {
            return;
        };
        if self.log.phrases == Phrases::Own {
            return;
        }
        let (flow, denied) = (self.log.id(flow), &refused.denied);
        if refused.bad_token {
            warn!(target: "quictun", { "Client-Endpoint-Addr" = %remote, flow, cause = denied }, "Failed to parse token");
        } else {
            let client = name_of(peer);
            warn!(target: "quictun", { "Client-Endpoint-Addr" = %remote, flow, client, denied }, "a tunnel was refused");
        }
    }

    /// Logs the last line of a flow that is over. `known` is the client of the connection, for a flow without a
    /// request.
    pub(crate) fn close(&mut self, now: Instant, summary: &FlowSummary, known: Peer) {
        let record = self.flows.remove(&summary.flow);
        if self.log.phrases == Phrases::Own && record.is_none() && had_no_request(summary) {
            debug!(target: "quictun", flow = self.log.id(summary.flow), "a stream has ended with its connection, and carried no request");
            return;
        }
        let visitor = record.as_ref().and_then(FlowRecord::visitor);
        let (peer, remote, refused) = match record {
            Some(record) => (record.peer, Some(record.remote), record.refused),
            None => (known, summary.remote, None),
        };
        let line = match (&refused, remote) {
            (Some((_, line)), _) => *line,
            // Any program that reaches a listener may connect without end, and the client is not at fault.
            (None, _) if visitor.is_some() => visitor.and_then(|it| self.lines.take(&it, now)),
            // A flow without a request cost its client nothing, so it counts against the line budget.
            (None, Some(remote)) if summary.token.is_empty() => {
                line(&self.lines, now, &peer, remote)
            }
            (None, remote) if !summary.established => self.line_about_failure(now, &peer, remote),
            _ => Some(LinePermit::default()),
        };
        let Some(line) = line else {
            return;
        };
        // A token that cannot be parsed was refused and logged with the reason, so its line here has no target.
        let target = parse_token(self.token_parser, &summary.token).ok();
        let target = target.map(|target| target.to_string());
        let known = FlowFacts {
            client: Some(name_of(&peer)),
            target: target.as_deref(),
            denied: refused.as_ref().map(|(refusal, _)| refusal.denied.as_str()),
            left_out: line.left_out(),
            ..FlowFacts::default()
        };
        self.log.closed(summary, known);
    }

    /// Takes a line about a flow that the rules allowed and that has not reached its target. Programs try again without
    /// end, so these flows count, also those of known clients (PROTOCOL LOG-1).
    pub(crate) fn line_about_failure(
        &self,
        now: Instant,
        peer: &Peer,
        remote: Option<SocketAddr>,
    ) -> Option<LinePermit> {
        let source = match (peer, remote) {
            (Peer::Named(client), _) => Holder::Client(client.shared_name()),
            (Peer::Anyone | Peer::Unknown, Some(remote)) => Holder::at(remote.ip()),
            (Peer::Anyone | Peer::Unknown, None) => Holder::Own,
        };
        self.lines.take(&source, now)
    }
}

impl FlowRecord {
    /// Returns the source of the log lines of a visitor. Programs that connect to a Unix socket count as the client.
    fn visitor(&self) -> Option<Holder> {
        match (self.opener, &self.peer) {
            (Opener::Visitor(IncomingPeer::Ip(address)), _) => Some(Holder::at(address.ip())),
            (Opener::Visitor(IncomingPeer::Unix), Peer::Named(client)) => {
                Some(Holder::Client(client.shared_name()))
            }
            _ => None,
        }
    }
}

/// Returns whether a stream ended with its connection before a request came, as happens if a client ends while it
/// connects.
fn had_no_request(summary: &FlowSummary) -> bool {
    let with_connection = matches!(
        summary.ending,
        Ending::Abandoned(FlowCode::ConnectionLost | FlowCode::ShuttingDown)
            | Ending::PeerClosed(_)
    );
    summary.token.is_empty() && with_connection
}

/// Takes a line from the budget, for a flow that a stranger can cause without effort. Lines about known clients are an
/// audit trail and are never left out.
fn line(lines: &LineBudget, now: Instant, peer: &Peer, remote: SocketAddr) -> Option<LinePermit> {
    match peer {
        Peer::Named(_) => Some(LinePermit::default()),
        Peer::Anyone | Peer::Unknown => lines.take(&Holder::at(remote.ip()), now),
    }
}

pub(crate) fn name_of(peer: &Peer) -> &str {
    match peer {
        Peer::Anyone => "anyone",
        Peer::Named(client) => client.name(),
        Peer::Unknown => "unknown",
    }
}

#[cfg(test)]
mod tests {
    use quictun_engine::LocalLimit;
    use quictun_engine::report::Side;
    use quictun_wire::code::CloseCode;

    use super::*;
    use crate::line_counter::count_lines;
    use quictun_trust::access::Policy;
    use quictun_trust::identity;
    use quictun_trust::settings::{Access, ClientLimits, ClientProof, NamedClient};

    fn known_client() -> Peer {
        let identity = identity::ephemeral().expect("a key");
        let client = NamedClient {
            name: "laptop".to_owned(),
            proofs: vec![ClientProof::Pin(identity.pin)],
            allow: Vec::new(),
            listen: Vec::new(),
            limits: ClientLimits::default(),
            names_sources: false,
        };
        let policy = Policy::new(&Access::Named {
            clients: vec![client],
            ca: None,
        });
        let peer = policy.expect("a policy").identify(Some(&identity.chain));
        assert_eq!(name_of(&peer), "laptop");
        peer
    }

    fn records() -> FlowRecords {
        let log = FlowLog::new(Side::Server, 0, Phrases::Own);
        FlowRecords::new(log, LineBudget::default(), TokenParser::Cleartext)
    }

    fn remote() -> SocketAddr {
        SocketAddr::from(([192, 0, 2, 1], 7500))
    }

    fn summary(flow: u64, token: &str, ending: Ending) -> FlowSummary {
        FlowSummary {
            flow: FlowId(flow),
            connection: None,
            stream_id: Some(0),
            remote: Some(remote()),
            token: token.to_owned(),
            client_app: String::new(),
            server_app: String::new(),
            ending,
            established: false,
            incoming: false,
            bytes_to_tunnel: 0,
            bytes_to_app: 0,
            elapsed: std::time::Duration::ZERO,
        }
    }

    /// Returns how many of 1000 refused flows of this peer are logged.
    fn logged(peer: &Peer) -> usize {
        let mut flows = records();
        let (now, remote) = (Instant::now(), remote());
        (0..1000)
            .map(FlowId)
            .filter(|&flow| {
                flows.add(flow, peer.clone(), remote, Opener::Application(None));
                flows.refuse(now, flow, Refusal::limit("enough"))
            })
            .count()
    }

    #[test]
    fn a_stream_without_a_request_that_ends_with_its_connection_is_not_a_flow() {
        let ended = |token: &str, ending| had_no_request(&summary(1, token, ending));
        let lost = Ending::Abandoned(FlowCode::ConnectionLost);
        assert!(ended("", lost));
        assert!(ended("", Ending::Abandoned(FlowCode::ShuttingDown)));
        assert!(ended("", Ending::PeerClosed(CloseCode::Shutdown)));
        assert!(!ended("tcp:192.0.2.1:1", lost));
        // Protocol violations and time-outs are logged.
        assert!(!ended("", Ending::Abandoned(FlowCode::BadOpen)));
        assert!(!ended("", Ending::PeerReset(None)));
    }

    /// Returns the number of lines about 1000 streams of this peer that the engine has refused for lack of memory.
    fn logged_unread(peer: &Peer) -> usize {
        let (mut flows, now) = (records(), Instant::now());
        count_lines(|| {
            for flow in 0..1000 {
                let refused = summary(flow, "", Ending::LimitReached(LocalLimit::Memory));
                flows.close(now, &refused, peer.clone());
            }
        })
    }

    // PROTOCOL LOG-1.
    #[test]
    fn streams_that_are_refused_unread_are_logged_like_refused_flows() {
        assert_eq!(logged_unread(&Peer::Anyone), 100);
        assert_eq!(logged_unread(&Peer::Unknown), 100);
        assert_eq!(logged_unread(&known_client()), 1000);
    }

    // PROTOCOL LOG-1.
    #[test]
    fn visitors_of_a_public_listener_cause_few_lines_each() {
        let (mut flows, now, peer) = (records(), Instant::now(), known_client());
        let mut lines = |opener: Opener| {
            count_lines(|| {
                for flow in 0..1000 {
                    let ended = FlowSummary {
                        established: true,
                        ..summary(flow, "listener", Ending::Finished)
                    };
                    flows.add(FlowId(flow), peer.clone(), remote(), opener);
                    flows.close(now, &ended, peer.clone());
                }
            })
        };
        let visitor = |last| Opener::Visitor(IncomingPeer::Ip(([198, 51, 100, last], 7).into()));
        assert_eq!(lines(visitor(1)), 100);
        assert_eq!(lines(visitor(2)), 100, "each has lines of its own");
        assert_eq!(lines(Opener::Visitor(IncomingPeer::Unix)), 100);
        assert_eq!(lines(Opener::Application(None)), 1000, "the audit trail");
    }

    // PROTOCOL LOG-1.
    #[test]
    fn flows_that_fail_are_logged_up_to_the_budget_of_their_client() {
        let (mut flows, now, peer) = (records(), Instant::now(), known_client());
        let mut lines = |peer: &Peer, established| {
            count_lines(|| {
                for flow in 0..1000 {
                    let failed = FlowSummary {
                        established,
                        ..summary(flow, "tcp:192.0.2.1:1", FlowCode::Refused.into())
                    };
                    flows.add(
                        FlowId(flow),
                        peer.clone(),
                        remote(),
                        Opener::Application(None),
                    );
                    flows.close(now, &failed, peer.clone());
                }
            })
        };
        assert_eq!(lines(&peer, false), 100);
        assert_eq!(
            lines(&Peer::Anyone, false),
            100,
            "each has a budget of its own"
        );
        assert_eq!(lines(&peer, true), 1000, "the audit trail");
    }

    // PROTOCOL LOG-1.
    #[test]
    fn refused_flows_of_strangers_are_logged_up_to_their_budget_and_those_of_known_clients_all() {
        assert_eq!(logged(&Peer::Anyone), 100);
        assert_eq!(logged(&Peer::Unknown), 100);
        assert_eq!(logged(&known_client()), 1000);
    }
}
