//! The state of a process, collected from its answers. Rates are differences between two answers.
//!
//! [`StatusView::learn`] takes an answer, or the reason why there was none. Moments are durations since a fixed one.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use super::minute::{Minute, TrafficDelta};
use crate::ask::plain;
use crate::status::answers::{self, Answer, Status};

/// Time for which a client without connections stays known with its minute: it may come back.
const KEPT: Duration = Duration::from_mins(1);

/// Bytes per second in both directions; `None` until there are two answers to compare.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct TrafficRate {
    /// From the process into the tunnel.
    pub(super) to_tunnel: Option<f64>,
    pub(super) from_tunnel: Option<f64>,
}

impl TrafficRate {
    pub(super) fn sum(self) -> f64 {
        self.to_tunnel.unwrap_or(0.0) + self.from_tunnel.unwrap_or(0.0)
    }

    fn add(&mut self, other: Self) {
        let add = |to: &mut Option<f64>, other: Option<f64>| {
            if let Some(other) = other {
                *to = Some(to.unwrap_or(0.0) + other);
            }
        };
        add(&mut self.to_tunnel, other.to_tunnel);
        add(&mut self.from_tunnel, other.from_tunnel);
    }
}

/// The connections of one peer, known by its name or its address.
#[derive(Clone, Debug, Default)]
pub(super) struct ClientRow {
    pub(super) name: String,
    pub(super) connections: usize,
    pub(super) flows: usize,
    /// Number of flows that wait for a connection.
    pub(super) waiting: usize,
    /// Bytes that the bonds of the client keep.
    pub(super) kept: u64,
    /// Median round-trip time of the connections whose peer responds, in seconds.
    pub(super) rtt: Option<f64>,
    pub(super) rate: TrafficRate,
    pub(super) minute: Minute,
    rtts: Vec<f64>,
    latest: TrafficDelta,
    seen: Duration,
}

#[derive(Clone, Debug)]
pub(super) struct ConnectionRow {
    pub(super) client: String,
    /// The peer has a name.
    pub(super) named: bool,
    pub(super) address: String,
    pub(super) age: f64,
    pub(super) flows: usize,
    /// Round-trip time in seconds; `None` if the peer does not respond.
    pub(super) rtt: Option<f64>,
    pub(super) limited_by: String,
    pub(super) rate: TrafficRate,
    pub(super) minute: Minute,
    counted: CounterReading,
    at: Duration,
    /// The worker of the connection was in the latest answer. Otherwise the connection is hidden, and kept for a later
    /// answer.
    shown: bool,
}

#[derive(Clone, Debug)]
pub(super) struct FlowRow {
    pub(super) target: String,
    pub(super) address: String,
    pub(super) client: String,
    pub(super) age: f64,
    pub(super) bytes: f64,
    pub(super) rate: TrafficRate,
    counted: CounterReading,
}

/// Counters, and the age of their connection or flow at that moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct CounterReading {
    age: f64,
    to_tunnel: u64,
    from_tunnel: u64,
    packets: u64,
    lost: u64,
}

impl CounterReading {
    /// Returns the rate and the counts since `before`. Returns `None` if no time has passed, or if the counters have
    /// restarted.
    #[expect(
        clippy::cast_precision_loss,
        reason = "rates are shown with three digits"
    )]
    fn since(&self, before: &Self) -> Option<(TrafficRate, TrafficDelta)> {
        let seconds = self.age - before.age;
        let to_tunnel = self.to_tunnel.checked_sub(before.to_tunnel)? as f64;
        let from_tunnel = self.from_tunnel.checked_sub(before.from_tunnel)? as f64;
        if seconds <= 0.0 {
            return None;
        }
        let rate = TrafficRate {
            to_tunnel: Some(to_tunnel / seconds),
            from_tunnel: Some(from_tunnel / seconds),
        };
        let amount = TrafficDelta {
            sent: to_tunnel,
            received: from_tunnel,
            packets: self.packets.saturating_sub(before.packets) as f64,
            lost: self.lost.saturating_sub(before.lost) as f64,
        };
        Some((rate, amount))
    }
}

/// The identity of a connection across all answers of one process.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ConnectionKey {
    worker: usize,
    id: u64,
    opened_at: String,
}

/// The reason why there is no answer, and the moment since when.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct NoAnswer {
    pub(super) since: Duration,
    pub(super) why: String,
}

