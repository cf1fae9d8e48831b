//! What is remembered of a path from one connection to the next: Careful Resume (RFC 9959).

use std::time::Duration;

use crate::bytes;

/// A path as a connection knew it that had filled it.
///
/// It does not name the other end: the caller keeps it for one pair of addresses, and not for long, since a
/// path changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resume {
    /// Round-trip time without queue.
    pub rtt: Duration,
    /// Bytes in flight that filled the path without waiting.
    pub window: u64,
}

impl Resume {
    /// Bytes that may be in flight before any of them has arrived, where the path may be the same: half of
    /// what it carried.
    pub(crate) fn jump(self, rtt: Duration) -> Option<f64> {
        let same = rtt >= self.rtt.mul_f64(RTT_LEAST) && rtt <= self.rtt.mul_f64(RTT_MOST);
        (same && !self.rtt.is_zero()).then(|| bytes::to_f64(self.window) * JUMP)
    }
}

/// Parts of the remembered round-trip time between which the path is taken for the same, and the share of the
/// window that is tried at once: the RFC's.
const RTT_LEAST: f64 = 0.5;
const RTT_MOST: f64 = 10.0;
const JUMP: f64 = 0.5;
