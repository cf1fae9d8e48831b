//! Named clients, and what each has moved.

use std::collections::BTreeMap;
use std::sync::Arc;

use quictun_flow::ClientKey;

use crate::report::{ClientReport, ClientTotals};

/// Clients that are counted each for itself: with a thousand, figures about clients would be most of what a scrape reads.
pub(crate) const CLIENTS_MAX: usize = 256;

/// The name under which all named clients are counted for which no place of their own is left.
pub const OTHERS: &str = "_others";

#[derive(Debug, Default)]
pub(crate) struct Clients {
    reports: Vec<ClientReport>,
    by_name: BTreeMap<Arc<str>, ClientKey>,
}

impl Clients {
    /// The place of a client, which it keeps whether or not it is connected. Further ones share one place.
    pub(crate) fn key(&mut self, name: &str) -> ClientKey {
        let name = if self.by_name.contains_key(name) || self.reports.len() < CLIENTS_MAX {
            name
        } else {
            OTHERS
        };
        if let Some(&key) = self.by_name.get(name) {
            return key;
        }
        let key = ClientKey(u16::try_from(self.reports.len()).unwrap_or(u16::MAX));
        let name: Arc<str> = name.into();
        self.reports.push(ClientReport {
            name: name.clone(),
            totals: ClientTotals::default(),
        });
        self.by_name.insert(name, key);
        key
    }

    /// Where the traffic of this client is counted, if there is a client.
    pub(crate) fn totals(&mut self, key: Option<ClientKey>) -> Option<&mut ClientTotals> {
        let report = self.reports.get_mut(usize::from(key?.0))?;
        Some(&mut report.totals)
    }

    pub(crate) fn reports(&self) -> &[ClientReport] {
        &self.reports
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
        let last = &clients.reports()[CLIENTS_MAX];
        assert_eq!((&*last.name, last.totals.flows_finished), (OTHERS, 2));
        for (number, &key) in keys.iter().enumerate() {
            assert_eq!(clients.key(&name(number)), key);
        }
        assert!(clients.totals(None).is_none());
    }
}
