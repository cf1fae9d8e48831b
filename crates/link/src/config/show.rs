//! The display of a configuration in one line.

use std::fmt;

use super::{LinkConfig, LossAt, Queue};
use crate::units::{Delay, Rate, Share};

/// Writes the differences from a perfect wire, separated by commas.
impl fmt::Display for LinkConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        if let Some(rate) = self.rate {
            parts.push(Rate(rate).to_string());
        }
        if let Some(trace) = &self.trace {
            parts.push(format!("trace of {}", Rate(trace.mean_rate())));
        }
        for (name, time) in [("delay", self.delay), ("jitter", self.jitter)] {
            if !time.is_zero() {
                parts.push(format!("{name} {}", Delay(time)));
            }
        }
        if let Some(stall) = self.stall {
            let (lasts, every) = (Delay(stall.lasts), Delay(stall.every));
            parts.push(format!("stalls {lasts}/{every}"));
        }
        for (name, share) in [("loss", self.loss), ("duplicates", self.duplicate)] {
            if share > 0.0 {
                parts.push(format!("{name} {}", Share(share)));
            }
        }
        if let Some(bursts) = self.bursts {
            parts.push(format!("loss in bursts {:.3}", Share(bursts.mean_loss())));
        }
        let loses = self.loss > 0.0 || self.bursts.is_some();
        if loses && self.loss_at == LossAt::Entry {
            parts.push("lost before the queue".to_owned());
        }
        if self.reorder.share > 0.0 {
            let (share, extra) = (Share(self.reorder.share), Delay(self.reorder.extra));
            parts.push(format!("{share} late by {extra}"));
        }
        if self.queue != Queue::default() {
            parts.push(format!("queue {}", self.queue));
        }
        if let Some(codel) = self.codel {
            let (target, interval) = (Delay(codel.target), Delay(codel.interval));
            let ecn = if codel.ecn { " with marks" } else { "" };
            parts.push(format!("CoDel {target}/{interval}{ecn}"));
        }
        if let Some(above) = self.mark_above {
            parts.push(format!("marks above {}", Delay(above)));
        }
        if let Some(policer) = self.policer {
            let (rate, burst) = (Rate(policer.rate), policer.burst);
            parts.push(format!("policer {rate} burst {burst}B"));
        }
        for (name, count) in [
            ("outages", self.outages.len()),
            ("changes", self.changes.len()),
        ] {
            if count > 0 {
                parts.push(format!("{name} {count}"));
            }
        }
        if parts.is_empty() {
            parts.push("a perfect wire".to_owned());
        }
        f.write_str(&parts.join(", "))
    }
}
