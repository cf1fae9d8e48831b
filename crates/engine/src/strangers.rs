//! Places for peers that have not identified themselves yet: few in all, few for one source, and always one for the
//! newcomer.
//!
//! If all places are taken, the source with the most of them gives up its oldest. A flood therefore displaces itself,
//! and a client that identifies itself at once has left long before its turn comes.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;

use quictun_flow::{ConnectionId, ConnectionKey, window::ReceiveWindow};

use crate::grants::InitialGrants;
use crate::ranking::Ranking;

/// Number of places with the smallest budgets.
const PLACES_MIN: usize = 16;

/// Number of places with the largest budgets. A handshake holds about 50 KiB, more than it is charged for.
const PLACES_MAX: usize = 2048;

/// Returns the number of places for handshakes and unidentified clients, in all engines of a process that may hold
/// `budget` bytes (PROTOCOL AUTH-6). They may take a quarter of the budget, in addition to the first 1/32, from which
/// strangers get larger windows.
pub fn places_for_strangers(budget: u64) -> usize {
    let window = ReceiveWindow::first(0, budget / 32 * 31, budget, false);
    let room = budget / 4 / InitialGrants::for_stranger(window).committed_memory();
    usize::try_from(room)
        .unwrap_or(usize::MAX)
        .clamp(PLACES_MIN, PLACES_MAX)
}

/// The origin of a peer, as far as one peer can choose it: an IPv4 address or an IPv6 network of 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum SourcePrefix {
    V4([u8; 4]),
    V6([u8; 8]),
}

impl SourcePrefix {
    pub(crate) fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(v4) => Self::V4(v4.octets()),
            IpAddr::V6(v6) => {
                let network = v6.octets().first_chunk().copied();
                Self::V6(network.unwrap_or_default())
            }
        }
    }
}

pub(crate) type Stranger = (ConnectionKey, ConnectionId);

#[derive(Debug, Default)]
pub(crate) struct Strangers {
    /// The strangers of each source, oldest first.
    sources: BTreeMap<SourcePrefix, VecDeque<Stranger>>,
    counts: Ranking<SourcePrefix>,
}

impl Strangers {
    pub(crate) fn len(&self) -> usize {
        self.counts.total()
    }

    pub(crate) fn insert(&mut self, source: SourcePrefix, stranger: Stranger) {
        self.sources.entry(source).or_default().push_back(stranger);
        self.counts.add(&source);
    }

    /// Frees a place. Returns whether the stranger had one.
    pub(crate) fn remove(&mut self, source: SourcePrefix, key: ConnectionKey) -> bool {
        let Some(places) = self.sources.get_mut(&source) else {
            return false;
        };
        let Some(at) = places.iter().position(|&(other, _)| other == key) else {
            return false;
        };
        places.remove(at);
        self.counts.subtract(&source);
        if places.is_empty() {
            self.sources.remove(&source);
        }
        true
    }

    /// Removes and returns the stranger that has to yield to a newcomer from `source`. One has to if there are `most`
    /// strangers in all, or `most_of_one` from that source.
    pub(crate) fn make_room(
        &mut self,
        source: SourcePrefix,
        most: usize,
        most_of_one: usize,
    ) -> Option<Stranger> {
        let from = if self.counts.of(&source) >= most_of_one.max(1) {
            source
        } else if self.len() >= most.max(1) {
            *self.counts.largest()?.0
        } else {
            return None;
        };
        let oldest = self.sources.get(&from)?.front().copied()?;
        self.remove(from, oldest.0);
        Some(oldest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(number: u8) -> SourcePrefix {
        SourcePrefix::of(IpAddr::from([192, 0, 2, number]))
    }

    fn stranger(handle: usize) -> Stranger {
        (ConnectionKey(handle), ConnectionId(handle as u64))
    }

    #[test]
    fn an_ipv6_host_has_one_source_whatever_address_it_takes() {
        let of = |text: &str| SourcePrefix::of(text.parse().expect("an address"));
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
    }

    // PROTOCOL AUTH-6.
    #[test]
    fn a_flood_displaces_its_own_connections() {
        let mut strangers = Strangers::default();
        strangers.insert(source(1), stranger(1));
        for handle in 10..20 {
            let gives_way = strangers.make_room(source(2), 5, 5);
            if let Some((ConnectionKey(handle), _)) = gives_way {
                assert_ne!(handle, 1, "the only one of its source stays");
            }
            strangers.insert(source(2), stranger(handle));
            assert!(strangers.len() <= 5);
        }
        // A newcomer from another source always finds a place, and the largest source gives one up.
        assert_eq!(strangers.make_room(source(3), 5, 5), Some(stranger(16)));
    }

    #[test]
    fn one_source_has_only_its_share_of_free_places() {
        let mut strangers = Strangers::default();
        for handle in 0..3 {
            assert_eq!(strangers.make_room(source(1), 100, 3), None);
            strangers.insert(source(1), stranger(handle));
        }
        assert_eq!(strangers.make_room(source(1), 100, 3), Some(stranger(0)));
        assert_eq!(strangers.make_room(source(2), 100, 3), None);
    }

    #[test]
    fn a_place_is_freed_once() {
        let mut strangers = Strangers::default();
        strangers.insert(source(1), stranger(1));
        assert!(!strangers.remove(source(2), ConnectionKey(1)));
        assert!(strangers.remove(source(1), ConnectionKey(1)));
        assert!(!strangers.remove(source(1), ConnectionKey(1)));
        assert_eq!(strangers.len(), 0);
        assert_eq!(strangers.make_room(source(1), 0, 0), None);
    }
}
