//! Loss in bursts, after the model of Gilbert (1960) and Elliott (1963).
//!
//! ```text
//!            to_bad
//!      ┌──────────────►┐
//!   good               bad      each packet first moves the state, and is then lost with the
//!      └◄──────────────┘        probability of the resulting state
//!            to_good
//! ```

use crate::draw::{Draws, Purpose};

/// A two-state loss model with one loss rate per state. All four numbers are probabilities per packet, 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GilbertElliott {
    /// Probability of moving from the good state to the bad one.
    pub to_bad: f64,
    /// Probability of moving from the bad state to the good one.
    pub to_good: f64,
    /// Probability of loss in the good state.
    pub loss_good: f64,
    /// Probability of loss in the bad state.
    pub loss_bad: f64,
}

impl GilbertElliott {
    /// Builds a model whose bursts lose `burst` consecutive packets on average and which loses the share `loss` of all
    /// packets.
    ///
    /// If that is impossible (a loss of 1, bursts shorter than `1 / (1 - loss)`), [`crate::LinkConfig::check`] rejects
    /// the resulting model.
    pub fn from_mean(loss: f64, burst: f64) -> Self {
        let to_good = 1.0 / burst;
        Self {
            to_bad: to_good * loss / (1.0 - loss),
            to_good,
            loss_good: 0.0,
            loss_bad: 1.0,
        }
    }

    /// Returns the share of packets that find the model in the bad state, in the long run.
    pub fn bad_share(&self) -> f64 {
        if self.to_bad <= 0.0 {
            return 0.0;
        }
        self.to_bad / (self.to_bad + self.to_good)
    }

    /// Returns the share of packets lost in the long run.
    pub fn mean_loss(&self) -> f64 {
        let bad = self.bad_share();
        self.loss_good * (1.0 - bad) + self.loss_bad * bad
    }
}

/// The burst state of one link. Every packet that enters the link advances it, even if that packet is dropped
/// elsewhere.
#[derive(Clone, Debug)]
pub(crate) struct Bursts {
    model: GilbertElliott,
    bad: bool,
}

impl Bursts {
    /// Draws the initial state with its long-run probability, so that short runs lose as much as long ones.
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
