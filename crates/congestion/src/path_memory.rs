//! What connections have learnt of their paths, for the next one to the same peer (RFC 9959).

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use quinn_proto::Side;

use crate::ensemble::Faint;
use crate::{Ensemble, Reordering, Resume};

/// Peers remembered; beyond it the one that was not heard of for longest is forgotten.
const PEERS_MAX: usize = 1024;

/// Peers to which there are several connections, or may be.
const ENSEMBLES_MAX: usize = PEERS_MAX;

/// An older note says nothing of the path of now.
const AGE_MAX: Duration = Duration::from_hours(1);

/// How often a connection notes what it knows, in case that it ends without a word.
pub const NOTE_EVERY: Duration = Duration::from_secs(5);

/// Paths of a process by the peer at their end. Clones share it: whichever worker gets a peer's next
/// connection knows what another one has learnt. It is asked when connections begin, never for a packet.
#[derive(Clone, Debug, Default)]
pub struct PathMemory {
    paths: Arc<Mutex<Paths>>,
    ensembles: Arc<Mutex<Ensembles>>,
}

type Paths = BTreeMap<Peer, Path>;
type Ensembles = BTreeMap<Peer, Faint>;

/// The end of a path as it is the next time: a server's address with its port, a client's without, which
/// changes. Its family is that of the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Peer {
    /// A client, wherever it comes from.
    Client(IpAddr),
    /// A server.
    Server(SocketAddr),
}

