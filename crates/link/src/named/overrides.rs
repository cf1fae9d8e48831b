//! Settings that replace those of a named link.

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use crate::bursts::GilbertElliott;
use crate::config::{Change, LinkConfig, Queue, Setting, Stall};
use crate::trace::Trace;

/// Settings that replace those of a named link, field by field; `None` leaves one as it is.
///
/// A rate, a delay or a loss that is said stays: those changes of the named link are dropped with its value. With its
/// rate goes its queue, which was made for that: the default takes its place, until a queue is set.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Overrides {
    /// [`LinkConfig::rate`], in place of a rate or a trace.
    pub rate: Option<u64>,
    /// [`LinkConfig::trace`], in place of a rate or a trace.
    pub trace: Option<Arc<Trace>>,
    /// [`LinkConfig::overhead`].
    pub overhead: Option<usize>,
    /// [`LinkConfig::delay`].
    pub delay: Option<Duration>,
    /// [`LinkConfig::jitter`].
    pub jitter: Option<Duration>,
    /// [`LinkConfig::stall`].
    pub stall: Option<Stall>,
    /// [`LinkConfig::loss`] and [`LinkConfig::bursts`].
    pub loss: Option<(f64, Option<GilbertElliott>)>,
    /// [`LinkConfig::changes`], in any order; each drops the named link's changes of the same setting.
    pub changes: Vec<Change>,
}

impl Overrides {
    /// Whether the rate is another than that of the named link.
    pub fn sets_rate(&self) -> bool {
        self.rate.is_some() || self.trace.is_some()
    }

    /// These settings, and those of `named` where they have none.
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
