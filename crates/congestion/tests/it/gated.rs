//! Senders that have data only at some times.

use std::time::{Duration, Instant};

use quictun_congestion::{ControllerView, Limits, Loss, Model};

#[derive(Debug)]
struct Gated {
    model: Box<dyn Model>,
    origin: Instant,
    now: Instant,
    open: fn(f64) -> bool,
}

/// Time before the data ends in which packets are sent without a limit, in seconds.
const ENDS_S: f64 = 0.002;

/// Wraps a model so that it has data only while `open` returns true for the seconds since `origin`.
pub(crate) fn gated(
    model: Box<dyn Model>,
    origin: Instant,
    open: fn(f64) -> bool,
) -> Box<dyn Model> {
    Box::new(Gated {
        model,
        origin,
        now: origin,
        open,
    })
}

impl Model for Gated {
    fn on_sent(&mut self, now: Instant, bytes: u64, limited: bool) {
        self.now = now;
        // The last packets are sent when there is no more data.
        let since = now.saturating_duration_since(self.origin).as_secs_f64();
        let more = (self.open)(since + ENDS_S);
        self.model.on_sent(now, bytes, limited && more);
    }

    fn on_acked(&mut self, now: Instant, sent: Instant, bytes: u64) {
        self.model.on_acked(now, sent, bytes);
    }

    fn on_ack_end(&mut self, now: Instant, in_flight: u64) {
        self.now = now;
        self.model.on_ack_end(now, in_flight);
    }

    fn on_lost(&mut self, now: Instant, sent: Instant, loss: Loss) {
        self.model.on_lost(now, sent, loss);
    }

    fn set_sleeps(&mut self, sleeps: Duration) {
        self.model.set_sleeps(sleeps);
    }

    fn on_mtu(&mut self, mtu: u16) {
        self.model.on_mtu(mtu);
    }

    fn limits(&self) -> Limits {
        let limits = self.model.limits();
        let since = self.now.saturating_duration_since(self.origin);
        let open = (self.open)(since.as_secs_f64());
        let window = if open { limits.window } else { 0 };
        Limits { window, ..limits }
    }

    fn view(&self) -> ControllerView {
        self.model.view()
    }

    fn clone_box(&self) -> Box<dyn Model> {
        Box::new(Self {
            model: self.model.clone_box(),
            ..*self
        })
    }
}
