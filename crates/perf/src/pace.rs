//! When a transaction should begin.
//!
//! Closed loop: when the one before it has ended. Open loop: at moments that were fixed before the first; one that is
//! late is late since its moment, not since it could begin, so that a slow answer is told by all that had to wait for
//! it (no coordinated omission).

use std::io;
use std::num::NonZeroU64;
use std::time::{Duration, Instant};

use crate::plan::Plan;
use crate::stop::{Stop, Woken};

/// The moments of one flow.
#[derive(Debug)]
pub(crate) struct Pace {
    start: Instant,
    /// Between two of this flow; `None`: closed loop.
    step: Option<Duration>,
    next: u32,
}

impl Pace {
    /// For flow `index` of the plan. Call it on the thread that waits.
    pub(crate) fn new(plan: &Plan, index: u32, start: Instant) -> Self {
        let step = plan.rate.map(|rate| {
            #[expect(clippy::cast_precision_loss, reason = "a rate")]
            let rate = rate as f64;
            Duration::from_secs_f64(f64::from(plan.total_flows()) / rate)
        });
        if step.is_some() {
            // A sleep that ends late would be taken for a slow answer. It is only less precise without.
            let one = NonZeroU64::new(1);
            if rustix::thread::set_current_timer_slack(one).is_err() {}
        }
        let shift = step.map_or(Duration::ZERO, |step| {
            step.mul_f64(f64::from(index) / f64::from(plan.total_flows().max(1)))
        });
        Self {
            start: start + shift,
            step,
            next: 0,
        }
    }

    /// When the next one should begin; `None`: now.
    pub(crate) fn due(&self) -> Option<Instant> {
        Some(self.start + self.step?.saturating_mul(self.next))
    }

    /// The next one has begun.
    pub(crate) fn advance(&mut self) {
        self.next = self.next.saturating_add(1);
    }

    /// Waits for the next one's moment and gives it; `None`: everything is to end.
    pub(crate) fn wait(&mut self, stop: &Stop) -> io::Result<Option<Instant>> {
        let due = self.due();
        self.advance();
        let Some(due) = due else {
            return Ok((!stop.is_raised()).then(Instant::now));
        };
        while Instant::now() < due {
            if stop.wait(Some(due))? == Woken::Stopped {
                return Ok(None);
            }
        }
        Ok((!stop.is_raised()).then_some(due))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Mode, Transport};

    #[test]
    fn the_flows_of_an_open_loop_take_turns() {
        let plan = Plan {
            rate: Some(1000),
            flows: 4,
            ..Plan::new(Transport::Tcp, Mode::Rr)
        };
        let start = Instant::now();
        let mut paces: Vec<Pace> = (0..4).map(|index| Pace::new(&plan, index, start)).collect();
        for millis in 0..40 {
            let pace = &mut paces[millis % 4];
            let expected = Duration::from_millis(millis as u64);
            assert_eq!(pace.due(), Some(start + expected));
            pace.advance();
        }
    }

    #[test]
    fn a_late_one_is_late_since_its_moment() {
        let plan = Plan {
            rate: Some(1_000_000),
            ..Plan::new(Transport::Tcp, Mode::Rr)
        };
        let stop = Stop::new().expect("an event");
        let start = Instant::now();
        let mut pace = Pace::new(&plan, 0, start);
        while start.elapsed() < Duration::from_millis(1) {}
        for micros in 0..1000 {
            let due = pace.wait(&stop).expect("a wait");
            assert_eq!(due, Some(start + Duration::from_micros(micros)));
        }
        stop.raise();
        assert_eq!(pace.wait(&stop).expect("a wait"), None);
    }
}
