//! The end of a flow that waits: for its socket to send everything, or for its peer to confirm what the application sent
//! before its reset (PROTOCOL CLOSE-7, CLOSE-12).

use std::time::{Duration, Instant};

use super::FlowEntry;
use crate::socket::Socket;
use crate::wait_limit::WaitLimit;

/// Interval between checks of a socket that has not sent everything, because no event announces that it has. For local
/// applications everything is sent at once.
const LOOK_AGAIN: Duration = Duration::from_millis(10);
const LOOK_AGAIN_MAX: Duration = Duration::from_secs(2);

/// The wait of a flow for its end.
#[derive(Debug)]
pub(super) struct EndWait {
    limit: WaitLimit,
    /// The flow's progress, as last looked at.
    progress: (u64, usize),
}

impl<S: Socket> FlowEntry<S> {
    /// Returns when to check again a flow that only waits for its socket to send everything, or for its peer to confirm
    /// everything. The time in which the peer's connection is `silent` does not count.
    pub fn next_check(&mut self, now: Instant, silent: bool) -> Option<Instant> {
        if self.detached().is_some() || self.is_moving() || self.phase.is_unanswered() {
            // Other deadlines apply.
            return None;
        }
        let progress = self.flow()?.end_progress()?;
        let silent = silent && self.has_failed();
        let begin = || {
            let limit = WaitLimit::new(now);
            Box::new(EndWait { limit, progress })
        };
        let wait = self.end_wait.get_or_insert_with(begin);
        let changed = std::mem::replace(&mut wait.progress, progress) != progress;
        let by = wait.limit.update(now, changed || silent);
        // Thousands of flows may wait for applications that do not read, so the interval grows with the wait.
        let interval = wait.limit.waited(now) / 4;
        Some(by.min(now + interval.clamp(LOOK_AGAIN, LOOK_AGAIN_MAX)))
    }

    /// Returns whether a flow that only waits for its end has waited for too long.
    pub fn is_late(&self, now: Instant) -> bool {
        let wait = self.end_wait.as_ref();
        wait.is_some_and(|wait| wait.limit.has_passed(now))
    }

    /// Checks whether the socket has sent everything, or has taken too long.
    pub fn poll_parting(&mut self, now: Instant) {
        let late = self.is_late(now);
        if let Some(flow) = self.flow_mut() {
            flow.poll_parting(late);
        }
    }

    /// Returns whether the application has reset its connection, and the peer has not confirmed yet what it sent before.
    pub fn has_failed(&self) -> bool {
        self.flow()
            .is_some_and(|flow| flow.has_failed() && flow.ending().is_none())
    }

    /// Returns whether the peer has confirmed everything that was sent: see [`crate::Flow::unconfirmed_chunks`].
    pub fn is_confirmed(&self) -> bool {
        let all = self
            .flow()
            .is_none_or(|flow| flow.unconfirmed_chunks() == 0);
        all && (self.bonded.is_none() || self.unseen_end().is_none())
    }
}