impl Peer {
    /// The other end of a connection of which this is one `side`.
    pub fn of(side: Side, remote: SocketAddr) -> Self {
        match side {
            Side::Client => Self::Server(remote),
            Side::Server => Self::Client(remote.ip()),
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Path {
    noted: Instant,
    /// When it was learnt how far packets are overtaken.
    reordering_noted: Instant,
    known: Known,
}

/// What is known of a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// For the controller: how the path was when we had filled it.
    pub resume: Option<Resume>,
    /// The window that the peer needed to fill it; 0: never more than the first.
    pub receive_window: u64,
    /// How far packets are overtaken; `None`: too few have arrived.
    pub reordering: Option<Reordering>,
}

impl PathMemory {
    /// Notes what a connection knows of its path.
    pub fn note(&self, now: Instant, peer: Peer, known: Known) {
        if known == Known::default() {
            return;
        }
        let mut paths = self.paths();
        if paths.len() >= PEERS_MAX && !paths.contains_key(&peer) {
            let oldest = paths.iter().min_by_key(|(_, path)| path.noted);
            if let Some((&oldest, _)) = oldest {
                paths.remove(&oldest);
            }
        }
        let old = paths.get(&peer).filter(|path| path.is_fresh(now));
        // What is kept of an earlier connection does not become younger by it.
        let noted = match old {
            Some(path) if known.resume.is_none() && path.known.resume.is_some() => path.noted,
            _ => now,
        };
        let reordering_noted = match old {
            Some(path) if known.reordering.is_none() => path.reordering_noted,
            _ => now,
        };
        let old = old.map(|path| path.known_at(now)).unwrap_or_default();
        let receive_window = match known.receive_window {
            0 => old.receive_window,
            window => window,
        };
        let known = Known {
            resume: known.resume.or(old.resume),
            receive_window,
            reordering: known.reordering.or(old.reordering),
        };
        let path = Path {
            noted,
            reordering_noted,
            known,
        };
        paths.insert(peer, path);
    }

    /// What is known of the path to a peer.
    pub fn recall(&self, now: Instant, peer: Peer) -> Known {
        let paths = self.paths();
        let path = paths.get(&peer).filter(|path| path.is_fresh(now));
        path.map(|path| path.known_at(now)).unwrap_or_default()
    }

    /// The connections to a peer that there are. Beyond the limit, each peer's next one knows of no other.
    pub fn ensemble(&self, now: Instant, peer: Peer) -> Ensemble {
        let ensembles = self.ensembles.lock();
        let mut ensembles = ensembles.unwrap_or_else(PoisonError::into_inner);
        if let Some(ensemble) = ensembles.get(&peer).and_then(Faint::get) {
            return ensemble;
        }
        if ensembles.len() >= ENSEMBLES_MAX {
            ensembles.retain(|_, ensemble| !ensemble.is_gone());
        }
        let ensemble = Ensemble::new(now);
        if ensembles.len() < ENSEMBLES_MAX {
            ensembles.insert(peer, ensemble.faint());
        }
        ensemble
    }

    fn paths(&self) -> MutexGuard<'_, Paths> {
        self.paths.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Path {
    fn is_fresh(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.noted) <= AGE_MAX
    }

    /// All that is known, but for what is too old of it.
    fn known_at(&self, now: Instant) -> Known {
        let fresh = now.saturating_duration_since(self.reordering_noted) <= AGE_MAX;
        Known {
            reordering: self.known.reordering.filter(|_| fresh),
            ..self.known
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(window: u64) -> Known {
        let rtt = Duration::from_millis(100);
        Known {
            resume: Some(Resume { rtt, window }),
            ..nothing()
        }
    }

    fn nothing() -> Known {
        Known::default()
    }

    fn client(number: u32) -> Peer {
        Peer::Client(IpAddr::V4(number.into()))
    }

    #[test]
    fn a_path_is_remembered_for_an_hour() {
        let start = Instant::now();
        let memory = PathMemory::default();
        memory.note(start, client(1), known(7));
        assert_eq!(memory.recall(start + AGE_MAX, client(1)), known(7));
        assert_eq!(memory.recall(start, client(2)), nothing());
        let later = start + AGE_MAX + Duration::from_nanos(1);
        assert_eq!(memory.recall(later, client(1)), nothing());
    }

    #[test]
    fn clones_remember_the_same_and_the_newest_note_counts() {
        let start = Instant::now();
        let memory = PathMemory::default();
        let other = memory.clone();
        memory.note(start, client(1), known(7));
        other.note(start, client(1), known(8));
        assert_eq!(memory.recall(start, client(1)), known(8));
    }

    #[test]
    fn a_connection_that_learns_nothing_takes_nothing_away_and_keeps_nothing_young() {
        let start = Instant::now();
        let memory = PathMemory::default();
        memory.note(start, client(1), known(7));
        let received = Known {
            receive_window: 9,
            reordering: Some(Reordering::Much),
            ..nothing()
        };
        memory.note(start + AGE_MAX, client(1), nothing());
        memory.note(start + AGE_MAX, client(1), received);
        let both = Known {
            receive_window: 9,
            reordering: Some(Reordering::Much),
            ..known(7)
        };
        assert_eq!(memory.recall(start + AGE_MAX, client(1)), both);
        let later = start + AGE_MAX + Duration::from_nanos(1);
        assert_eq!(memory.recall(later, client(1)), nothing());
    }

    #[test]
    fn what_is_known_of_reordering_is_kept_until_a_connection_knows_better() {
        let start = Instant::now();
        let memory = PathMemory::default();
        let saw = |reordering| Known {
            reordering,
            ..known(7)
        };
        for (seen, kept) in [
            (Some(Reordering::Much), Some(Reordering::Much)),
            (None, Some(Reordering::Much)),
            (Some(Reordering::Little), Some(Reordering::Little)),
        ] {
            memory.note(start, client(1), saw(seen));
            assert_eq!(memory.recall(start, client(1)), saw(kept));
        }
    }

    #[test]
    fn connections_that_learn_nothing_of_reordering_do_not_keep_it_young() {
        let start = Instant::now();
        let memory = PathMemory::default();
        let saw = |reordering| Known {
            reordering,
            ..known(7)
        };
        memory.note(start, client(1), saw(Some(Reordering::Much)));
        memory.note(start + AGE_MAX, client(1), known(7));
        let kept = saw(Some(Reordering::Much));
        assert_eq!(memory.recall(start + AGE_MAX, client(1)), kept);
        let later = start + AGE_MAX + Duration::from_nanos(1);
        assert_eq!(memory.recall(later, client(1)), known(7));
    }

    #[test]
    fn beyond_the_limit_the_oldest_gives_way_and_a_known_peer_costs_nobody() {
        let start = Instant::now();
        let at = |number: u32| start + Duration::from_millis(number.into());
        let memory = PathMemory::default();
        let most = u32::try_from(PEERS_MAX).expect("a thousand");
        // The oldest is in the middle of the order of keys.
        for (time, number) in (0..).zip((500..most).chain(0..500)) {
            memory.note(at(time), client(number), known(1));
        }
        memory.note(at(3 * most), client(7), known(2));
        assert_eq!(memory.recall(at(3 * most), client(500)), known(1));
        memory.note(at(3 * most), client(most), known(1));
        assert_eq!(memory.recall(at(3 * most), client(500)), nothing());
        assert_eq!(memory.recall(at(3 * most), client(501)), known(1));
        assert_eq!(memory.recall(at(3 * most), client(most)), known(1));
    }

    #[test]
    fn connections_to_one_peer_are_an_ensemble_while_there_are_any() {
        let now = Instant::now();
        let memory = PathMemory::default();
        let join = |number| memory.ensemble(now, client(number)).join();
        let (one, other) = (join(1), join(1));
        let members = |number| memory.ensemble(now, client(number)).members();
        assert_eq!(members(1), 2);
        assert_eq!(members(2), 0);
        drop(one);
        assert_eq!(members(1), 1);
        drop(other);
        assert_eq!(members(1), 0);
    }

    #[test]
    fn beyond_the_limit_connections_are_on_their_own_until_others_have_gone() {
        let now = Instant::now();
        let memory = PathMemory::default();
        let most = u32::try_from(ENSEMBLES_MAX).expect("a thousand");
        let join = |number| memory.ensemble(now, client(number)).join();
        let mut members: Vec<_> = (0..most).map(join).collect();
        let _alone = join(most);
        assert_eq!(memory.ensemble(now, client(most)).members(), 0);
        assert_eq!(memory.ensemble(now, client(7)).members(), 1);
        members.pop();
        let _known = join(most);
        assert_eq!(memory.ensemble(now, client(most)).members(), 1);
    }
}
