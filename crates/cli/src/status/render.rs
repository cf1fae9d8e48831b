//! The answers of the HTTP interface as text of 80 columns.

use std::fmt::Write as _;
use std::time::Duration;

use jiff::Timestamp;
use serde::Deserialize;

use crate::ask::plain;

/// Columns of a terminal that nobody has made wider.
const WIDTH: usize = 80;

/// Rows of a table: the rest is counted.
const ROWS_MAX: usize = 20;

const TO_A_STRING: &str = "invariant: a String takes whatever is written to it";

/// `GET /v1/status`.
#[derive(Debug, Deserialize)]
pub(super) struct Status {
    version: String,
    side: String,
    pid: u32,
    uptime_seconds: f64,
    ready: bool,
    reason: Option<String>,
    listen: Vec<String>,
    workers: usize,
    workers_silent: Vec<usize>,
    connections: usize,
    tunnels: usize,
    reload: Option<Latest>,
}

#[derive(Debug, Deserialize)]
struct Latest {
    reloaded_at: Option<String>,
    reload_error: Option<String>,
    changes: Vec<String>,
    restart: Vec<String>,
}

/// `GET /v1/connections`.
#[derive(Debug, Deserialize)]
pub(super) struct Connections {
    connections: Vec<Connection>,
}

#[derive(Debug, Deserialize)]
struct Connection {
    remote: String,
    protocol: Option<String>,
    peer: Option<String>,
    age_seconds: f64,
    unresponsive: bool,
    flows: usize,
    rtt_seconds: f64,
    loss_ratio: f64,
    sent_bytes: u64,
    received_bytes: u64,
}

/// `GET /v1/tunnels`.
#[derive(Debug, Deserialize)]
pub(super) struct Tunnels {
    tunnels: Vec<Tunnel>,
}

#[derive(Debug, Deserialize)]
struct Tunnel {
    target: String,
    client_app: Option<String>,
    server_app: Option<String>,
    age_seconds: f64,
    established: bool,
    to_tunnel_bytes: u64,
    to_app_bytes: u64,
}

pub(super) fn page(
    status: &Status,
    connections: &Connections,
    tunnels: &Tunnels,
    now: Timestamp,
) -> String {
    let mut out = String::new();
    head(&mut out, status, now);
    connections_table(&mut out, status.connections, connections);
    tunnels_table(&mut out, status.tunnels, tunnels);
    out
}

fn head(out: &mut String, status: &Status, now: Timestamp) {
    let state = match &status.reason {
        None if status.ready => "ready".to_owned(),
        reason => format!(
            "NOT READY: {}",
            reason.as_deref().unwrap_or("no reason given")
        ),
    };
    let mut line = |text: String| {
        let text = cut(&plain(&text), WIDTH);
        writeln!(out, "{text}").expect(TO_A_STRING);
    };
    line(format!(
        "quictun {} {}, process {}, up {}: {state}",
        status.side,
        status.version,
        status.pid,
        age(status.uptime_seconds)
    ));
    let workers = status.workers;
    for listen in &status.listen {
        line(format!("listens on {listen}"));
    }
    let silent = &status.workers_silent;
    if silent.is_empty() {
        line(format!("workers: {workers}, all answer"));
    } else {
        line(format!(
            "workers: {workers}, and {} do NOT answer: {silent:?}",
            silent.len()
        ));
    }
    let Some(reload) = &status.reload else {
        return;
    };
    let Some(at) = &reload.reloaded_at else {
        return line("configuration: as at the start".to_owned());
    };
    let ago = at
        .parse::<Timestamp>()
        .map(|at| age(now.duration_since(at).as_secs_f64()))
        .unwrap_or_default();
    match &reload.reload_error {
        Some(error) => line(format!(
            "configuration: the reload {ago} ago FAILED: {error}"
        )),
        None => line(format!(
            "configuration: reloaded {ago} ago, changes: {}",
            reload.changes.len()
        )),
    }
    if !reload.restart.is_empty() {
        line(format!("needs a restart: {}", reload.restart.join(", ")));
    }
}

