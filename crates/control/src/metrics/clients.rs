//! What the workers say of named clients, put together.

use std::collections::BTreeMap;

use quictun_engine::report::{ClientTotals, ConnectionReport, OTHERS};

use super::list::View;

/// One named client, over all workers.
#[derive(Debug, Default)]
pub(super) struct Client {
    pub(super) connections: u64,
    pub(super) flows: u64,
    pub(super) totals: ClientTotals,
}

/// All named clients by name. Their number is bounded by the engines.
pub(super) fn of<'a>(view: &View<'a>) -> BTreeMap<&'a str, Client> {
    let mut clients = BTreeMap::<&str, Client>::new();
    for report in view.counters.iter().flat_map(|worker| &worker.clients) {
        let sums = &mut clients.entry(&report.name).or_default().totals;
        let more = report.totals;
        sums.bytes_to_tunnel += more.bytes_to_tunnel;
        sums.bytes_to_app += more.bytes_to_app;
        sums.flows_finished += more.flows_finished;
        sums.flows_reset += more.flows_reset;
        sums.flows_refused += more.flows_refused;
    }
    for connection in view.collected.connections() {
        count(&mut clients, connection);
    }
    clients
}

fn count(clients: &mut BTreeMap<&str, Client>, connection: &ConnectionReport) {
    let Some(name) = &connection.peer else {
        return;
    };
    let known = clients.contains_key(name.as_str());
    let name = if known { name } else { OTHERS };
    if let Some(client) = clients.get_mut(name) {
        client.connections += 1;
        client.flows += connection.flows as u64;
    }
}
