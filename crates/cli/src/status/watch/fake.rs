//! Answers of the HTTP interface, for tests.

use std::time::Duration;

use serde_json::{Value, json};

use crate::status::answers::Answer;

/// Returns an answer of a server, `uptime` seconds after its start.
pub(super) fn answer(uptime: f64, connections: &[Value], tunnels: &[Value]) -> Answer {
    changed(uptime, connections, tunnels, |_| ())
}

/// Like [`answer`], with a status that `change` has edited. Its silent workers also appear in the list of connections.
pub(super) fn changed(
    uptime: f64,
    connections: &[Value],
    tunnels: &[Value],
    change: impl FnOnce(&mut Value),
) -> Answer {
    let mut status = json!({
        "version": "0.1.0", "side": "server", "pid": 4711, "started_at": "2026-07-29T07:10:00Z",
        "uptime_seconds": uptime, "ready": true, "reason": null, "listen": ["udp [::]:7500"],
        "workers": 2, "workers_silent": [], "connections": connections.len(),
        "tunnels": tunnels.len(), "reload": null, "detached_tunnels": 0, "bonds": 0,
        "kept_bytes": 0, "moves": 0, "move_seconds_p50": null, "move_seconds_p99": null,
        "moves_refused": 0,
    });
    change(&mut status);
    let silent = status["workers_silent"].clone();
    Answer {
        connections: serde_json::from_value(
            json!({"connections": connections, "workers_silent": silent}),
        )
        .expect("connections"),
        tunnels: serde_json::from_value(json!({"tunnels": tunnels})).expect("tunnels"),
        bonds: serde_json::from_value(json!({"bonds": []})).expect("bonds"),
        status: serde_json::from_value(status).expect("a status"),
    }
}

/// Returns a connection with these byte counts and one packet per thousand bytes sent. An empty `peer` means no name.
pub(super) fn connection(id: u64, peer: &str, age: f64, sent: u64, received: u64) -> Value {
    let peer = (!peer.is_empty()).then_some(peer);
    let rtt = Duration::from_millis(20 + id % 7).as_secs_f64();
    json!({
        "id": id, "worker": id % 2, "remote": format!("192.0.2.{}:{}", id % 250, 50_000 + id % 10_000),
        "protocol": "quictun/1", "peer": peer, "opened_at": format!("opened {id}"), "age_seconds": age,
        "unresponsive": false, "flows": 1 + id % 3, "rtt_seconds": rtt,
        "limited_by": "application", "loss_ratio": 0.0, "sent_bytes": sent,
        "received_bytes": received, "packets_sent": sent / 1000, "packets_lost": 0,
    })
}

/// Returns a flow on the connection with this id.
pub(super) fn tunnel(id: u64, connection: u64, age: f64, to_tunnel: u64, to_app: u64) -> Value {
    json!({
        "id": format!("flow-{id}"), "worker": connection % 2, "connection": connection,
        "target": format!("tcp:db{id}.internal:5432"), "client_app": null,
        "server_app": format!("10.0.0.1:{}", 40_000 + id % 20_000), "age_seconds": age,
        "established": true, "detached_seconds": null, "to_tunnel_bytes": to_tunnel, "to_app_bytes": to_app,
    })
}

/// Returns `value` with another `field`.
pub(super) fn with(mut value: Value, field: &str, other: impl Into<Value>) -> Value {
    value[field] = other.into();
    value
}
