//! Log lines about flows.
//!
//! Each flow writes one line when it ends. These lines are the audit trail, and have the field `verdict`. On a server
//! the line names the client and the dialled address. On both sides it names the flow, its connection and its worker as
//! `/v1/tunnels` does, and the peer's address and the target. It also has the bytes in each direction, the duration,
//! and how the flow ended.
//!
//! [`Phrases`] determines the words of earlier lines, see [`log_beginning`](crate::log_beginning).

use quictun_engine::report::Side;
use quictun_engine::{ConnectionId, Ending, FlowId, FlowSummary, LocalLimit};
use quictun_wire::code::FlowCode;
use tracing::{info, warn};

use crate::flow_uuids::FlowUuids;
use crate::log::Untrusted;
use crate::settings::Phrases;

/// Logs a line about a flow's beginning: with the original's words at info level, or with quictun's own at debug level.
#[macro_export]
macro_rules! log_beginning {
    ($phrases:expr, $fields:tt, $original:literal, $own:literal) => {
        $crate::log_beginning!($phrases, $fields, $original, $fields, $own)
    };
    ($phrases:expr, $fields:tt, $original:literal, $own_fields:tt, $own:literal) => {
        match $phrases {
            $crate::settings::Phrases::Original => {
                tracing::info!(target: "quictun", $fields, $original);
            }
            $crate::settings::Phrases::Own => {
                tracing::debug!(target: "quictun", $own_fields, $own);
            }
        }
    };
}

/// Writes the lines about one worker's flows.
#[derive(Clone, Copy, Debug)]
pub struct FlowLog {
    /// The wording of lines about single flows.
    pub phrases: Phrases,
    side: Side,
    worker: usize,
    uuids: FlowUuids,
}

/// Facts about a flow that the engine's summary does not contain.
#[derive(Clone, Copy, Debug, Default)]
pub struct FlowFacts<'a> {
    /// Server: the name of the client.
    pub client: Option<&'a str>,
    /// The target in canonical form, if the token could be parsed.
    pub target: Option<&'a str>,
    /// Server: the reason why the flow was refused, if it was. A flow that was refused because this process has reached
    /// a limit needs no reason here.
    pub denied: Option<&'a str>,
    /// Client: the server, for a flow that never had a connection to it.
    pub server: Option<&'a str>,
    /// Client: the reason why no connection to the server was established, unless the server merely did not answer.
    pub unreachable: Option<&'a str>,
    /// Number of lines about the same source that were left out before this one.
    pub left_out: Option<u64>,
}

impl FlowLog {
    /// Creates the log for the flows of this worker.
    pub fn new(side: Side, worker: usize, phrases: Phrases) -> Self {
        Self {
            phrases,
            side,
            worker,
            uuids: FlowUuids::of_process(),
        }
    }

    /// Returns the flow's id in logs and in the HTTP interface.
    pub fn id(&self, flow: FlowId) -> String {
        self.uuids.of(self.worker, flow)
    }

    /// Returns the worker and the number that identify a connection in this process, as `/v1/connections` shows them.
    /// Returns `None` for both with the original's phrases, which have no such fields.
    pub fn connection(&self, id: ConnectionId) -> (Option<usize>, Option<u64>) {
        match self.phrases {
            Phrases::Own => (Some(self.worker), Some(id.0)),
            Phrases::Original => (None, None),
        }
    }

