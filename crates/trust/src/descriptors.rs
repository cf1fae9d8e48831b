//! Shares the descriptors of a process fairly between clients.
//!
//! A flow counts for its client from its dial to its end, in whichever worker it runs, and a listener as long as it is
//! open. A client that holds most of the descriptors is therefore refused, while a client that holds few still gets
//! some. See `crate::shares`.

use std::collections::HashMap;

use quictun_engine::FlowId;

use crate::shares::{CommonShares, Holder, SharePlace};

/// Descriptors that flows and clients' listeners do not get: they serve look-ups, HTTP, log files and the workers themselves. If the process
/// has few descriptors, the reserve is a quarter of them.
const RESERVE: u64 = 512;

/// A single client may hold four fifths of the places, because it is often the only one.
const WEIGHT: usize = 4;

/// The places of strangers that have connected over TCP, as a part of all, with bounds. The upper bound has room for all
/// strangers that a server with much memory keeps, and for as many that wait for another worker.
const STRANGERS_PART: usize = 8;
const STRANGERS_MIN: usize = 32;
const STRANGERS_MAX: usize = 4096;

/// A single address may hold half of the places of strangers.
const STRANGERS_WEIGHT: usize = 1;

/// The flows of one worker that hold a descriptor, and the holder of each.
#[derive(Debug)]
pub struct Descriptors {
    places: CommonShares,
    flows: HashMap<FlowId, Holder>,
}

/// Returns the places for flows and clients' listeners in a process that may have `limit` descriptors.
pub fn places(limit: u64) -> CommonShares {
    CommonShares::new(shared(limit), WEIGHT)
}

/// The places of a server that accepts TCP connections of strangers.
#[derive(Clone, Debug)]
pub struct ServerPlaces {
    /// Places for flows, clients' listeners, and TCP connections of admitted clients.
    pub admitted: CommonShares,
    /// Places for TCP connections whose clients have not been admitted.
    pub strangers: CommonShares,
    /// Number of places in `strangers`. A server without a TCP port has no limit of its own.
    pub strangers_max: usize,
}

impl ServerPlaces {
    /// Divides the places in a process that may have `limit` descriptors.
    pub fn new(limit: u64) -> Self {
        let all = shared(limit);
        let strangers = (all / STRANGERS_PART)
            .clamp(STRANGERS_MIN, STRANGERS_MAX)
            .min(all / 2);
        Self {
            admitted: CommonShares::new(all - strangers, WEIGHT),
            strangers: CommonShares::new(strangers, STRANGERS_WEIGHT),
            strangers_max: strangers,
        }
    }

    /// Gives all places to clients: the server accepts no TCP connections of strangers.
    pub fn without_tcp(limit: u64) -> Self {
        Self {
            admitted: places(limit),
            strangers: CommonShares::new(0, STRANGERS_WEIGHT),
            strangers_max: usize::MAX,
        }
    }
}

/// Returns the number of descriptors that are shared in a process that may have `limit` of them.
fn shared(limit: u64) -> usize {
    usize::try_from(limit - RESERVE.min(limit / 4)).unwrap_or(usize::MAX)
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

    /// Takes a place for the TCP connection of a client that is admitted. `None` if the client already holds its share.
    pub fn carrier(&self, holder: &Holder) -> Option<SharePlace> {
        self.places.place(holder)
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
    fn strangers_take_a_small_part_and_leave_the_rest_to_clients() {
        for (limit, strangers) in [(64, 24), (400, 37), (4096, 448), (1 << 20, 4096)] {
            let places = ServerPlaces::new(limit);
            assert_eq!(places.strangers_max, strangers, "of {limit}");
            let taken = (0..=255).filter(|&number| places.strangers.take(&client(number)));
            assert_eq!(taken.count(), strangers.min(256));
            let descriptors = Descriptors::new(places.admitted);
            let connections: Vec<_> = (0..50)
                .map_while(|_| descriptors.carrier(&client(1)))
                .collect();
            assert_eq!(connections.len(), if limit == 64 { 20 } else { 50 });
            drop(connections);
            assert!(descriptors.carrier(&client(1)).is_some());
        }
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
