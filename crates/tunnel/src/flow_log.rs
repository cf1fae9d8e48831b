//! The line each flow leaves in the log.

use quictun_engine::{Ending, FlowSummary};
use tracing::{info, warn};

/// A flow is over: who, what, how much, how long, and how it ended.
pub(crate) fn log_closed(summary: &FlowSummary) {
    let elapsed_ms = u64::try_from(summary.elapsed.as_millis()).unwrap_or(u64::MAX);
    let reason = match summary.ending {
        Ending::Finished => "finished".to_owned(),
        Ending::AppReset => "the local application reset it".to_owned(),
        Ending::PeerReset(Some(code)) => format!("reset by the peer: {code}"),
        Ending::PeerReset(None) => "reset by the peer".to_owned(),
        Ending::Abandoned(code) => code.to_string(),
    };
    if summary.established {
        info!(target: "quictun", { "Client-App-Addr" = known(&summary.client_app), "Server-App-Addr" = known(&summary.server_app), "Stream-ID" = summary.stream_id, target = summary.token, bytes_to_tunnel = summary.bytes_to_tunnel, bytes_to_app = summary.bytes_to_app, elapsed_ms, reason }, "Tunnel closed");
    } else {
        warn!(target: "quictun", { "Client-App-Addr" = known(&summary.client_app), "Stream-ID" = summary.stream_id, target = summary.token, elapsed_ms, reason }, "handshake error!");
    }
}

/// An address that this side does not know is left out, as the original does.
fn known(address: &str) -> Option<&str> {
    (!address.is_empty()).then_some(address)
}
