//! Conversions between byte counts and floating-point numbers, and the size of a burst.

/// Duration of a burst: about as long as a timer is late, and short compared with any round trip that is paced.
const QUANTUM_TIME_S: f64 = 0.001;

/// Size of one batch of segmentation offload, in bytes.
pub(crate) const QUANTUM_MAX: f64 = 65_536.0;

#[expect(clippy::cast_precision_loss, reason = "byte counts far below 2^53")]
pub(crate) fn to_f64(value: u64) -> f64 {
    value as f64
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "positive byte counts; a cast saturates"
)]
pub(crate) fn whole(value: f64) -> u64 {
    value as u64
}

/// Returns the bytes that may leave at once at `rate` bytes per second.
pub(crate) fn quantum(rate: f64, mtu: f64) -> u64 {
    whole((rate * QUANTUM_TIME_S).min(QUANTUM_MAX).max(2.0 * mtu))
}