    /// Logs the end of a flow: its parties, bytes and duration, and how it ended.
    pub fn closed(&self, summary: &FlowSummary, known: FlowFacts<'_>) {
        let flow = self.id(summary.flow);
        let elapsed_ms = u64::try_from(summary.elapsed.as_millis()).unwrap_or(u64::MAX);
        let reason = match (summary.ending, known.denied) {
            (Ending::Abandoned(FlowCode::Limit), Some(_)) => {
                "this side has reached the limit that `denied` gives".to_owned()
            }
            (ending, _) => reason(ending, known.unreachable),
        };
        let denied = known.denied.or_else(|| limit_reached(summary));
        let verdict = verdict(summary, denied);
        let reverse = summary.incoming.then_some(true);
        let target = match known.target {
            Some(target) => target.to_owned(),
            None => Untrusted(&summary.token).to_string(),
        };
        let at = |side| (self.side != side).then_some(summary.remote).flatten();
        let (worker, connection) = summary
            .connection
            .map_or((None, None), |id| self.connection(id));
        let client_at = at(Side::Client).map(tracing::field::display);
        let server_at = at(Side::Server).map(|address| address.to_string());
        let server_at = server_at.or_else(|| known.server.map(str::to_owned));
        macro_rules! line {
            ($level:ident, $message:literal) => {
                $level!(
                    target: "quictun",
                    {
                        flow,
                        client = known.client,
                        "Client-Endpoint-Addr" = client_at,
                        "Server-Endpoint-Addr" = server_at,
                        "Client-App-Addr" = given(&summary.client_app),
                        "Server-App-Addr" = given(&summary.server_app),
                        worker,
                        connection,
                        "Stream-ID" = summary.stream_id,
                        target,
                        reverse,
                        verdict,
                        denied,
                        bytes_to_tunnel = summary.bytes_to_tunnel,
                        bytes_to_app = summary.bytes_to_app,
                        elapsed_ms,
                        reason,
                        lines_left_out = known.left_out
                    },
                    $message
                )
            };
        }
        match (self.phrases, verdict) {
            (Phrases::Original, "allowed") => line!(info, "Tunnel closed"),
            (Phrases::Original, _) => line!(warn, "handshake error!"),
            (Phrases::Own, "allowed") => line!(info, "flow closed"),
            (Phrases::Own, "refused") => line!(warn, "flow refused"),
            (Phrases::Own, _) => line!(warn, "flow failed"),
        }
    }
}

/// Returns the limit of this process because of which a flow was refused.
fn limit_reached(summary: &FlowSummary) -> Option<&'static str> {
    match summary.ending {
        Ending::LimitReached(limit) if !summary.established => Some(limit_text(limit)),
        _ => None,
    }
}

/// Describes a limit of this process that has ended a flow, and says which setting changes the limit.
fn limit_text(limit: LocalLimit) -> &'static str {
    match limit {
        LocalLimit::Memory => "this process has no memory for another flow (--memory-budget)",
        LocalLimit::WaitingFlows => {
            "4096 flows of this worker wait for a connection to the server, which is the largest number: \
             other lines say why there is no connection"
        }
        LocalLimit::DetachedFlows => {
            "too many flows of this client waited for another connection, and this one had waited for longest: \
             a shorter wait ends flows before (--bond-ttl)"
        }
        LocalLimit::DetachedMemory => {
            "memory got short while the flow waited for another connection (--memory-budget, --bond-ttl)"
        }
        LocalLimit::GaveWay => {
            "the client did not answer on this flow's connection, and had reached a limit when it opened a new flow, to \
             which this one gave way (max_flows, ulimit -n)"
        }
        LocalLimit::ReceivedPieces => {
            "the other side did not stop when this application did not read, or sent data in pieces so small that they \
             took more memory than it may use (--memory-budget)"
        }
    }
}

/// Describes why this side has refused or abandoned a flow. The texts of the codes say what the other side has done.
fn abandoned_text(code: FlowCode) -> String {
    let text = match code {
        FlowCode::Limit => {
            "this side has reached a limit: descriptors, local ports, or dials and look-ups at a time (ulimit -n, \
             LimitNOFILE=)"
        }
        FlowCode::ShuttingDown => {
            "this side is shutting down: open flows have the time of --drain to end"
        }
        FlowCode::Internal => "this side failed by its own fault: other lines say more",
        FlowCode::Unsupported => "this side does not support the request",
        FlowCode::TooOld => {
            "this side no longer keeps the bytes that the other side lacks (--memory-budget)"
        }
        code => return code.to_string(),
    };
    text.to_owned()
}

/// Returns the verdict on a flow: `allowed`, `refused` by the server's rules or limits, or `failed` on its way to the
/// target.
fn verdict(summary: &FlowSummary, denied: Option<&str>) -> &'static str {
    let refused = |code| {
        matches!(
            code,
            FlowCode::Denied
                | FlowCode::Unauthenticated
                | FlowCode::BadOpen
                | FlowCode::Unsupported
        )
    };
    match summary.ending {
        _ if summary.established => "allowed",
        _ if denied.is_some() => "refused",
        Ending::PeerReset(Some(code)) | Ending::PeerRefused(code) | Ending::Abandoned(code)
            if refused(code) =>
        {
            "refused"
        }
        _ => "failed",
    }
}