#[derive(Debug, Default)]
pub(super) struct StatusView {
    pub(super) status: Option<Status>,
    pub(super) no_answer: Option<NoAnswer>,
    pub(super) rate: TrafficRate,
    pub(super) minute: Minute,
    /// The moment of the latest answer.
    at: Duration,
    silent: Vec<usize>,
    clients: BTreeMap<String, ClientRow>,
    connections: BTreeMap<ConnectionKey, ConnectionRow>,
    flows: BTreeMap<String, FlowRow>,
}

impl StatusView {
    pub(super) fn clients(&self) -> impl Iterator<Item = &ClientRow> {
        let clients = self.clients.values();
        clients.filter(|client| client.connections > 0 || client.waiting > 0)
    }

    pub(super) fn connections(&self) -> impl Iterator<Item = &ConnectionRow> {
        let connections = self.connections.values();
        connections.filter(|connection| connection.shown)
    }

    pub(super) fn flows(&self) -> impl Iterator<Item = &FlowRow> {
        self.flows.values()
    }

    /// Returns the end of the minute to show at `now`.
    pub(super) fn end(&self, now: Duration) -> Duration {
        if self.no_answer.is_some() {
            now
        } else {
            self.at
        }
    }

    /// Takes an answer that came at `now`, or the reason why there was none.
    pub(super) fn learn(&mut self, answer: Result<Answer, String>, now: Duration) {
        match answer {
            Ok(answer) => self.take(answer, now),
            Err(why) => self.fail(why, now),
        }
    }

    fn fail(&mut self, why: String, now: Duration) {
        let since = self
            .no_answer
            .take()
            .map_or(now, |no_answer| no_answer.since);
        self.no_answer = Some(NoAnswer { since, why });
    }

    /// Takes an answer. If it is from another process than before, all its counters have restarted.
    fn take(&mut self, answer: Answer, now: Duration) {
        let process = |status: &Status| (status.pid, status.started_at.clone());
        let same = self.status.as_ref().map(process) == Some(process(&answer.status));
        if !same {
            self.connections.clear();
            self.flows.clear();
            self.silent.clear();
        }
        let before = same.then_some(self.at);
        self.no_answer = None;
        self.take_connections(answer.connections, before, now);
        self.take_bonds(&answer.bonds, now);
        self.take_flows(answer.tunnels);
        self.status = Some(answer.status);
        self.at = now;
    }

    fn take_connections(
        &mut self,
        answer: answers::Connections,
        before: Option<Duration>,
        now: Duration,
    ) {
        for client in self.clients.values_mut() {
            *client = ClientRow {
                name: std::mem::take(&mut client.name),
                minute: std::mem::take(&mut client.minute),
                seen: client.seen,
                ..ClientRow::default()
            };
        }
        let mut old = std::mem::take(&mut self.connections);
        let mut all = TrafficDelta::default();
        self.rate = TrafficRate::default();
        for connection in answer.connections {
            let key = ConnectionKey {
                worker: connection.worker,
                id: connection.id,
                opened_at: connection.opened_at.clone(),
            };
            // If its worker was in the previous answer, a new connection has made all its counts since then.
            let whole = before.filter(|_| !self.silent.contains(&connection.worker));
            let (connection, amount) = follow(&connection, old.remove(&key), whole, now);
            all += amount;
            self.rate.add(connection.rate);
            let client = self.clients.entry(connection.client.clone()).or_default();
            client.name.clone_from(&connection.client);
            client.connections += 1;
            client.flows += connection.flows;
            client.rtts.extend(connection.rtt);
            client.rate.add(connection.rate);
            client.latest += amount;
            client.seen = now;
            self.connections.insert(key, connection);
        }
        for (key, connection) in old {
            if answer.workers_silent.contains(&key.worker) {
                let shown = false;
                self.connections.insert(
                    key,
                    ConnectionRow {
                        shown,
                        ..connection
                    },
                );
            }
        }
        self.silent = answer.workers_silent;
        self.clients
            .retain(|_, client| now.saturating_sub(client.seen) <= KEPT);
        for client in self.clients.values_mut() {
            client.rtts.sort_by(f64::total_cmp);
            client.rtt = client.rtts.get(client.rtts.len() / 2).copied();
            if let Some(before) = before {
                client.minute.add(client.latest, before, now);
            }
        }
        if let Some(before) = before {
            self.minute.add(all, before, now);
        }
    }

