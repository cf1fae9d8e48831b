//! A memory of what connections have learned about their paths, for the next connection to the same peer (RFC 9959).

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::ensemble::WeakEnsemble;
use crate::{Ensemble, Reordering, Resume};

/// Maximum number of peers remembered. Beyond it, the peer with the oldest note is forgotten.
const PEERS_MAX: usize = 1024;

/// Maximum number of peers for which an ensemble is kept.
const ENSEMBLES_MAX: usize = PEERS_MAX;

/// Maximum age of a note. An older note does not describe the path as it is now.
const AGE_MAX: Duration = Duration::from_hours(1);

/// Interval at which a connection notes what it knows, in case it ends without a close.
pub const NOTE_EVERY: Duration = Duration::from_secs(5);

/// The paths of a process, by peer.
///
/// Clones share the same memory: a worker that gets the next connection of a peer can use what another worker has
/// learned. The memory is read when a connection starts, and never for a packet.
#[derive(Clone, Debug, Default)]
pub struct PathMemory {
    paths: Arc<Mutex<Paths>>,
    ensembles: Arc<Mutex<Ensembles>>,
}

type Paths = BTreeMap<PeerKey, PathNote>;
type Ensembles = BTreeMap<PeerKey, WeakEnsemble>;

/// The far end of a path, in a form that stays the same for the next connection.
///
/// A server is identified by its address and port. A client is identified by its address without the port, because
/// the port changes. The address family is that of the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PeerKey {
    /// A client, identified by its IP address with any port.
    Client(IpAddr),
    /// A server, identified by its address and port.
    Server(SocketAddr),
}

#[derive(Clone, Copy, Debug)]
struct PathNote {
    noted: Instant,
    /// Time at which the degree of reordering was noted.
    reordering_noted: Instant,
    known: PathKnowledge,
}

/// Knowledge about a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathKnowledge {
    /// State of the path when an earlier connection had filled it, for the controller.
    pub resume: Option<Resume>,
    /// Receive window, in bytes, that the peer needed in order to fill the path; 0 if the initial window was always
    /// enough.
    pub receive_window: u64,
    /// Degree of reordering on the path; `None` if too few packets have arrived to judge it.
    pub reordering: Option<Reordering>,
}

impl PathMemory {
    /// Notes what a connection knows about its path.
    pub fn note(&self, now: Instant, peer: PeerKey, known: PathKnowledge) {
        if known == PathKnowledge::default() {
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
        // Data kept from an earlier connection keeps its age.
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
        let known = PathKnowledge {
            resume: known.resume.or(old.resume),
            receive_window,
            reordering: known.reordering.or(old.reordering),
        };
        let path = PathNote {
            noted,
            reordering_noted,
            known,
        };
        paths.insert(peer, path);
    }

    /// Returns what is known about the path to a peer.
    pub fn recall(&self, now: Instant, peer: PeerKey) -> PathKnowledge {
        let paths = self.paths();
        let path = paths.get(&peer).filter(|path| path.is_fresh(now));
        path.map(|path| path.known_at(now)).unwrap_or_default()
    }

    /// Returns the ensemble of the connections to a peer. Beyond the limit, the next connection to a new peer gets an
    /// ensemble that no other connection can find.
    pub fn ensemble(&self, now: Instant, peer: PeerKey) -> Ensemble {
        let ensembles = self.ensembles.lock();
        let mut ensembles = ensembles.unwrap_or_else(PoisonError::into_inner);
        if let Some(ensemble) = ensembles.get(&peer).and_then(WeakEnsemble::upgrade) {
            return ensemble;
        }
        if ensembles.len() >= ENSEMBLES_MAX {
            ensembles.retain(|_, ensemble| !ensemble.is_gone());
        }
        let ensemble = Ensemble::new(now);
        if ensembles.len() < ENSEMBLES_MAX {
            ensembles.insert(peer, ensemble.downgrade());
        }
        ensemble
    }

    fn paths(&self) -> MutexGuard<'_, Paths> {
        self.paths.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PathNote {
    fn is_fresh(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.noted) <= AGE_MAX
    }

    /// Returns everything that is known, except for the parts that are too old.
    fn known_at(&self, now: Instant) -> PathKnowledge {
        let fresh = now.saturating_duration_since(self.reordering_noted) <= AGE_MAX;
        PathKnowledge {
            reordering: self.known.reordering.filter(|_| fresh),
            ..self.known
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(window: u64) -> PathKnowledge {
        let rtt = Duration::from_millis(100);
        PathKnowledge {
            resume: Some(Resume { rtt, window }),
            ..nothing()
        }
    }

    fn nothing() -> PathKnowledge {
        PathKnowledge::default()
    }

    fn client(number: u32) -> PeerKey {
        PeerKey::Client(IpAddr::V4(number.into()))
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
    fn a_connection_that_learns_nothing_neither_erases_nor_refreshes_a_note() {
        let start = Instant::now();
        let memory = PathMemory::default();
        memory.note(start, client(1), known(7));
        let received = PathKnowledge {
            receive_window: 9,
            reordering: Some(Reordering::Much),
            ..nothing()
        };
        memory.note(start + AGE_MAX, client(1), nothing());
        memory.note(start + AGE_MAX, client(1), received);
        let both = PathKnowledge {
            receive_window: 9,
            reordering: Some(Reordering::Much),
            ..known(7)
        };
        assert_eq!(memory.recall(start + AGE_MAX, client(1)), both);
        let later = start + AGE_MAX + Duration::from_nanos(1);
        assert_eq!(memory.recall(later, client(1)), nothing());
    }

    #[test]
    fn a_noted_degree_of_reordering_stays_until_a_connection_measures_another() {
        let start = Instant::now();
        let memory = PathMemory::default();
        let saw = |reordering| PathKnowledge {
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
    fn connections_that_measure_no_reordering_do_not_refresh_its_note() {
        let start = Instant::now();
        let memory = PathMemory::default();
        let saw = |reordering| PathKnowledge {
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
    fn beyond_the_limit_a_new_peer_replaces_the_oldest_note_and_a_known_peer_replaces_none() {
        let start = Instant::now();
        let at = |number: u32| start + Duration::from_millis(number.into());
        let memory = PathMemory::default();
        let most = u32::try_from(PEERS_MAX).expect("PEERS_MAX fits into u32");
        // The oldest note is in the middle of the key order.
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
    fn connections_to_one_peer_share_an_ensemble_as_long_as_any_lives() {
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
    fn beyond_the_limit_connections_share_no_ensemble_until_others_have_ended() {
        let now = Instant::now();
        let memory = PathMemory::default();
        let most = u32::try_from(ENSEMBLES_MAX).expect("ENSEMBLES_MAX fits into u32");
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
