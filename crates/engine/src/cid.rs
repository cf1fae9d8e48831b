//! Connection ids that name their worker.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use quinn_proto::{ConnectionId, ConnectionIdGenerator};
use rand_chacha::ChaCha20Rng;
use rand_core::{RngCore, SeedableRng};

/// Length of our connection ids: a worker and 56 random bits.
pub(crate) const CID_LEN: usize = 8;

#[derive(Debug)]
pub(crate) struct WorkerCids {
    worker: u8,
    rng: Arc<Mutex<ChaCha20Rng>>,
}

impl WorkerCids {
    pub(crate) fn factory(
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
pub(crate) const LONG_HEADER: u8 = 0x80;

/// The worker that the connection id of a datagram names; `None` where the id was chosen by the client.
///
/// Reads only the version-independent header (RFC 8999 section 5).
pub fn worker_of(datagram: &[u8]) -> Option<u8> {
    const INITIAL_OR_0RTT: u8 = 0x20;
    let first = *datagram.first()?;
    if first & LONG_HEADER == 0 {
        return datagram.get(1).copied();
    }
    if first & 0x30 < INITIAL_OR_0RTT {
        return None;
    }
    let length = usize::from(*datagram.get(5)?);
    (length == CID_LEN)
        .then(|| datagram.get(6).copied())
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_and_handshake_headers_name_the_worker_initial_ones_do_not() {
        assert_eq!(worker_of(&[0x40, 3, 0, 0, 0, 0, 0, 0, 0]), Some(3));
        let mut long = vec![0xe0, 0, 0, 0, 1, 8, 7, 1, 1, 1, 1, 1, 1, 1];
        assert_eq!(worker_of(&long), Some(7));
        long[0] = 0xc0;
        assert_eq!(worker_of(&long), None);
        assert_eq!(worker_of(&[]), None);
        assert_eq!(worker_of(&[0x40]), None);
    }
}
