//! Named clients: what each may use, and what it has moved.

use std::collections::BTreeMap;
use std::sync::Arc;

use quictun_flow::{Allowance, ClientKey, FlowDirection};

use crate::report::{ClientReport, ClientTotals};

/// Limit for clients with counters of their own. With a thousand, client metrics would dominate every scrape.
pub(crate) const CLIENTS_MAX: usize = 256;

/// The name under which named clients beyond the first 256 are counted together.
pub const OTHERS: &str = "_others";

#[derive(Debug, Default)]
pub(crate) struct Clients {
    reports: Vec<ClientReport>,
    entries: Vec<ClientEntry>,
    by_name: BTreeMap<Arc<str>, ClientKey>,
    /// Clients that have used up their monthly quota, to be reported.
    used_up: Vec<ClientKey>,
}

#[derive(Debug)]
struct ClientEntry {
    name: Arc<str>,
    /// Index of the client's report in `Clients::reports`.
    report: usize,
    allowance: Option<Arc<Allowance>>,
    /// Number of renewals of the allowance when its exhaustion was last reported.
    reported_renewals: Option<u32>,
}

impl Clients {
    /// Returns the key of a client, which it keeps whether or not it is connected. Clients beyond the limit share one
    /// report.
    pub(crate) fn key(&mut self, name: &str) -> ClientKey {
        if let Some(&key) = self.by_name.get(name) {
            return key;
        }
        let full = self.reports.len() >= CLIENTS_MAX;
        let shown = if full { OTHERS } else { name };
        let report = self.reports.iter().rposition(|it| *it.name == *shown);
        let report = report.unwrap_or_else(|| {
            self.reports.push(ClientReport {
                name: shown.into(),
                totals: ClientTotals::default(),
                usage: None,
            });
            self.reports.len() - 1
        });
        let key = ClientKey(u32::try_from(self.entries.len()).unwrap_or(u32::MAX));
        let name: Arc<str> = name.into();
        self.entries.push(ClientEntry {
            name: name.clone(),
            report,
            allowance: None,
            reported_renewals: None,
        });
        self.by_name.insert(name, key);
        key
    }

    /// Returns the name of a client.
    pub(crate) fn name(&self, key: ClientKey) -> Option<String> {
        let known = self.entries.get(usize::try_from(key.0).ok()?)?;
        Some(known.name.as_ref().to_owned())
    }

    /// Sets the allowance of a client.
    pub(crate) fn allow(&mut self, name: &str, allowance: Arc<Allowance>) {
        let key = self.key(name);
        if let Some(known) = self.entry_mut(key) {
            known.allowance = Some(allowance);
        }
    }

    /// Returns the allowance of a client, if one was set.
    pub(crate) fn allowance(&self, key: ClientKey) -> Option<&Arc<Allowance>> {
        let known = self.entries.get(usize::try_from(key.0).ok()?)?;
        known.allowance.as_ref()
    }

    /// Returns the counters of this client, if there is one.
    pub(crate) fn totals(&mut self, key: Option<ClientKey>) -> Option<&mut ClientTotals> {
        let report = self.entries.get(usize::try_from(key?.0).ok()?)?.report;
        Some(&mut self.reports.get_mut(report)?.totals)
    }

    /// Counts bytes that a client has moved.
    pub(crate) fn note_moved(&mut self, key: Option<ClientKey>, way: FlowDirection, bytes: u64) {
        if bytes == 0 {
            return;
        }
        if let Some(totals) = self.totals(key) {
            match way {
                FlowDirection::Up => totals.bytes_to_app += bytes,
                FlowDirection::Down => totals.bytes_to_tunnel += bytes,
            }
        }
        let Some(key) = key else {
            return;
        };
        let Some(known) = self.entry_mut(key) else {
            return;
        };
        let Some(allowance) = &known.allowance else {
            return;
        };
        allowance.note_moved(way, bytes);
        if allowance.is_used_up() {
            let renewals = Some(allowance.renewals());
            if std::mem::replace(&mut known.reported_renewals, renewals) != renewals {
                self.used_up.push(key);
            }
        }
    }

    /// Returns the next client that has used up its quota. Each client is reported once, until it may use more.
    pub(crate) fn pop_used_up(&mut self) -> Option<Arc<str>> {
        let key = self.used_up.pop()?;
        Some(self.entry_mut(key)?.name.clone())
    }

    pub(crate) fn reports(&self) -> Vec<ClientReport> {
        let mut reports = self.reports.clone();
        for known in &self.entries {
            if let Some(report) = reports.get_mut(known.report)
                && report.name == known.name
            {
                report.usage = known.allowance.as_ref().map(|it| it.usage());
            }
        }
        reports
    }

    fn entry_mut(&mut self, key: ClientKey) -> Option<&mut ClientEntry> {
        self.entries.get_mut(usize::try_from(key.0).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_keeps_its_key_and_the_reports_are_bounded() {
        let mut clients = Clients::default();
        let name = |number: usize| format!("client {number}");
        let keys: Vec<ClientKey> = (0..CLIENTS_MAX)
            .map(|number| clients.key(&name(number)))
            .collect();
        for more in [CLIENTS_MAX, CLIENTS_MAX + 1] {
            let key = clients.key(&name(more));
            if let Some(totals) = clients.totals(Some(key)) {
                totals.flows_finished += 1;
            }
        }
        assert_eq!(clients.reports().len(), CLIENTS_MAX + 1);
        let reports = clients.reports();
        let last = &reports[CLIENTS_MAX];
        assert_eq!((&*last.name, last.totals.flows_finished), (OTHERS, 2));
        for (number, &key) in keys.iter().enumerate() {
            assert_eq!(clients.key(&name(number)), key);
        }
        assert!(clients.totals(None).is_none());
    }
}
