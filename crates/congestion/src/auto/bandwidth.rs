//! What the path delivers: the most it did in this cycle of probing and the one before.

/// See the module documentation. Bytes per second.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Bandwidth {
    before: f64,
    now: f64,
    /// An upper bound that congestion has shown, until the next probe.
    bound: Option<f64>,
    /// Beyond this packets are lost, however much arrives in short.
    ceiling: Option<f64>,
}

impl Bandwidth {
    pub(crate) fn get(&self) -> f64 {
        let most = self.most();
        self.bound.map_or(most, |bound| bound.min(most))
    }

    /// Without the bound.
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

    /// A cycle is over: what only the one before it has seen counts no longer.
    pub(crate) fn turn(&mut self) {
        if self.now > 0.0 {
            self.before = self.now;
            self.now = 0.0;
        }
    }

    pub(crate) fn set_bound(&mut self, rate: f64) {
        self.bound = Some(rate);
    }

    /// Nothing speaks for the bound at the moment: this share of it is taken back.
    pub(crate) fn relax_bound(&mut self, share: f64) {
        let most = self.most();
        if let Some(bound) = &mut self.bound {
            *bound += share * (most - *bound).max(0.0);
        }
    }

    /// All that was seen was a part of that.
    pub(crate) fn scale(&mut self, part: f64) {
        self.before *= part;
        self.now *= part;
    }

    pub(crate) fn clear_bound(&mut self) {
        self.bound = None;
    }

    /// All that was seen is void, but for this.
    pub(crate) fn reset(&mut self, rate: f64) {
        *self = Self {
            before: rate,
            ceiling: self.ceiling,
            ..Self::default()
        };
    }
}
