//! The line a connection leaves in the log when it comes to send differently.

use quictun_engine::Event;
use tracing::debug;

/// How the controller sees the path, and what limits the sending: the words of `/v1/connections`.
pub(crate) fn log_congestion(event: &Event) {
    let Event::Congestion {
        connection,
        remote,
        controller: view,
        limit,
    } = event
    else {
        return;
    };
    debug!(
        target: "quictun",
        connection = connection.0,
        %remote,
        congestion_control = view.mode,
        congestion_phase = view.phase,
        limited_by = limit.name(),
        bandwidth_bytes_per_second = view.bandwidth_known(),
        min_rtt_ms = view.min_rtt.map(|rtt| rtt.as_secs_f64() * 1000.0),
        loss_floor = view.loss_floor,
        loss_trust = view.trust,
        "congestion control"
    );
}
