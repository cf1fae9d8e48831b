//! Decides which address of a target is tried when (RFC 8305 section 5). It has no socket and no clock.
//!
//! The first attempt begins at once. The next one begins [`DELAY`] later, or as soon as an attempt has failed. The first
//! attempt that connects wins, and the caller closes the others.
//!
//! At most [`RUNNING_MAX`] attempts run at a time. If further addresses wait, the oldest attempt ends once it has had its
//! share of the remaining time.
//!
//! Call [`Race::poll`] after each other call, until it returns `None`, and again at [`Race::next_timeout`].

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Time between the beginnings of two attempts: the Connection Attempt Delay that RFC 8305 recommends.
const DELAY: Duration = Duration::from_millis(250);

/// Limit of the attempts that run at a time, each with a descriptor. Two of them are in the other family, so a family
/// without a path costs one [`DELAY`] only.
pub(super) const RUNNING_MAX: usize = 4;

/// Minimum time for an attempt while other addresses wait. It survives the loss of the first SYN, which TCP repeats
/// after 1 s.
const SHARE_MIN: Duration = Duration::from_millis(1250);

#[derive(Debug)]
pub(super) struct Race {
    waiting: VecDeque<SocketAddr>,
    /// The attempts that run, the oldest first, each with the time of its beginning.
    running: Vec<(SocketAddr, Instant)>,
    /// Time at which the next attempt may begin.
    next_at: Instant,
    deadline: Instant,
}

/// A command to the caller.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Connect to this address. Report [`Race::handle_begun`], [`Race::handle_failed`] or [`Race::postpone`].
    Begin(SocketAddr),
    /// Close the attempt to this address: it has had its share of the time.
    GiveUp(SocketAddr),
}

impl Race {
    /// Creates a race between these addresses, the best one first. An address that is there twice is tried once.
    pub(super) fn new(addresses: Vec<SocketAddr>, now: Instant, deadline: Instant) -> Self {
        let mut waiting = VecDeque::with_capacity(addresses.len());
        for address in addresses {
            if !waiting.contains(&address) {
                waiting.push_back(address);
            }
        }
        Self {
            waiting,
            running: Vec::new(),
            next_at: now,
            deadline,
        }
    }

    pub(super) fn poll(&mut self, now: Instant) -> Option<Step> {
        if now < self.next_at || self.waiting.is_empty() {
            return None;
        }
        if self.running.len() >= RUNNING_MAX {
            let (oldest, _) = self.running.remove(0);
            return Some(Step::GiveUp(oldest));
        }
        self.waiting.pop_front().map(Step::Begin)
    }

    pub(super) fn handle_begun(&mut self, now: Instant, address: SocketAddr) {
        self.running.push((address, now));
        self.next_at = now + DELAY;
        if let (RUNNING_MAX.., Some((_, oldest))) = (self.running.len(), self.running.first()) {
            self.next_at = self.next_at.max(*oldest + self.share(now));
        }
    }

    /// Handles an attempt that has failed, or could not begin. The next one begins at once.
    pub(super) fn handle_failed(&mut self, now: Instant, address: SocketAddr) {
        self.running.retain(|(running, _)| *running != address);
        self.next_at = now;
    }

    /// Puts an address back, because there is no descriptor for it now.
    pub(super) fn postpone(&mut self, now: Instant, address: SocketAddr) {
        self.waiting.push_front(address);
        self.next_at = now + DELAY;
    }

    /// Leaves out the addresses that are not permitted. Returns those among them that the caller has to close.
    pub(super) fn retain(
        &mut self,
        now: Instant,
        permits: impl Fn(SocketAddr) -> bool,
    ) -> Vec<SocketAddr> {
        self.waiting.retain(|address| permits(*address));
        let running = self.running.iter().map(|(address, _)| *address);
        let revoked: Vec<SocketAddr> = running.filter(|address| !permits(*address)).collect();
        for address in &revoked {
            self.handle_failed(now, *address);
        }
        revoked
    }

    /// Returns the addresses that do not answer yet.
    pub(super) fn running(&self) -> impl Iterator<Item = SocketAddr> {
        self.running.iter().map(|(address, _)| *address)
    }

    /// Returns whether no address is left.
    pub(super) fn is_lost(&self) -> bool {
        self.waiting.is_empty() && self.running.is_empty()
    }

    pub(super) fn next_timeout(&self) -> Instant {
        if self.waiting.is_empty() {
            self.deadline
        } else {
            self.next_at.min(self.deadline)
        }
    }

    /// Returns the time for each attempt, so that all waiting addresses are tried before the deadline.
    fn share(&self, now: Instant) -> Duration {
        let left = self.deadline.saturating_duration_since(now);
        let rounds = self.waiting.len().div_ceil(RUNNING_MAX) + 1;
        let rounds = u32::try_from(rounds).unwrap_or(u32::MAX);
        (left / rounds).max(SHARE_MIN)
    }
}

#[cfg(test)]
mod tests;
