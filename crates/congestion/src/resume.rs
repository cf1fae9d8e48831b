//! Knowledge about a path that a connection leaves to the next connection: Careful Resume (RFC 9959).

use std::time::Duration;

use crate::bytes;

/// A path as seen by a connection that had filled it.
///
/// The struct does not name the other end. The caller keeps it for one pair of addresses, and only for a limited
/// time, because paths change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resume {
    /// Round-trip time without a queue.
    pub rtt: Duration,
    /// Number of bytes in flight that filled the path without making packets wait.
    pub window: u64,
}

impl Resume {
    /// Returns the number of bytes that may be in flight before the first of them has been acknowledged: half of the
    /// remembered window. Returns `None` if the round-trip time shows that the path may be another one.
    pub(crate) fn jump(self, rtt: Duration) -> Option<f64> {
        let same = rtt >= self.rtt.mul_f64(RTT_LEAST) && rtt <= self.rtt.mul_f64(RTT_MOST);
        (same && !self.rtt.is_zero()).then(|| bytes::to_f64(self.window) * JUMP)
    }
}

/// Multiples of the remembered round-trip time between which the path counts as the same, and the share of the window
/// that is tried at once. The values are those of the RFC.
const RTT_LEAST: f64 = 0.5;
const RTT_MOST: f64 = 10.0;
const JUMP: f64 = 0.5;
