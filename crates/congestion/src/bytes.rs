//! Bytes as numbers to reckon with.

/// Lasts of a burst: about what a timer is late, and short against any round trip that is paced.
const QUANTUM_TIME_S: f64 = 0.001;

/// One batch of segmentation offload.
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

/// What may leave at once at `rate` bytes per second.
pub(crate) fn quantum(rate: f64, mtu: f64) -> u64 {
    whole((rate * QUANTUM_TIME_S).min(QUANTUM_MAX).max(2.0 * mtu))
}
