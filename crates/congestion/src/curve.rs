//! CUBIC's window growth (RFC 9438 section 4).
//!
//! Windows are in bytes. The segments in the RFC's formulas are packets of the current size.

use std::time::Instant;

/// Constants of CUBIC's window growth and multiplicative decrease (RFC 9438 sections 4.1 and 4.6).
const C: f64 = 0.4;
pub(crate) const BETA: f64 = 0.7;
/// Additive increase of the Reno-friendly region (RFC 9438 section 4.3).
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);

/// State of a window on its way back to the size at which it met congestion.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Curve {
    window_max: f64,
    k: f64,
    epoch: Option<Instant>,
    /// Window that Reno would have by now, in bytes.
    estimate: f64,
}

impl Curve {
    /// Records congestion at `window`, and returns the reduced window.
    pub(crate) fn cut(&mut self, window: f64) -> f64 {
        // Fast convergence (RFC 9438 section 4.7).
        self.window_max = if window < self.window_max {
            window * (1.0 + BETA) / 2.0
        } else {
            window
        };
        self.epoch = None;
        window * BETA
    }

    /// Returns the window after `bytes` more have been acknowledged.
    pub(crate) fn grow(
        &mut self,
        now: Instant,
        window: f64,
        bytes: f64,
        rtt: f64,
        mtu: f64,
    ) -> f64 {
        let epoch = *self.epoch.get_or_insert_with(|| {
            self.estimate = window;
            if self.window_max < window {
                self.window_max = window;
                self.k = 0.0;
            } else {
                self.k = cube_root((self.window_max - window) / mtu / C);
            }
            now
        });
        let elapsed = now.saturating_duration_since(epoch).as_secs_f64();
        let alpha = if self.estimate >= self.window_max {
            1.0
        } else {
            ALPHA
        };
        self.estimate += alpha * bytes * mtu / window;
        if self.at(elapsed, mtu) < self.estimate {
            window.max(self.estimate)
        } else {
            let target = self.at(elapsed + rtt, mtu).clamp(window, 1.5 * window);
            window + (target - window) / window * bytes
        }
    }

    fn at(&self, elapsed: f64, mtu: f64) -> f64 {
        let t = elapsed - self.k;
        C * t * t * t * mtu + self.window_max
    }
}

/// Computes the cube root by Newton's method, so that the result is the same on every machine.
fn cube_root(value: f64) -> f64 {
    if value <= 0.0 {
        return 0.0;
    }
    let mut root = value.max(1.0);
    for _ in 0..64 {
        let next = (2.0 * root + value / (root * root)) / 3.0;
        if (next - root).abs() < 1e-9 * root {
            break;
        }
        root = next;
    }
    root
}
