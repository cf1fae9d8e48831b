//! User settings that replace those of a named link.

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use crate::bursts::GilbertElliott;
use crate::config::{Change, LinkConfig, Queue, Setting, Stall};
use crate::trace::Trace;

/// Settings that replace those of a named link, field by field. `None` leaves a field as it is.
///
/// A rate, a delay or a loss that is set here stays constant: the named link's changes of that setting are dropped
/// along with its value. Setting the rate also drops the named link's queue, which is sized for the named rate; the
/// default queue replaces it until a queue is set.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Overrides {
    /// Replaces the named link's rate or trace; see [`LinkConfig::rate`].
    pub rate: Option<u64>,
    /// Replaces the named link's rate or trace; see [`LinkConfig::trace`].
    pub trace: Option<Arc<Trace>>,
    /// Replaces the named link's [`LinkConfig::overhead`].
    pub overhead: Option<usize>,
    /// Replaces the named link's [`LinkConfig::delay`].
    pub delay: Option<Duration>,
    /// Replaces the named link's [`LinkConfig::jitter`].
    pub jitter: Option<Duration>,
    /// Replaces the named link's [`LinkConfig::stall`].
    pub stall: Option<Stall>,
    /// Replaces the named link's [`LinkConfig::loss`] and [`LinkConfig::bursts`].
    pub loss: Option<(f64, Option<GilbertElliott>)>,
    /// Adds to [`LinkConfig::changes`], in any order. Each change drops the named link's changes of the same setting.
    pub changes: Vec<Change>,
}

impl Overrides {
    /// Returns whether the rate differs from that of the named link.
    pub fn sets_rate(&self) -> bool {
        self.rate.is_some() || self.trace.is_some()
    }

    /// Returns `named` with these settings applied.
    pub fn over(&self, named: LinkConfig) -> LinkConfig {
        let mut changes = named.changes;
        changes.retain(|change| !self.replaces(change.to));
        changes.extend(&self.changes);
        changes.sort_by_key(|change| change.at);
        let (rate, trace, queue) = if self.sets_rate() {
            (self.rate, self.trace.clone(), Queue::default())
        } else {
            (named.rate, named.trace, named.queue)
        };
        let (loss, bursts) = self.loss.unwrap_or((named.loss, named.bursts));
        LinkConfig {
            rate,
            trace,
            queue,
            overhead: self.overhead.unwrap_or(named.overhead),
            delay: self.delay.unwrap_or(named.delay),
            jitter: self.jitter.unwrap_or(named.jitter),
            stall: self.stall.or(named.stall),
            loss,
            bursts,
            changes,
            ..named
        }
    }

    fn replaces(&self, setting: Setting) -> bool {
        let said = match setting {
            Setting::Rate(_) => self.sets_rate(),
            Setting::Delay(_) => self.delay.is_some(),
            Setting::Loss(_) => self.loss.is_some(),
        };
        let kind = mem::discriminant(&setting);
        let mut changes = self.changes.iter();
        said || changes.any(|change| mem::discriminant(&change.to) == kind)
    }
}
