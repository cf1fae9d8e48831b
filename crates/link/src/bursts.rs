//! Loss in bursts: the model of Gilbert (1960) and Elliott (1963).
//!
//! ```text
//!            to_bad
//!      ┌──────────────►┐
//!   good               bad      each packet moves the state first, and is then lost with the
//!      └◄──────────────┘        probability of the state that it finds
//!            to_good
//! ```

use crate::draw::{Draws, Purpose};

/// Two states with a share of loss each. All four numbers are probabilities per packet, 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GilbertElliott {
    /// From the good state to the bad one.
    pub to_bad: f64,
    /// From the bad state to the good one.
    pub to_good: f64,
    /// Loss in the good state.
    pub loss_good: f64,
    /// Loss in the bad state.
    pub loss_bad: f64,
}

impl GilbertElliott {
    /// Bursts of `burst` packets on average in which everything is lost, so that `loss` of all packets are.
    ///
    /// Where that is impossible (a loss of 1, bursts shorter than `1 / (1 - loss)`), the result is a model
    /// that [`crate::LinkConfig::check`] refuses.
    pub fn from_mean(loss: f64, burst: f64) -> Self {
        let to_good = 1.0 / burst;
        Self {
            to_bad: to_good * loss / (1.0 - loss),
            to_good,
            loss_good: 0.0,
            loss_bad: 1.0,
        }
    }

    /// Share of time in the bad state.
    pub fn bad_share(&self) -> f64 {
        if self.to_bad <= 0.0 {
            return 0.0;
        }
        self.to_bad / (self.to_bad + self.to_good)
    }

    /// Share of packets lost in the long run.
    pub fn mean_loss(&self) -> f64 {
        let bad = self.bad_share();
        self.loss_good * (1.0 - bad) + self.loss_bad * bad
    }
}

/// The state of one link. It moves with every packet that enters, whatever becomes of that.
#[derive(Clone, Debug)]
pub(crate) struct Bursts {
    model: GilbertElliott,
    bad: bool,
}

impl Bursts {
    /// Starts in either state as often as it is in it, so that short runs lose as much as long ones.
    pub(crate) fn new(model: GilbertElliott, draws: Draws) -> Self {
        let bad = draws.picks(0, Purpose::BurstStart, model.bad_share());
        Self { model, bad }
    }

    pub(crate) fn lose(&mut self, index: u64, draws: Draws) -> bool {
        let model = self.model;
        let (moves, lost) = if self.bad {
            (model.to_good, model.loss_bad)
        } else {
            (model.to_bad, model.loss_good)
        };
        let turns = draws.picks(index, Purpose::BurstState, moves);
        self.bad ^= turns;
        let lost = match (turns, self.bad) {
            (false, _) => lost,
            (true, true) => model.loss_bad,
            (true, false) => model.loss_good,
        };
        draws.picks(index, Purpose::BurstLoss, lost)
    }
}
