//! A source that sends at one rate, whatever becomes of it.

use std::time::{Duration, Instant};

use crate::packet::UDP_HEADERS;

/// A stream of packets at a constant bit rate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Constant {
    /// Bytes of IP packets per second.
    pub rate: u64,
    /// Length of an IP packet, at least that of its headers.
    pub length: usize,
    /// When it begins, counted from the network's start.
    pub start: Duration,
    /// When it stops; `None`: never.
    pub stop: Option<Duration>,
}

impl Constant {
    /// A stream of `rate` bytes per second in full packets, from the start to the end.
    pub fn new(rate: u64) -> Self {
        const FULL: usize = 1500;
        Self {
            rate,
            length: FULL,
            start: Duration::ZERO,
            stop: None,
        }
    }
}

/// Such a source at work.
#[derive(Debug)]
pub(crate) struct Source {
    options: Constant,
    base: Instant,
    sent: u64,
}

impl Source {
    pub(crate) fn new(options: Constant, base: Instant, now: Instant) -> Self {
        let base = (base + options.start).max(now);
        Self {
            options,
            base,
            sent: 0,
        }
    }

    pub(crate) fn sent(&self) -> u64 {
        self.sent
    }

    /// Length of what a packet carries.
    pub(crate) fn payload(&self) -> usize {
        self.options.length.saturating_sub(UDP_HEADERS)
    }

    /// When the next packet leaves.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        let bytes = u128::from(self.sent) * (self.payload() + UDP_HEADERS) as u128;
        let nanos = bytes * 1_000_000_000 / u128::from(self.options.rate.max(1));
        let after = Duration::from_nanos(u64::try_from(nanos).ok()?);
        let at = self.base.checked_add(after)?;
        let over = |stop| self.options.start + after >= stop;
        Some(at).filter(|_| !self.options.stop.is_some_and(over))
    }

    /// Whether a packet leaves now.
    pub(crate) fn poll(&mut self, now: Instant) -> bool {
        let due = self.next_timeout().is_some_and(|at| at <= now);
        self.sent += u64::from(due);
        due
    }
}
