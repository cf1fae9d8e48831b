//! The transmitter: computes when a packet has been sent, at a rate that may change or as a trace allows.

use std::sync::Arc;

use crate::config::{LinkConfig, Setting};
use crate::nanos;
use crate::timed_value::TimedValue;
use crate::trace::{Trace, TracePosition};

/// Bytes per second above which a rate counts as this rate: 8 Tbit/s, so that the arithmetic fits 64 bits.
pub(crate) const MAX_RATE: u64 = 1_000_000_000_000;

#[derive(Clone, Debug)]
pub(crate) struct Transmitter {
    rate: TimedValue<Option<u64>>,
    trace: Option<(Arc<Trace>, TracePosition)>,
    /// Time at which all packets so far have been sent, plus `parts`. Keeping the fraction prevents rounding errors
    /// from adding up.
    busy_until: u64,
    /// Fraction of a nanosecond, in units of a nanosecond divided by the rate.
    parts: u64,
}

impl Transmitter {
    pub(crate) fn new(config: &LinkConfig) -> Self {
        Self {
            rate: rates(config),
            trace: config
                .trace
                .clone()
                .map(|trace| (trace, TracePosition::default())),
            busy_until: 0,
            parts: 0,
        }
    }

    /// Continues with the configuration `new`. Packets accepted under `old` keep their times.
    pub(crate) fn reconfigure(&mut self, old: &LinkConfig, new: &LinkConfig) {
        self.busy_until = self.busy_until();
        self.parts = 0;
        self.rate = rates(new);
        if old.trace != new.trace {
            self.trace = new
                .trace
                .clone()
                .map(|trace| (trace, TracePosition::default()));
        }
    }

    /// Returns the time at which a packet that enters at `now` begins to be sent.
    pub(crate) fn begins(&self, now: u64) -> u64 {
        let free = now.max(self.busy_until());
        match &self.trace {
            Some((trace, position)) => trace.opens(*position, free),
            None => free,
        }
    }

    /// Sends `bytes` from the time at which the packet [begins](Self::begins), and returns the time at which its last
    /// bit has been sent.
    pub(crate) fn send(&mut self, begins: u64, bytes: u64) -> u64 {
        if let Some((trace, position)) = &mut self.trace {
            self.busy_until = trace.spend(position, begins, bytes);
            return self.busy_until;
        }
        if begins > self.busy_until() {
            self.busy_until = begins;
            self.parts = 0;
        }
        let mut work = bytes * NANOS_PER_SECOND;
        loop {
            let Some(rate) = self.rate.at(self.busy_until) else {
                self.busy_until = self.busy_until();
                self.parts = 0;
                return self.busy_until;
            };
            let rate = rate.clamp(1, MAX_RATE);
            let (whole, parts) = ((work + self.parts) / rate, (work + self.parts) % rate);
            let ends = self.busy_until.saturating_add(whole);
            match self.rate.next_change() {
                Some(change) if ends >= change => {
                    let time = u128::from(change - self.busy_until);
                    let done = u128::from(rate) * time - u128::from(self.parts);
                    work -= u64::try_from(done).unwrap_or(work).min(work);
                    self.busy_until = change;
                    self.parts = 0;
                }
                _ => {
                    self.busy_until = ends;
                    self.parts = parts;
                    return self.busy_until();
                }
            }
        }
    }

    /// Returns the first nanosecond at which all packets so far have been sent.
    pub(crate) fn busy_until(&self) -> u64 {
        self.busy_until + u64::from(self.parts > 0)
    }
}

fn rates(config: &LinkConfig) -> TimedValue<Option<u64>> {
    let changes = config.changes.iter().filter_map(|change| match change.to {
        Setting::Rate(rate) => Some((nanos(change.at), rate)),
        _ => None,
    });
    TimedValue::new(config.rate, changes)
}

const NANOS_PER_SECOND: u64 = 1_000_000_000;
