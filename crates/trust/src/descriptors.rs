//! Shares the descriptors of a process fairly between clients.
//!
//! A flow counts for its client from its dial to its end, in whichever worker it runs, and a listener as long as it is
//! open. A client that holds most of the descriptors is therefore refused, while a client that holds few still gets
//! some. See `crate::shares`.

use std::collections::HashMap;

use quictun_engine::FlowId;

use crate::shares::{CommonShares, Holder};

/// Descriptors that flows and clients' listeners do not get: they serve look-ups, HTTP, log files and the workers themselves. If the process
/// has few descriptors, the reserve is a quarter of them.
const RESERVE: u64 = 512;

/// A single client may hold four fifths of the places, because it is often the only one.
const WEIGHT: usize = 4;

/// The flows of one worker that hold a descriptor, and the holder of each.
#[derive(Debug)]
pub struct Descriptors {
    places: CommonShares,
    flows: HashMap<FlowId, Holder>,
}

/// Returns the places for flows and clients' listeners in a process that may have `limit` descriptors.
pub fn places(limit: u64) -> CommonShares {
    let flows = limit - RESERVE.min(limit / 4);
    CommonShares::new(usize::try_from(flows).unwrap_or(usize::MAX), WEIGHT)
}

impl Descriptors {
    /// Creates the record of a worker whose flows hold no descriptor yet. All workers share `places`.
    pub fn new(places: CommonShares) -> Self {
        Self {
            places,
            flows: HashMap::new(),
        }
    }

    /// Takes a descriptor for a flow. Returns false if the flow's client already holds its share.
    pub fn open(&mut self, flow: FlowId, holder: &Holder) -> bool {
        let open = self.places.take(holder);
        if open {
            self.flows.insert(flow, holder.clone());
        }
        open
    }

    /// Takes a descriptor for a flow in exchange for one of the holder's flows of another worker, which will soon end.
    pub fn open_in_exchange(&mut self, flow: FlowId, holder: &Holder) {
        self.places.take_above(holder);
        self.flows.insert(flow, holder.clone());
    }

    /// Passes the descriptor of a flow that is about to end on to another flow of the same holder. Returns false if the
    /// flow has none.
    pub fn pass_on(&mut self, from: FlowId, to: FlowId) -> bool {
        let holder = self.flows.remove(&from);
        let passed = holder.map(|holder| self.flows.insert(to, holder));
        passed.is_some()
    }

    /// Gives back the descriptor of a flow that has ended. Does nothing if the flow never had one.
    pub fn close(&mut self, flow: FlowId) {
        if let Some(holder) = self.flows.remove(&flow) {
            self.places.give_back(&holder);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(number: u8) -> Holder {
        Holder::at([192, 0, 2, number].into())
    }

    #[test]
    fn workers_share_the_descriptors_of_the_process() {
        let places = places(40);
        let [mut one, mut two] = [(); 2].map(|()| Descriptors::new(places.clone()));
        let greedy = (0..100)
            .filter(|&flow| one.open(FlowId(flow), &client(1)))
            .count();
        assert_eq!(greedy, 24, "four fifths of 30");
        assert!(!two.open(FlowId(0), &client(1)));
        assert!(two.open(FlowId(0), &client(2)));
        two.close(FlowId(0));
        for flow in 0..100 {
            // Some of these flows never had a descriptor.
            one.close(FlowId(flow));
        }
        assert!(two.open(FlowId(1), &client(1)));
        assert!(one.flows.is_empty());
    }

    #[test]
    fn a_reserve_is_kept_and_flows_get_the_rest() {
        let flows = |limit| {
            let mut all = Descriptors::new(places(limit));
            (0..10_000)
                .filter(|&flow| {
                    let number = u8::try_from(flow % 200).expect("below 200");
                    all.open(FlowId(flow), &client(number))
                })
                .count()
        };
        assert!((40..=48).contains(&flows(64)), "{}", flows(64));
        assert!((3500..=3584).contains(&flows(4096)), "{}", flows(4096));
        assert_eq!(flows(u64::MAX), 10_000);
    }
}
