//! Renders the answers of the HTTP interface as text of 80 columns.

use jiff::Timestamp;
use quictun_control::put;
use quictun_control::terminal::push_broken;

use super::answers::{
    Answer, Bond, Bonds, Certificate, Connections, Server, Status, TakeOverFates, Tunnel, Tunnels,
};
use super::cells::{cut, left, right, width};
use super::quantities::{age, bytes, count, milliseconds, percent};
use crate::ask::plain;

/// Default width of a terminal, columns.
const WIDTH: usize = 80;

/// Indentation of the continuation of a line, columns.
const HANG: usize = 2;

/// Limit of a table's rows. The rest is counted.
const ROWS_MAX: usize = 20;

pub(super) fn page(answer: &Answer, now: Timestamp) -> String {
    let status = &answer.status;
    let mut out = String::new();
    head(&mut out, status, now);
    servers_table(&mut out, &status.servers);
    carriers(&mut out, &status.servers);
    connections_table(&mut out, status.connections, &answer.connections);
    bonds_table(&mut out, status, &answer.bonds);
    tunnels_table(&mut out, status, &answer.tunnels);
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
    // Reasons and errors are shown whole.
    let mut line = |text: String| {
        push_broken(out, &plain(&text), 0, HANG, WIDTH);
        out.push('\n');
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
        match listen.split_once(' ') {
            Some(("udp", address)) => line(format!("listens on UDP {address}")),
            Some(("tls", address)) => line(format!("listens on TCP {address}, for TLS")),
            _ => line(format!("listens on {listen}")),
        }
    }
    if let Some(proxy) = &status.outbound_proxy {
        line(format!("TLS over TCP leads through the proxy {proxy}"));
    }
    if let Some(certificate) = &status.certificate {
        certificate_lines(certificate, now, &mut line);
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

/// Writes the lines about the certificate that programs without quictun see.
fn certificate_lines(certificate: &Certificate, now: Timestamp, line: &mut impl FnMut(String)) {
    let names = certificate.names.join(", ");
    let left = |at: &Option<String>| {
        let at = at.as_ref()?.parse::<Timestamp>().ok()?;
        Some(at.duration_since(now).as_secs_f64())
    };
    let renewal = left(&certificate.next_attempt_at);
    let renewal = renewal.map_or_else(String::new, |time| format!("; next order in {}", age(time)));
    line(match left(&certificate.expires_at) {
        None => format!("certificate for {names}: NONE YET{renewal}"),
        Some(time) if time < 0.0 => {
            format!(
                "certificate for {names}: EXPIRED {} ago{renewal}",
                age(-time)
            )
        }
        Some(time) => format!("certificate for {names}: expires in {}{renewal}", age(time)),
    });
    if let Some(problem) = &certificate.problem {
        line(format!("no new certificate: {problem}"));
    }
}

/// The heading of a column and its width, which is negative if its cells are aligned to the left.
type ColumnHeading = (&'static str, isize);

const SERVER: [ColumnHeading; 4] = [("SERVER", -29), ("RTT", 7), ("FLOWS", 5), ("STATE", -36)];

const RECORD: [ColumnHeading; 6] = [
    ("SERVER", -25),
    ("PRIO", 5),
    ("WEIGHT", 6),
    ("RTT", 7),
    ("FLOWS", 5),
    ("STATE", -27),
];

/// Renders the table of several servers, or of a service's servers. For a single server, the connections say enough.
fn servers_table(out: &mut String, servers: &[Server]) {
    let have_records = servers.iter().any(|server| server.priority.is_some());
    if servers.len() < 2 && !have_records {
        return;
    }
    put!(out, "\n{}\n", count(servers.len(), "server"));
    if have_records {
        let number = |number: Option<u16>| number.map(|it| it.to_string()).unwrap_or_default();
        let rows = servers.iter().map(|server| {
            [
                server.name.clone(),
                number(server.priority),
                number(server.weight),
                server.rtt_seconds.map(milliseconds).unwrap_or_default(),
                server.flows.to_string(),
                server.why.clone(),
            ]
        });
        return table(out, &RECORD, rows);
    }
    let rows = servers.iter().map(|server| {
        [
            server.name.clone(),
            server.rtt_seconds.map(milliseconds).unwrap_or_default(),
            server.flows.to_string(),
            server.why.clone(),
        ]
    });
    table(out, &SERVER, rows);
}

const CONNECTION: [ColumnHeading; 8] = [
    ("PEER", -10),
    ("ADDRESS", -21),
    ("UP", 7),
    ("FLOWS", 5),
    ("RTT", 7),
    ("LOSS", 6),
    ("SENT", 8),
    ("RECEIVED", 8),
];

/// Renders a line for each server to which QUIC does not pass, to which transfers use TLS, or that has an address of its
/// own for TLS.
fn carriers(out: &mut String, servers: &[Server]) {
    for server in servers {
        let name = &server.name;
        if let Some(why) = &server.transfers_over_tls {
            put!(out, "\nTransfers to {name} use TLS over TCP: {why}.\n");
        }
        let address = server.tls_address.as_ref();
        let to = address.map(|address| format!(" to {address}"));
        let to = to.unwrap_or_default();
        if server.quic != "blocked" {
            if address.is_some() {
                put!(
                    out,
                    "\nWhere QUIC does not pass to {name}, TLS over TCP{to} does.\n"
                );
            }
            continue;
        }
        let again = match server.quic_tried_in_seconds {
            Some(left) => format!("it is tried again in {}", age(left)),
            None => "it is being tried again".to_owned(),
        };
        let carries = if server.rtt_seconds.is_some() {
            "carries the flows"
        } else {
            "is tried first"
        };
        put!(
            out,
            "\nQUIC does not pass to {name}: TLS over TCP{to} {carries}, and {again}.\n"
        );
    }
}

fn connections_table(out: &mut String, all: usize, found: &Connections) {
    put!(out, "\n{}\n", count(all, "connection"));
    if found.connections.is_empty() {
        return;
    }
    let rows = found.connections.iter().map(|connection| {
        let peer = connection
            .peer
            .as_deref()
            .or(connection.protocol.as_deref());
        let is_program = matches!(connection.protocol.as_deref(), Some("http/1.1" | "h2"));
        let rtt = if connection.unresponsive {
            "SILENT".to_owned()
        } else if is_program {
            // A program at the HTTPS proxy answers no PING.
            "-".to_owned()
        } else {
            milliseconds(connection.rtt_seconds)
        };
        // Only the system knows what TCP loses.
        let loss = if is_program {
            "HTTPS".to_owned()
        } else if connection.carrier == "tls" {
            "TLS".to_owned()
        } else {
            percent(connection.loss_ratio)
        };
        [
            peer.unwrap_or("handshake").to_owned(),
            connection.remote.clone(),
            age(connection.age_seconds),
            connection.flows.to_string(),
            rtt,
            loss,
            bytes(connection.sent_bytes),
            bytes(connection.received_bytes),
        ]
    });
    table(out, &CONNECTION, rows);
}

const BOND: [ColumnHeading; 5] = [
    ("CLIENT", -29),
    ("BOND", -21),
    ("WAITS", 7),
    ("FLOWS", 9),
    ("KEPT", 9),
];

/// Renders the bonds without a connection. Of the other bonds, only the number is shown.
fn bonds_table(out: &mut String, status: &Status, found: &Bonds) {
    if status.bonds == 0 && status.moves == 0 {
        return;
    }
    let kept = bytes(status.kept_bytes);
    let mut text = format!("{}, {kept} kept", count(status.bonds, "bond"));
    if let Some(moves) = status.moves_told() {
        text.extend(["; ", &moves]);
    }
    put!(out, "\n{}\n", cut(&text, WIDTH));
    let waiting = found
        .bonds
        .iter()
        .filter(|bond| bond.alone_seconds.is_some());
    let waiting: Vec<&Bond> = waiting.collect();
    if waiting.is_empty() {
        return;
    }
    let rows = waiting.into_iter().map(|bond| {
        [
            bond.client.clone().unwrap_or_default(),
            bond.id.clone(),
            bond.alone_seconds.map(age).unwrap_or_default(),
            bond.detached_flows.to_string(),
            bytes(bond.kept_bytes),
        ]
    });
    table(out, &BOND, rows);
}

/// Renders the fate of the flows if another process took over, unless all of them would continue.
fn take_over_line(out: &mut String, fates: &TakeOverFates) {
    let lost = [
        (fates.without_bond, "without a bond"),
        (fates.half_reset, "reset in one direction"),
        (fates.unanswered, "not answered yet"),
        (fates.own_socket, "that only this process can carry"),
    ];
    let lost = lost.into_iter().filter(|&(number, _)| number > 0);
    let lost: Vec<String> = lost
        .map(|(number, why)| format!("{number} {why}"))
        .collect();
    if !lost.is_empty() {
        let text = format!(
            "--take-over would continue {}, and reset the others: {}",
            fates.continuing,
            lost.join(", ")
        );
        push_broken(out, &text, 0, HANG, WIDTH);
        out.push('\n');
    }
}

fn tunnels_table(out: &mut String, status: &Status, found: &Tunnels) {
    put!(out, "\n{}\n", count(status.tunnels, "flow"));
    if let Some(fates) = &status.take_over {
        take_over_line(out, fates);
    }
    if found.tunnels.is_empty() {
        return;
    }
    let mut busy: Vec<&Tunnel> = found.tunnels.iter().collect();
    busy.sort_by_key(|tunnel| {
        std::cmp::Reverse(tunnel.to_tunnel_bytes.saturating_add(tunnel.to_app_bytes))
    });
    let rows = busy.into_iter().map(|tunnel| {
        [
            tunnel.target.clone(),
            tunnel.address().into_owned(),
            age(tunnel.age_seconds),
            bytes(tunnel.to_tunnel_bytes),
            bytes(tunnel.to_app_bytes),
        ]
    });
    let columns: [ColumnHeading; 5] = [
        ("TARGET", -29),
        (status.address_heading(), -21),
        ("UP", 7),
        ("TO TUNNEL", 9),
        ("TO APP", 9),
    ];
    table(out, &columns, rows);
}

fn table<const N: usize>(
    out: &mut String,
    columns: &[ColumnHeading; N],
    rows: impl ExactSizeIterator<Item = [String; N]>,
) {
    let mut line = |cells: [&str; N]| {
        let mut text = String::new();
        for (number, (cell, (_, columns))) in cells.iter().zip(columns).enumerate() {
            let cell = plain(cell);
            if number > 0 {
                text.push(' ');
            }
            if *columns >= 0 {
                text.push_str(&right(&cell, columns.unsigned_abs()));
            } else if number + 1 < N {
                text.push_str(&left(&cell, columns.unsigned_abs()));
            } else {
                // The last column holds sentences, which are shown whole.
                let at = width(&text);
                push_broken(&mut text, &cell, at, at, WIDTH);
            }
        }
        put!(out, "{}\n", text.trim_end());
    };
    let more = rows.len().saturating_sub(ROWS_MAX);
    line(std::array::from_fn(|n| columns[n].0));
    for row in rows.take(ROWS_MAX) {
        line(std::array::from_fn(|n| row[n].as_str()));
    }
    if more > 0 {
        put!(out, "and {more} more: --json shows all\n");
    }
}

#[cfg(test)]
mod tests;
