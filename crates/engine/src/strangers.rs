//! Places for peers that have not identified themselves yet: few in all, few for one source, and always one for the
//! newcomer.
//!
//! If all places are taken, the source with the most of them gives up its oldest. A flood therefore displaces itself,
//! and a client that identifies itself at once has left long before its turn comes. TCP connections on which nothing has
//! arrived yield before all others: they need no answer of the server, so they are cheap to make.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;

use quictun_flow::{ConnectionId, ConnectionKey, window::ReceiveWindow};

use crate::grants::InitialGrants;

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

impl SourcePrefix {
    /// Returns an address from which clients have this prefix.
    pub(crate) fn address(self) -> IpAddr {
        match self {
            Self::V4(octets) => octets.into(),
            Self::V6(network) => {
                let mut octets = [0; 16];
                octets[..network.len()].copy_from_slice(&network);
                octets.into()
            }
        }
    }
}

pub(crate) type Stranger = (ConnectionKey, ConnectionId);

#[derive(Debug, Default)]
pub(crate) struct Strangers {
    /// Connections over TCP whose clients have not sent their first message. They cost the client nothing.
    silent: StrangerGroup,
    others: StrangerGroup,
}

impl Strangers {
    pub(crate) fn len(&self) -> usize {
        self.silent.len + self.others.len
    }

    pub(crate) fn insert(&mut self, source: SourcePrefix, stranger: Stranger) {
        self.others.insert(source, stranger);
    }

    /// Gives a place to a connection over TCP on which nothing has arrived.
    pub(crate) fn insert_silent(&mut self, source: SourcePrefix, stranger: Stranger) {
        self.silent.insert(source, stranger);
    }

    /// Notes that the first message of a client over TCP has arrived.
    pub(crate) fn note_message(&mut self, source: SourcePrefix, stranger: Stranger) {
        if self.silent.remove(source, stranger.0) {
            self.others.insert(source, stranger);
        }
    }

    /// Frees a place. Returns whether the stranger had one.
    pub(crate) fn remove(&mut self, source: SourcePrefix, key: ConnectionKey) -> bool {
        self.silent.remove(source, key) || self.others.remove(source, key)
    }

    /// Removes and returns the stranger that has to yield to a newcomer from `source`. One has to if there are `most`
    /// strangers in all, or `most_of_one` from that source. A silent one yields before any other.
    pub(crate) fn make_room(
        &mut self,
        source: SourcePrefix,
        most: usize,
        most_of_one: usize,
    ) -> Option<Stranger> {
        let groups = [&mut self.silent, &mut self.others];
        let of_source: usize = groups.iter().map(|group| group.of(source)).sum();
        let total: usize = groups.iter().map(|group| group.len).sum();
        let all = if of_source >= most_of_one.max(1) {
            false
        } else if total >= most.max(1) {
            true
        } else {
            return None;
        };
        groups.into_iter().find_map(|group| {
            let from = if all { group.largest()? } else { source };
            group.take_oldest(from)
        })
    }
}

/// Strangers by their sources.
#[derive(Debug, Default)]
struct StrangerGroup {
    /// The strangers of each source, oldest first, each with its number.
    sources: BTreeMap<SourcePrefix, VecDeque<(u64, Stranger)>>,
    /// Each source with the count of its strangers and the number of the oldest one. The last source yields first. Of
    /// several with the same count, that is the one whose oldest stranger came first: an address is no merit.
    ranks: BTreeSet<(usize, Reverse<u64>, SourcePrefix)>,
    len: usize,
    inserted: u64,
}

impl StrangerGroup {
    fn of(&self, source: SourcePrefix) -> usize {
        self.sources.get(&source).map_or(0, VecDeque::len)
    }

    fn largest(&self) -> Option<SourcePrefix> {
        self.ranks.last().map(|&(.., source)| source)
    }

    fn insert(&mut self, source: SourcePrefix, stranger: Stranger) {
        let number = self.inserted;
        self.inserted += 1;
        self.change(source, |places| {
            places.push_back((number, stranger));
            Some(stranger)
        });
    }

    fn remove(&mut self, source: SourcePrefix, key: ConnectionKey) -> bool {
        let removed = self.change(source, |places| {
            let at = places.iter().position(|&(_, (other, _))| other == key)?;
            places.remove(at)
        });
        removed.is_some()
    }

    fn take_oldest(&mut self, source: SourcePrefix) -> Option<Stranger> {
        let oldest = self.change(source, VecDeque::pop_front)?;
        Some(oldest.1)
    }

    /// Changes the places of a source, and its rank.
    fn change<T>(
        &mut self,
        source: SourcePrefix,
        change: impl FnOnce(&mut VecDeque<(u64, Stranger)>) -> Option<T>,
    ) -> Option<T> {
        let rank = |places: &VecDeque<(u64, Stranger)>| {
            let oldest = places.front()?.0;
            Some((places.len(), Reverse(oldest), source))
        };
        let places = self.sources.entry(source).or_default();
        let before = rank(places);
        let result = change(places);
        let after = rank(places);
        if after.is_none() {
            self.sources.remove(&source);
        }
        let count = |rank: &Option<(usize, Reverse<u64>, SourcePrefix)>| rank.map_or(0, |it| it.0);
        self.len = self.len + count(&after) - count(&before);
        if let Some(before) = before {
            self.ranks.remove(&before);
        }
        self.ranks.extend(after);
        result
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
    fn silent_connections_displace_no_other_stranger_but_each_other() {
        let mut strangers = Strangers::default();
        for handle in 0..4 {
            strangers.insert(source(1), stranger(handle));
        }
        for handle in 10..50 {
            let from = source(u8::try_from(handle).expect("small"));
            let gives_way = strangers.make_room(from, 6, 6);
            let expected = (handle > 11).then(|| stranger(handle - 2));
            assert_eq!(gives_way, expected);
            strangers.insert_silent(from, stranger(handle));
        }
        // A client that has sent its first message is as safe as the others.
        strangers.note_message(source(49), stranger(49));
        assert_eq!(strangers.make_room(source(2), 6, 6), Some(stranger(48)));
        strangers.insert(source(2), stranger(50));
        assert_eq!(strangers.make_room(source(3), 6, 6), Some(stranger(0)));
        assert!(strangers.remove(source(49), ConnectionKey(49)));
        assert_eq!(strangers.len(), 4);
    }

    #[test]
    fn of_equal_sources_the_one_that_came_first_yields_whatever_its_address() {
        for order in [[1, 2, 3], [3, 2, 1], [2, 3, 1]] {
            let mut strangers = Strangers::default();
            for number in order {
                strangers.insert(source(number), stranger(usize::from(number)));
            }
            for number in order {
                let oldest = stranger(usize::from(number));
                assert_eq!(strangers.make_room(source(9), 3, 3), Some(oldest));
                strangers.insert(source(number), oldest);
            }
        }
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
