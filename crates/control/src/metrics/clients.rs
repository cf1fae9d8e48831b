//! Combines the workers' reports about named clients.

use std::collections::BTreeMap;

use quictun_engine::report::{ClientTotals, ClientUsage, OTHERS};

use super::list::MetricsView;

/// The figures of one named client, over all workers.
#[derive(Debug, Default)]
pub(super) struct ClientFigures {
    pub(super) connections: u64,
    pub(super) flows: u64,
    pub(super) detached: u64,
    pub(super) totals: ClientTotals,
    pub(super) usage: Option<ClientUsage>,
}

/// Returns all named clients by name. The engines bound their number.
pub(super) fn of<'a>(view: &MetricsView<'a>) -> BTreeMap<&'a str, ClientFigures> {
    let mut clients = BTreeMap::<&str, ClientFigures>::new();
    for report in view.counters.iter().flat_map(|worker| &worker.clients) {
        let client = clients.entry(&report.name).or_default();
        // Every worker reports the same usage.
        client.usage = client.usage.or(report.usage);
        let sums = &mut client.totals;
        let more = report.totals;
        sums.bytes_to_tunnel += more.bytes_to_tunnel;
        sums.bytes_to_app += more.bytes_to_app;
        sums.flows_finished += more.flows_finished;
        sums.flows_reset += more.flows_reset;
        sums.flows_refused += more.flows_refused;
        sums.flows_moved += more.flows_moved;
    }
    for connection in view.collected.connections() {
        if let Some(client) = named(&mut clients, connection.peer.as_deref()) {
            client.connections += 1;
            client.flows += connection.flows as u64;
        }
    }
    for bond in view.collected.bonds() {
        if let Some(client) = named(&mut clients, bond.client.as_deref()) {
            client.flows += bond.detached as u64;
            client.detached += bond.detached as u64;
        }
    }
    clients
}

/// Returns the entry of a client: its own, or the common entry of clients that have none.
fn named<'a>(
    clients: &'a mut BTreeMap<&str, ClientFigures>,
    name: Option<&str>,
) -> Option<&'a mut ClientFigures> {
    let name = name?;
    let known = clients.contains_key(name);
    clients.get_mut(if known { name } else { OTHERS })
}