/// The heading of a column and its width, which is negative where cells are flush left.
type Column = (&'static str, isize);

const CONNECTION: [Column; 8] = [
    ("PEER", -10),
    ("ADDRESS", -21),
    ("UP", 7),
    ("FLOWS", 5),
    ("RTT", 7),
    ("LOSS", 6),
    ("SENT", 8),
    ("RECEIVED", 8),
];

fn connections_table(out: &mut String, all: usize, found: &Connections) {
    writeln!(out, "\n{}", count(all, "connection")).expect(TO_A_STRING);
    if found.connections.is_empty() {
        return;
    }
    let rows = found.connections.iter().map(|connection| {
        let peer = connection
            .peer
            .as_deref()
            .or(connection.protocol.as_deref());
        let rtt = if connection.unresponsive {
            "SILENT".to_owned()
        } else {
            milliseconds(connection.rtt_seconds)
        };
        [
            peer.unwrap_or("handshake").to_owned(),
            connection.remote.clone(),
            age(connection.age_seconds),
            connection.flows.to_string(),
            rtt,
            format!("{:.1} %", connection.loss_ratio * 100.0),
            bytes(connection.sent_bytes),
            bytes(connection.received_bytes),
        ]
    });
    table(out, &CONNECTION, rows);
}

const TUNNEL: [Column; 5] = [
    ("TARGET", -29),
    ("APPLICATION", -21),
    ("UP", 7),
    ("TO TUNNEL", 9),
    ("TO APP", 9),
];

fn tunnels_table(out: &mut String, all: usize, found: &Tunnels) {
    writeln!(out, "\n{}", count(all, "tunnel")).expect(TO_A_STRING);
    if found.tunnels.is_empty() {
        return;
    }
    let mut busy: Vec<&Tunnel> = found.tunnels.iter().collect();
    busy.sort_by_key(|tunnel| {
        std::cmp::Reverse(tunnel.to_tunnel_bytes.saturating_add(tunnel.to_app_bytes))
    });
    let rows = busy.into_iter().map(|tunnel| {
        let app = tunnel.client_app.as_ref().or(tunnel.server_app.as_ref());
        let app = if tunnel.established {
            app.cloned().unwrap_or_default()
        } else {
            "connecting".to_owned()
        };
        [
            tunnel.target.clone(),
            app,
            age(tunnel.age_seconds),
            bytes(tunnel.to_tunnel_bytes),
            bytes(tunnel.to_app_bytes),
        ]
    });
    table(out, &TUNNEL, rows);
}

fn table<const N: usize>(
    out: &mut String,
    columns: &[Column; N],
    rows: impl ExactSizeIterator<Item = [String; N]>,
) {
    let mut line = |cells: [&str; N]| {
        let cells = cells.iter().zip(columns).map(|(cell, (_, width))| {
            let (left, width) = (*width < 0, width.unsigned_abs());
            let text = cut(&plain(cell), width);
            if left {
                format!("{text:<width$}")
            } else {
                format!("{text:>width$}")
            }
        });
        let text = cells.collect::<Vec<_>>().join(" ");
        writeln!(out, "{}", text.trim_end()).expect(TO_A_STRING);
    };
    let more = rows.len().saturating_sub(ROWS_MAX);
    line(std::array::from_fn(|n| columns[n].0));
    for row in rows.take(ROWS_MAX) {
        line(std::array::from_fn(|n| row[n].as_str()));
    }
    if more > 0 {
        writeln!(out, "and {more} more: --json shows all").expect(TO_A_STRING);
    }
}

/// At most `width` characters; the last one says where something is missing.
fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let mut text: String = text.chars().take(width - 1).collect();
    text.push('…');
    text
}

fn count(number: usize, what: &str) -> String {
    match number {
        1 => format!("1 {what}"),
        _ => format!("{number} {what}s"),
    }
}

/// The two largest units.
fn age(seconds: f64) -> String {
    let seconds = Duration::try_from_secs_f64(seconds).map_or(0, |age| age.as_secs());
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, _) => format!("{minutes}m{:02}s", seconds % 60),
        (0, ..) => format!("{hours}h{:02}m", minutes % 60),
        _ => format!("{days}d{:02}h", hours % 24),
    }
}

fn milliseconds(seconds: f64) -> String {
    let ms = seconds * 1000.0;
    if ms < 10.0 {
        format!("{ms:.1} ms")
    } else {
        format!("{ms:.0} ms")
    }
}

/// Three digits and a unit of thousands.
#[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
fn bytes(number: u64) -> String {
    let mut value = number as f64;
    for unit in ["B", "kB", "MB", "GB"] {
        if value < 999.5 {
            return if unit == "B" || value >= 99.95 {
                format!("{value:.0} {unit}")
            } else {
                format!("{value:.1} {unit}")
            };
        }
        value /= 1000.0;
    }
    format!("{value:.1} TB")
}

#[cfg(test)]
mod tests;
