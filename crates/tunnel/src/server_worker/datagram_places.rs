//! How many datagram flows each client has on a worker. They are cheap to open: a source port each.

use std::collections::HashMap;

use quictun_engine::FlowId;
use quictun_trust::shares::Holder;

/// Datagram flows of one client on one worker.
const MAX: usize = 1024;

/// Number of flows from which on a new one ends another one.
const MANY: usize = MAX / 4 * 3;

#[derive(Debug, Default)]
pub(crate) struct DatagramPlaces {
    of_flows: HashMap<FlowId, Holder>,
    counts: HashMap<Holder, usize>,
}

impl DatagramPlaces {
    /// Returns whether there is a place for a flow of the client.
    pub(super) fn has_place(&self, holder: &Holder) -> bool {
        self.counts.get(holder).is_none_or(|count| *count < MAX)
    }

    /// Takes a place for a flow. Returns false if its client has as many as it may.
    pub(super) fn take(&mut self, flow: FlowId, holder: &Holder) -> bool {
        if !self.has_place(holder) {
            return false;
        }
        *self.counts.entry(holder.clone()).or_insert(0) += 1;
        self.of_flows.insert(flow, holder.clone());
        true
    }

    /// Returns whether a client has nearly as many flows as it may. The rest is for flows whose end is on its way.
    pub(super) fn has_many(&self, holder: &Holder) -> bool {
        self.counts.get(holder).is_some_and(|count| *count >= MANY)
    }

    /// Gives the place of a flow back, if it has one.
    pub(super) fn give_back(&mut self, flow: FlowId) {
        let Some(holder) = self.of_flows.remove(&flow) else {
            return;
        };
        if let Some(count) = self.counts.get_mut(&holder) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&holder);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn flow(number: u64) -> FlowId {
        FlowId(number)
    }

    // PROTOCOL UDP-7: at the limit, and one above.
    #[test]
    fn a_client_has_1024_flows_and_no_more_and_others_are_served() {
        let mut places = DatagramPlaces::default();
        let at = |last| Holder::at(Ipv4Addr::new(10, 0, 0, last).into());
        let (one, other) = (at(1), at(2));
        for number in 0..1024 {
            assert!(places.take(flow(number), &one));
        }
        assert!(!places.take(flow(1024), &one));
        assert!(places.take(flow(1025), &other));
        places.give_back(flow(7));
        places.give_back(flow(7));
        assert!(places.take(flow(1024), &one));
        assert!(!places.take(flow(1026), &one));
        for number in 0..1026 {
            places.give_back(flow(number));
        }
        assert!(places.counts.is_empty() && places.of_flows.is_empty());
    }
}