/// Describes how a flow ended. `unreachable` is the reason of [`FlowFacts`].
pub fn reason(ending: Ending, unreachable: Option<&str>) -> String {
    match ending {
        Ending::Finished => "finished".to_owned(),
        Ending::AppReset => "the local application reset it".to_owned(),
        Ending::PeerReset(Some(code)) => format!("reset by the peer: {code}"),
        Ending::PeerReset(None) => "reset by the peer".to_owned(),
        Ending::PeerRefused(code) => code.to_string(),
        Ending::PeerClosed(code) => code.to_string(),
        Ending::Abandoned(code) => abandoned_text(code),
        Ending::LimitReached(limit) => limit_text(limit).to_owned(),
        Ending::NoConnection => match unreachable {
            Some(why) => format!("no connection to the server was established in time: {why}"),
            None => "the server did not answer".to_owned(),
        },
    }
}

/// Leaves out an address that this side does not know, as the original does.
fn given(address: &str) -> Option<&str> {
    (!address.is_empty()).then_some(address)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use quictun_wire::code::CloseCode;

    use super::*;

    fn summary(token: &str, ending: Ending) -> FlowSummary {
        FlowSummary {
            flow: FlowId(1),
            connection: Some(ConnectionId(1)),
            stream_id: Some(4),
            remote: None,
            token: token.to_owned(),
            client_app: String::new(),
            server_app: String::new(),
            ending,
            established: false,
            incoming: false,
            bytes_to_tunnel: 0,
            bytes_to_app: 0,
            elapsed: Duration::ZERO,
        }
    }

    #[test]
    fn a_flow_that_this_process_has_no_room_for_names_the_limit() {
        for (limit, remedy) in [
            (LocalLimit::Memory, "--memory-budget"),
            (LocalLimit::WaitingFlows, "connection to the server"),
        ] {
            let mut refused = summary("", Ending::LimitReached(limit));
            let denied = limit_reached(&refused);
            assert!(denied.is_some_and(|denied| denied.contains(remedy)));
            assert_eq!(verdict(&refused, denied), "refused");
            // The end of an open flow is not a refusal.
            refused.established = true;
            assert_eq!(limit_reached(&refused), None);
        }
        // Other limits have their own reasons, and the peer's limits are not this process's.
        for ending in [
            Ending::Abandoned(FlowCode::Limit),
            Ending::PeerReset(Some(FlowCode::Limit)),
        ] {
            assert_eq!(limit_reached(&summary("", ending)), None, "{ending:?}");
        }
    }

    #[test]
    fn the_end_of_a_flow_by_this_side_is_not_ascribed_to_the_other_side() {
        for (code, setting) in [
            (FlowCode::Limit, "ulimit"),
            (FlowCode::ShuttingDown, "--drain"),
            (FlowCode::Internal, ""),
            (FlowCode::Unsupported, ""),
            (FlowCode::TooOld, "--memory-budget"),
        ] {
            let text = reason(Ending::Abandoned(code), None);
            assert!(
                text.starts_with("this side") && text.contains(setting),
                "{text}"
            );
            let peers = reason(Ending::PeerRefused(code), None);
            assert!(peers.starts_with("the other side"), "{peers}");
        }
        for (limit, setting) in [
            (LocalLimit::Memory, "--memory-budget"),
            (LocalLimit::DetachedFlows, "--bond-ttl"),
            (LocalLimit::DetachedMemory, "--memory-budget"),
            (LocalLimit::GaveWay, "max_flows"),
            (LocalLimit::ReceivedPieces, "--memory-budget"),
        ] {
            let text = reason(Ending::LimitReached(limit), None);
            assert!(text.contains(setting), "{text}");
        }
    }

    #[test]
    fn a_flow_without_a_connection_names_the_cause() {
        assert_eq!(
            reason(Ending::NoConnection, None),
            "the server did not answer"
        );
        assert_eq!(
            reason(Ending::NoConnection, Some("its key is another one")),
            "no connection to the server was established in time: its key is another one"
        );
        // The end of an established connection has its own text.
        let ended = reason(Ending::PeerClosed(CloseCode::Shutdown), None);
        assert_eq!(ended, "the other side is shutting down");
        assert_eq!(
            reason(Ending::Abandoned(FlowCode::ConnectionLost), None),
            FlowCode::ConnectionLost.to_string()
        );
    }
}
