//! CUBIC's window in congestion avoidance, RFC 9438. Windows are counted in segments.

use std::time::{Duration, Instant};

/// The constant C and the multiplicative decrease factor, RFC 9438 sections 4.1.2 and 4.6.
const C: f64 = 0.4;
pub(crate) const BETA: f64 = 0.7;

/// Additive increase with which a Reno window with this beta has Reno's rate, RFC 9438 section 4.3.
const RENO_ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);

#[derive(Clone, Debug, Default)]
pub(crate) struct Cubic {
    window_max: f64,
    /// Window before the last loss, not lowered by fast convergence.
    window_prior: f64,
    epoch: Option<Epoch>,
}

#[derive(Clone, Debug)]
struct Epoch {
    start: Instant,
    /// Seconds until the window is back at its maximum.
    k: f64,
    reno: f64,
}

impl Cubic {
    /// Returns the window after `acked` acknowledged segments in congestion avoidance.
    pub(crate) fn grown(&mut self, now: Instant, window: f64, acked: f64, rtt: Duration) -> f64 {
        let window_max = self.window_max.max(window);
        if self.epoch.is_none() {
            self.window_max = window_max;
            self.epoch = Some(Epoch {
                start: now,
                k: cube_root((window_max - window) / C),
                reno: window,
            });
        }
        let Some(epoch) = &mut self.epoch else {
            return window;
        };
        let cubic = |time: f64| {
            let t = time - epoch.k;
            C * t * t * t + self.window_max
        };
        let elapsed = now.saturating_duration_since(epoch.start).as_secs_f64();
        let alpha = if epoch.reno >= self.window_prior {
            1.0
        } else {
            RENO_ALPHA
        };
        epoch.reno += alpha * acked / window;
        if cubic(elapsed) < epoch.reno {
            return epoch.reno.max(window);
        }
        let target = cubic(elapsed + rtt.as_secs_f64()).clamp(window, window * 1.5);
        window + (target - window) / window * acked
    }

    /// Returns the window after a loss, RFC 9438 sections 4.6 and 4.7 (fast convergence).
    pub(crate) fn reduced(&mut self, window: f64) -> f64 {
        self.window_max = if window < self.window_max {
            window * (1.0 + BETA) / 2.0
        } else {
            window
        };
        self.window_prior = window;
        self.epoch = None;
        window * BETA
    }
}

/// Returns the cube root of a non-negative number, by Newton's method. The mathematics libraries of two systems may
/// differ in the last bit, but runs must be the same on all systems.
fn cube_root(x: f64) -> f64 {
    const ROUNDS: usize = 60;
    if x <= 0.0 {
        return 0.0;
    }
    let mut root = x.max(1.0);
    for _ in 0..ROUNDS {
        let next = (2.0 * root + x / (root * root)) / 3.0;
        if next >= root {
            break;
        }
        root = next;
    }
    root
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cube_roots_are_exact_enough() {
        for x in [1e-6, 0.5, 1.0, 8.0, 27.0, 12_345.678, 1e9] {
            let root = cube_root(x);
            assert!((root * root * root / x - 1.0).abs() < 1e-12, "{x}: {root}");
        }
    }

    #[test]
    fn the_window_is_back_at_its_maximum_after_k_and_flat_there() {
        let start = Instant::now();
        let mut cubic = Cubic::default();
        let mut window = cubic.reduced(1000.0);
        assert!((window - 700.0).abs() < 1e-9);
        let rtt = Duration::from_millis(100);
        let k = cube_root(300.0 / C);
        let mut at = start;
        let mut speeds = Vec::new();
        while (at - start).as_secs_f64() < k {
            let before = window;
            window = cubic.grown(at, window, window, rtt);
            speeds.push(window - before);
            at += rtt;
        }
        assert!((950.0..1010.0).contains(&window), "{window}");
        assert!(speeds[0] > 5.0 * speeds[speeds.len() - 1], "{speeds:?}");
    }
}
