//! Named clients, what each may use, and what it has moved.

use std::collections::BTreeMap;
use std::sync::Arc;

use quictun_flow::{Allowance, ClientKey, Way};

use crate::report::{ClientReport, ClientTotals};

/// Clients that are counted each for itself: with a thousand, figures about clients would be most of what a scrape reads.
pub(crate) const CLIENTS_MAX: usize = 256;

/// The name under which all named clients are counted for which no place of their own is left.
pub const OTHERS: &str = "_others";

#[derive(Debug, Default)]
pub(crate) struct Clients {
    reports: Vec<ClientReport>,
    known: Vec<Known>,
    by_name: BTreeMap<Arc<str>, ClientKey>,
    /// Clients that have used up what they may use in a month, and of which that was not told yet.
    used_up: Vec<ClientKey>,
}

#[derive(Debug)]
struct Known {
    name: Arc<str>,
    /// Where its report is.
    report: usize,
    allowance: Option<Arc<Allowance>>,
    /// What it may use was used up when the allowance had been renewed so often.
    told: Option<u32>,
}

impl Clients {
    /// The place of a client, which it keeps whether or not it is connected. Reports of further ones are one.
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
        let key = ClientKey(u32::try_from(self.known.len()).unwrap_or(u32::MAX));
        let name: Arc<str> = name.into();
        self.known.push(Known {
            name: name.clone(),
            report,
            allowance: None,
            told: None,
        });
        self.by_name.insert(name, key);
        key
    }

    /// The client may use this.
    pub(crate) fn allow(&mut self, name: &str, allowance: Arc<Allowance>) {
        let key = self.key(name);
        if let Some(known) = self.known_mut(key) {
            known.allowance = Some(allowance);
        }
    }

    /// What a client may use, where that was said.
    pub(crate) fn allowance(&self, key: ClientKey) -> Option<&Arc<Allowance>> {
        let known = self.known.get(usize::try_from(key.0).ok()?)?;
        known.allowance.as_ref()
    }

    /// Where the traffic of this client is counted, if there is a client.
    pub(crate) fn totals(&mut self, key: Option<ClientKey>) -> Option<&mut ClientTotals> {
        let report = self.known.get(usize::try_from(key?.0).ok()?)?.report;
        Some(&mut self.reports.get_mut(report)?.totals)
    }

    /// Counts bytes that a client has moved.
    pub(crate) fn note_moved(&mut self, key: Option<ClientKey>, way: Way, bytes: u64) {
        if bytes == 0 {
            return;
        }
        if let Some(totals) = self.totals(key) {
            match way {
                Way::Up => totals.bytes_to_app += bytes,
                Way::Down => totals.bytes_to_tunnel += bytes,
            }
        }
        let Some(key) = key else {
            return;
        };
        let Some(known) = self.known_mut(key) else {
            return;
        };
        let Some(allowance) = &known.allowance else {
            return;
        };
        allowance.note_moved(way, bytes);
        if allowance.is_used_up() {
            let renewals = Some(allowance.renewals());
            if std::mem::replace(&mut known.told, renewals) != renewals {
                self.used_up.push(key);
            }
        }
    }

    /// The next client that has used up what it may use; told once, until it may use more.
    pub(crate) fn pop_used_up(&mut self) -> Option<Arc<str>> {
        let key = self.used_up.pop()?;
        Some(self.known_mut(key)?.name.clone())
    }

    pub(crate) fn reports(&self) -> Vec<ClientReport> {
        let mut reports = self.reports.clone();
        for known in &self.known {
            if let Some(report) = reports.get_mut(known.report)
                && report.name == known.name
            {
                report.usage = known.allowance.as_ref().map(|it| it.usage());
            }
        }
        reports
    }

    fn known_mut(&mut self, key: ClientKey) -> Option<&mut Known> {
        self.known.get_mut(usize::try_from(key.0).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_keeps_its_place_and_the_places_are_bounded() {
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
