//! A rate chosen by the user, with a safeguard.
//!
//! The controller sends up to a quarter more than the rate to make up for losses, so that the chosen rate arrives. If
//! that fills a queue or loses much for long, the rate is wrong or no longer valid, and [`Auto`] takes over
//! permanently.

use std::time::{Duration, Instant};

use crate::model::{ControllerView, Limits, Loss, Model};
use crate::{Auto, bytes};

/// Share of lost packets above which the rate does harm. So does a round-trip time well above its floor.
const LOSS_MOST: f64 = 0.15;
/// Time that the harm must last before [`Auto`] takes over.
const PATIENCE: Duration = Duration::from_secs(2);

/// Maximum factor by which the rate is raised to make up for loss.
const COMPENSATION_MAX: f64 = 1.25;

/// Weight of one packet in the moving average of the loss.
const WEIGHT: f64 = 0.002;

/// A controller that holds a fixed rate until that does harm; see the module documentation.
#[derive(Clone, Debug)]
pub struct Fixed {
    auto: Auto,
    rate: f64,
    mtu: f64,
    /// Moving average of the share of packets lost.
    loss: f64,
    harm_since: Option<Instant>,
    braked: bool,
    srtt: Duration,
    newest: Option<Instant>,
}

impl Fixed {
    /// Creates a controller that sends `rate` bytes per second.
    pub fn new(now: Instant, mtu: u16, rate: u64) -> Self {
        Self {
            auto: Auto::new(now, mtu),
            rate: bytes::to_f64(rate.max(1)),
            mtu: f64::from(mtu),
            loss: 0.0,
            harm_since: None,
            braked: false,
            srtt: Duration::from_millis(100),
            newest: None,
        }
    }

    fn watch(&mut self, now: Instant) {
        let floor = self.auto.view().min_rtt.unwrap_or(self.srtt);
        let harmful = self.loss > LOSS_MOST || self.srtt > floor * 2 + Duration::from_millis(10);
        if !harmful {
            self.harm_since = None;
            return;
        }
        let since = *self.harm_since.get_or_insert(now);
        if !self.braked && now.saturating_duration_since(since) > PATIENCE {
            self.braked = true;
            self.auto.take_over(now);
        }
    }
}

impl Model for Fixed {
    fn on_sent(&mut self, now: Instant, bytes: u64, limited: bool) {
        self.auto.on_sent(now, bytes, limited);
    }

    fn on_acked(&mut self, now: Instant, sent: Instant, bytes: u64) {
        self.newest = self.newest.max(Some(sent));
        self.loss -= WEIGHT * self.loss;
        self.auto.on_acked(now, sent, bytes);
    }

    fn on_ack_end(&mut self, now: Instant, in_flight: u64) {
        self.auto.on_ack_end(now, in_flight);
        if let Some(newest) = self.newest.take() {
            self.srtt = (self.srtt * 7 + now.saturating_duration_since(newest)) / 8;
        }
        self.watch(now);
    }

    fn on_lost(&mut self, now: Instant, sent: Instant, loss: Loss) {
        let packets = bytes::to_f64(loss.bytes) / self.mtu;
        self.loss += (WEIGHT * packets).min(1.0) * (1.0 - self.loss);
        self.auto.on_lost(now, sent, loss);
        self.watch(now);
    }

    fn set_sleeps(&mut self, sleeps: Duration) {
        self.auto.set_sleeps(sleeps);
    }

    fn on_mtu(&mut self, mtu: u16) {
        self.mtu = f64::from(mtu);
        self.auto.on_mtu(mtu);
    }

    fn limits(&self) -> Limits {
        if self.braked {
            return self.auto.limits();
        }
        let rate = self.rate * (1.0 / (1.0 - self.loss.min(0.5))).min(COMPENSATION_MAX);
        let window = 2.0 * rate * self.srtt.as_secs_f64().max(0.004) + 10.0 * self.mtu;
        Limits {
            window: bytes::whole(window),
            rate: Some(rate),
            quantum: bytes::quantum(rate, self.mtu),
        }
    }

    fn view(&self) -> ControllerView {
        let phase = if self.braked { "braked" } else { "held" };
        ControllerView {
            mode: "fixed",
            phase,
            starting: self.braked && self.auto.view().starting,
            ..self.auto.view()
        }
    }

    fn clone_box(&self) -> Box<dyn Model> {
        Box::new(self.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LossBased;

    #[test]
    fn a_controller_says_whether_it_looks_for_the_bandwidth() {
        let now = Instant::now();
        assert!(Auto::new(now, 1200).view().starting);
        assert!(LossBased::cubic(1200).view().starting);
        let mut fixed = Fixed::new(now, 1200, 1_000_000);
        assert!(!fixed.view().starting, "a fixed rate needs no search");
        fixed.braked = true;
        assert!(fixed.view().starting, "auto has taken over");
    }
}
