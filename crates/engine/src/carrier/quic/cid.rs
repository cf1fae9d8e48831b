//! Connection ids that contain the index of their worker.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use quinn_proto::{ConnectionId, ConnectionIdGenerator};
use rand_chacha::ChaCha20Rng;
use rand_core::{RngCore, SeedableRng};

/// Length of the connection ids that the engine issues: the worker and 56 random bits.
pub(super) const CID_LEN: usize = 8;

#[derive(Debug)]
pub(super) struct WorkerCids {
    worker: u8,
    rng: Arc<Mutex<ChaCha20Rng>>,
}

impl WorkerCids {
    pub(super) fn factory(
        worker: u8,
        seed: [u8; 32],
    ) -> impl Fn() -> Box<dyn ConnectionIdGenerator> + Send + Sync + 'static {
        let rng = Arc::new(Mutex::new(ChaCha20Rng::from_seed(seed)));
        move || {
            Box::new(Self {
                worker,
                rng: rng.clone(),
            })
        }
    }
}

impl ConnectionIdGenerator for WorkerCids {
    fn generate_cid(&mut self) -> ConnectionId {
        let mut bytes = [0; CID_LEN];
        self.rng
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .fill_bytes(&mut bytes);
        bytes[0] = self.worker;
        ConnectionId::new(&bytes)
    }

    fn cid_len(&self) -> usize {
        CID_LEN
    }

    fn cid_lifetime(&self) -> Option<Duration> {
        None
    }
}

/// Header form of long headers (RFC 8999 section 5.1), which handshakes use.
pub(super) const LONG_HEADER: u8 = 0x80;

/// Length of a client's first connection id if it names the worker that has the client's bond. No other client uses
/// this length.
const ROUTE_LEN: usize = 18;

/// Makes a first connection id for the worker `route`.
pub(super) fn routed(route: u8, rng: &mut ChaCha20Rng) -> ConnectionId {
    let mut bytes = [0; ROUTE_LEN];
    rng.fill_bytes(&mut bytes);
    bytes[0] = route;
    ConnectionId::new(&bytes)
}

/// Returns whether a client's first connection id names a worker.
pub(super) fn is_routed(id: &ConnectionId) -> bool {
    id.len() == ROUTE_LEN
}

/// Returns the worker that the connection id of a datagram names. `None` if a client has chosen the id and needs no
/// particular worker.
///
/// Reads the version-independent header (RFC 8999 section 5). An id of [`CID_LEN`] bytes is one of the server, also in the
/// Initial packets that follow a routed one: the kernel may give these to any worker. If a client chooses such an id, any
/// worker may serve it.
pub fn worker_of(datagram: &[u8]) -> Option<u8> {
    const INITIAL_OR_0RTT: u8 = 0x20;
    let first = *datagram.first()?;
    if first & LONG_HEADER == 0 {
        return datagram.get(1).copied();
    }
    let named = match usize::from(*datagram.get(5)?) {
        ROUTE_LEN => first & 0x30 < INITIAL_OR_0RTT,
        CID_LEN => true,
        _ => false,
    };
    named.then(|| datagram.get(6).copied()).flatten()
}

/// Returns whether a datagram begins the connection of a client that names the worker with its bond.
pub fn asks_for_bond(datagram: &[u8]) -> bool {
    let long = datagram
        .first()
        .is_some_and(|first| first & LONG_HEADER != 0);
    long && datagram.get(5).copied().map(usize::from) == Some(ROUTE_LEN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_the_server_and_routed_ones_name_the_worker() {
        assert_eq!(worker_of(&[0x40, 3, 0, 0, 0, 0, 0, 0, 0]), Some(3));
        let mut long = vec![0xe0, 0, 0, 0, 1, 8, 7, 1, 1, 1, 1, 1, 1, 1];
        assert_eq!(worker_of(&long), Some(7));
        long[0] = 0xc0;
        assert_eq!(worker_of(&long), Some(7), "the client's second flight");
        long[5] = 20;
        assert_eq!(worker_of(&long), None, "the client has chosen the id");
        let routed = routed(5, &mut ChaCha20Rng::from_seed([1; 32]));
        let mut first = vec![0xc0, 0, 0, 0, 1, 18];
        first.extend_from_slice(&routed);
        assert_eq!(worker_of(&first), Some(5));
        first[0] = 0xe0;
        assert_eq!(worker_of(&first), None);
        assert_eq!(worker_of(&[]), None);
        assert_eq!(worker_of(&[0x40]), None);
    }
}