    /// Adds the bonds of named clients. Other clients are listed by the address of a connection, which a bond may lack.
    fn take_bonds(&mut self, answer: &answers::Bonds, now: Duration) {
        for bond in &answer.bonds {
            let Some(name) = bond.client.as_deref().map(plain) else {
                continue;
            };
            let client = self.clients.entry(name.clone()).or_default();
            client.name = name;
            client.waiting += bond.detached_flows;
            client.flows += bond.detached_flows;
            client.kept += bond.kept_bytes;
            client.seen = now;
        }
    }

    fn take_flows(&mut self, answer: answers::Tunnels) {
        let old = std::mem::take(&mut self.flows);
        let clients = self.connections.iter();
        let clients: BTreeMap<(usize, u64), &str> = clients
            .map(|(key, connection)| ((key.worker, key.id), connection.client.as_str()))
            .collect();
        for flow in answer.tunnels {
            let counted = CounterReading {
                age: flow.age_seconds,
                to_tunnel: flow.to_tunnel_bytes,
                from_tunnel: flow.to_app_bytes,
                ..CounterReading::default()
            };
            let before = old.get(&flow.id);
            let rate =
                before.and_then(|before| same_or_since(&counted, &before.counted, before.rate));
            let client = clients.get(&(flow.worker, flow.connection));
            let new = FlowRow {
                target: plain(&flow.target),
                address: plain(&flow.address()),
                client: client.copied().unwrap_or_default().to_owned(),
                age: flow.age_seconds,
                bytes: bytes(&counted),
                rate: rate.unwrap_or_default(),
                counted,
            };
            self.flows.insert(flow.id, new);
        }
    }
}

/// Returns the rate between two answers. If both are from the same moment, returns the earlier rate.
fn same_or_since(
    counted: &CounterReading,
    before: &CounterReading,
    rate: TrafficRate,
) -> Option<TrafficRate> {
    if counted == before {
        return Some(rate);
    }
    counted.since(before).map(|(rate, _)| rate)
}

#[expect(clippy::cast_precision_loss, reason = "the number is only for sorting")]
fn bytes(counted: &CounterReading) -> f64 {
    counted.to_tunnel as f64 + counted.from_tunnel as f64
}

/// Merges a connection with its state at the previous answer, if it was there. Returns it with its counts since then.
fn follow(
    connection: &answers::Connection,
    old: Option<ConnectionRow>,
    before: Option<Duration>,
    now: Duration,
) -> (ConnectionRow, TrafficDelta) {
    let counted = CounterReading {
        age: connection.age_seconds,
        to_tunnel: connection.sent_bytes,
        from_tunnel: connection.received_bytes,
        packets: connection.packets_sent,
        lost: connection.packets_lost,
    };
    let (mut minute, from, since) = match old {
        // Both answers are from the same moment.
        Some(old) if old.counted == counted => {
            return (
                ConnectionRow { shown: true, ..old },
                TrafficDelta::default(),
            );
        }
        Some(old) => (old.minute, Some(old.at), counted.since(&old.counted)),
        None => {
            let since = before.and_then(|_| counted.since(&CounterReading::default()));
            (Minute::default(), before, since)
        }
    };
    let (rate, amount) = since.unwrap_or_default();
    if let (Some(from), Some(_)) = (from, since) {
        minute.add(amount, from, now);
    }
    let new = ConnectionRow {
        client: client(connection),
        named: connection.peer.is_some(),
        address: plain(&connection.remote),
        age: connection.age_seconds,
        flows: connection.flows,
        rtt: (!connection.unresponsive).then_some(connection.rtt_seconds),
        limited_by: plain(&connection.limited_by),
        rate,
        minute,
        counted,
        at: now,
        shown: true,
    };
    (new, amount)
}

/// Returns the name of the peer, or its address without a name.
fn client(connection: &answers::Connection) -> String {
    if let Some(peer) = &connection.peer {
        return plain(peer);
    }
    let address = connection.remote.parse::<SocketAddr>();
    address.map_or_else(
        |_| plain(&connection.remote),
        |address| address.ip().to_canonical().to_string(),
    )
}

#[cfg(test)]
mod tests;
