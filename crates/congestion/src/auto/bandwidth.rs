//! Estimates the bandwidth: the highest delivered rate in this probing cycle and the one before.

/// Bandwidth estimate in bytes per second; see the module documentation.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Bandwidth {
    before: f64,
    now: f64,
    /// Upper bound that congestion has shown, valid until the next probe.
    bound: Option<f64>,
    /// Rate of a policer. Packets above this rate are lost, even if more arrives for a short time.
    ceiling: Option<f64>,
}

impl Bandwidth {
    pub(crate) fn get(&self) -> f64 {
        let most = self.most();
        self.bound.map_or(most, |bound| bound.min(most))
    }

    /// Returns the estimate without the bound.
    pub(crate) fn most(&self) -> f64 {
        let most = self.before.max(self.now);
        self.ceiling.map_or(most, |ceiling| ceiling.min(most))
    }

    pub(crate) fn set_ceiling(&mut self, rate: Option<f64>) {
        self.ceiling = rate;
    }

    pub(crate) fn add(&mut self, rate: f64) {
        self.now = self.now.max(rate);
    }

    /// Ends a probing cycle. Rates that only the cycle before the ended one has seen no longer count.
    pub(crate) fn end_cycle(&mut self) {
        if self.now > 0.0 {
            self.before = self.now;
            self.now = 0.0;
        }
    }

    pub(crate) fn set_bound(&mut self, rate: f64) {
        self.bound = Some(rate);
    }

    /// Raises the bound by this share of its distance to the estimate, because no measurement supports the bound now.
    pub(crate) fn relax_bound(&mut self, share: f64) {
        let most = self.most();
        if let Some(bound) = &mut self.bound {
            *bound += share * (most - *bound).max(0.0);
        }
    }

    /// Multiplies all measured rates by `part`.
    pub(crate) fn scale(&mut self, part: f64) {
        self.before *= part;
        self.now *= part;
    }

    pub(crate) fn clear_bound(&mut self) {
        self.bound = None;
    }

    /// Discards all measured rates and sets the estimate to `rate`. Keeps the ceiling.
    pub(crate) fn reset(&mut self, rate: f64) {
        *self = Self {
            before: rate,
            ceiling: self.ceiling,
            ..Self::default()
        };
    }
}
