//! Lines of flows in the log.
//!
//! Each flow leaves one line when it ends: the audit trail. It is the line with the field `verdict`. A server names the
//! client in it and what was dialled; both sides name the flow, its connection and its worker as `/v1/tunnels` does, the
//! other side of the tunnel, the target, bytes each way, the duration, and how it ended.
//!
//! What comes before that is worded as [`Phrases`] says: see [`log_beginning`](crate::log_beginning).

use quictun_engine::report::Side;
use quictun_engine::{ConnectionId, Ending, FlowId, FlowSummary};
use quictun_wire::code::FlowCode;
use tracing::{info, warn};

use crate::flow_uuids::FlowUuids;
use crate::log::Foreign;
use crate::settings::Phrases;

/// Logs a line of a flow's beginning: the original's words at info level, or ours at debug level.
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

/// Writes the lines of one worker's flows.
#[derive(Clone, Copy, Debug)]
pub struct FlowLog {
    /// How lines of single flows are worded.
    pub phrases: Phrases,
    side: Side,
    worker: usize,
    uuids: FlowUuids,
}

/// What a side knows of a flow beside what the engine tells.
#[derive(Clone, Copy, Debug, Default)]
pub struct Known<'a> {
    /// Server: the client's name.
    pub client: Option<&'a str>,
    /// The target in canonical form, where the token was one.
    pub target: Option<&'a str>,
    /// Server: why it was refused, where it was.
    pub denied: Option<&'a str>,
    /// Client: the server, for a flow that never had a connection to it.
    pub server: Option<&'a str>,
    /// Client: what kept connections to it from coming about, where that is more than its silence.
    pub unreachable: Option<&'a str>,
    /// How many lines about the same source were left out before this one.
    pub left_out: Option<u64>,
}

impl FlowLog {
    /// For the flows of this worker.
    pub fn new(side: Side, worker: usize, phrases: Phrases) -> Self {
        Self {
            phrases,
            side,
            worker,
            uuids: FlowUuids::of_process(),
        }
    }

    /// The flow's name in logs and in the HTTP interface.
    pub fn id(&self, flow: FlowId) -> String {
        self.uuids.of(self.worker, flow)
    }

    /// The worker and the number that name a connection in this process, as `/v1/connections` does; nothing among the
    /// original's phrases.
    pub fn connection(&self, id: ConnectionId) -> (Option<usize>, Option<u64>) {
        match self.phrases {
            Phrases::Own => (Some(self.worker), Some(id.0)),
            Phrases::Original => (None, None),
        }
    }

    /// A flow is over: who, what, how much, how long, and how it ended.
    pub fn closed(&self, summary: &FlowSummary, known: Known<'_>) {
        let flow = self.id(summary.flow);
        let elapsed_ms = u64::try_from(summary.elapsed.as_millis()).unwrap_or(u64::MAX);
        let reason = reason(summary.ending, known.unreachable);
        let verdict = verdict(summary, known.denied);
        let reverse = summary.incoming.then_some(true);
        let target = match known.target {
            Some(target) => target.to_owned(),
            None => Foreign(&summary.token).to_string(),
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
                        denied = known.denied,
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

/// Whether the flow was let through: `allowed`; `refused`, by the server's rules or limits; `failed`, on its way to the
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
        Ending::PeerReset(Some(code)) | Ending::Abandoned(code) if refused(code) => "refused",
        _ => "failed",
    }
}

/// How a flow ended, in words; `unreachable` as in [`Known`].
pub fn reason(ending: Ending, unreachable: Option<&str>) -> String {
    match ending {
        Ending::Finished => "finished".to_owned(),
        Ending::AppReset => "the local application reset it".to_owned(),
        Ending::PeerReset(Some(code)) => format!("reset by the peer: {code}"),
        Ending::PeerReset(None) => "reset by the peer".to_owned(),
        Ending::Abandoned(code) => code.to_string(),
        Ending::NoConnection => match unreachable {
            Some(why) => format!("no connection to the server came about in time: {why}"),
            None => "the server did not answer".to_owned(),
        },
    }
}

/// An address that this side does not know is left out, as the original does.
fn given(address: &str) -> Option<&str> {
    (!address.is_empty()).then_some(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_without_a_connection_names_what_kept_it_from_one() {
        assert_eq!(
            reason(Ending::NoConnection, None),
            "the server did not answer"
        );
        assert_eq!(
            reason(Ending::NoConnection, Some("its key is another one")),
            "no connection to the server came about in time: its key is another one"
        );
        // A connection that was there is another matter.
        assert_eq!(
            reason(Ending::Abandoned(FlowCode::ConnectionLost), None),
            FlowCode::ConnectionLost.to_string()
        );
    }
}
