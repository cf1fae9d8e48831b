//! Places for the connections that a server serves, shared between its clients (PROTOCOL LIMIT-2).
//!
//! A client may take all places while no other wants one. If there are none left, a newcomer gets the place of the
//! client with the most, as long as that client has at least two more than the newcomer's. So the numbers become equal,
//! each client that comes is served, and clients with equal numbers do not displace each other without end.

use std::collections::{BTreeMap, BTreeSet};

use fxhash::FxHashMap;
use quictun_flow::{ConnectionId, ConnectionKey};

use crate::bonds::Holder;
use crate::ranking::Ranking;

/// Connections that a client may have although memory is short: those of an ordinary client, which has one for each of
/// its processors.
const FEW: usize = 8;

#[derive(Debug, Default)]
pub(crate) struct Places {
    owners: FxHashMap<ConnectionKey, (ConnectionId, Holder)>,
    /// The connections of each client, oldest first.
    connections: BTreeMap<Holder, BTreeSet<(ConnectionId, ConnectionKey)>>,
    counts: Ranking<Holder>,
}

/// The place that another connection of a client takes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum PlaceSource<'a> {
    /// A place that no client has.
    Free,
    /// The place of a connection of this client.
    Of(&'a Holder),
    /// None, unless another connection of the same client has failed.
    Own,
}

/// The resource that is short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shortage {
    /// There are places, and memory for them.
    None,
    /// All places are taken.
    Places,
    /// Little memory is left.
    Memory,
}

impl Places {
    pub(crate) fn len(&self) -> usize {
        self.counts.total()
    }

    pub(crate) fn insert(&mut self, holder: Holder, id: ConnectionId, key: ConnectionKey) {
        self.counts.add(&holder);
        let own = self.connections.entry(holder.clone()).or_default();
        own.insert((id, key));
        self.owners.insert(key, (id, holder));
    }

    /// Frees the place of a connection, if it has one.
    pub(crate) fn remove(&mut self, key: ConnectionKey) {
        let Some((id, holder)) = self.owners.remove(&key) else {
            return;
        };
        self.counts.subtract(&holder);
        if let Some(own) = self.connections.get_mut(&holder) {
            own.remove(&(id, key));
            if own.is_empty() {
                self.connections.remove(&holder);
            }
        }
    }

    /// Decides which place another connection of `holder` takes.
    pub(crate) fn next<'a>(&'a self, holder: &Holder, shortage: Shortage) -> PlaceSource<'a> {
        let own = self.counts.of(holder);
        let enough = match shortage {
            Shortage::None => return PlaceSource::Free,
            Shortage::Places => 0,
            Shortage::Memory => FEW,
        };
        match self.counts.largest() {
            Some((largest, most)) if most > enough && most > own + 1 => PlaceSource::Of(largest),
            _ if own < enough => PlaceSource::Free,
            _ => PlaceSource::Own,
        }
    }

    /// Returns the connections of a client, oldest first.
    pub(crate) fn of(&self, holder: &Holder) -> impl Iterator<Item = ConnectionKey> {
        let own = self.connections.get(holder).into_iter().flatten();
        own.map(|&(_, key)| key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::strangers::SourcePrefix;

    fn holder(last: u8) -> Holder {
        Holder::Anonymous(SourcePrefix::V4([192, 0, 2, last]))
    }

    fn places(held: &[(u8, usize)]) -> Places {
        let mut places = Places::default();
        for &(last, count) in held {
            for _ in 0..count {
                let number = places.len();
                places.insert(
                    holder(last),
                    ConnectionId(number as u64),
                    ConnectionKey(number),
                );
            }
        }
        places
    }

    // PROTOCOL LIMIT-2.
    #[test]
    fn a_newcomer_gets_the_place_of_the_client_with_the_most() {
        let places = places(&[(1, 16), (2, 4)]);
        let next = |last, shortage| places.next(&holder(last), shortage);
        assert_eq!(next(1, Shortage::None), PlaceSource::Free);
        assert_eq!(next(3, Shortage::Places), PlaceSource::Of(&holder(1)));
        assert_eq!(next(2, Shortage::Places), PlaceSource::Of(&holder(1)));
        assert_eq!(next(1, Shortage::Places), PlaceSource::Own);
        assert_eq!(places.of(&holder(2)).next(), Some(ConnectionKey(16)));
    }

    #[test]
    fn clients_with_equal_numbers_do_not_displace_each_other() {
        let places = places(&[(1, 3), (2, 2)]);
        let next = |last| places.next(&holder(last), Shortage::Places);
        assert_eq!((next(1), next(2)), (PlaceSource::Own, PlaceSource::Own));
        assert_eq!(next(3), PlaceSource::Of(&holder(1)));
    }

    #[test]
    fn without_memory_only_clients_with_many_connections_give_way() {
        let few = places(&[(1, FEW), (2, FEW - 1)]);
        let next = |last| few.next(&holder(last), Shortage::Memory);
        assert_eq!((next(2), next(3)), (PlaceSource::Free, PlaceSource::Free));
        assert_eq!(next(1), PlaceSource::Own);
        let many = places(&[(1, FEW + 1)]);
        let next = |last| many.next(&holder(last), Shortage::Memory);
        assert_eq!(
            (next(1), next(2)),
            (PlaceSource::Own, PlaceSource::Of(&holder(1)))
        );
    }

    #[test]
    fn a_place_is_freed_once() {
        let mut places = places(&[(1, 2)]);
        places.remove(ConnectionKey(0));
        places.remove(ConnectionKey(0));
        assert_eq!(places.len(), 1);
        places.remove(ConnectionKey(1));
        assert!(places.connections.is_empty() && places.owners.is_empty());
    }
}
