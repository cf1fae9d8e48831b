//! Flows of bonds with data that has arrived and is not confirmed to the peer yet (PROTOCOL section 5.8).

use std::time::{Duration, Instant};

use quictun_flow::FlowKey;

/// Longest delay of SEEN. The peer retains data for no longer than this and a round trip.
const DELAY_MAX: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(crate) struct PendingSeen {
    flows: Vec<FlowKey>,
    pub(super) at: Option<Instant>,
}

impl PendingSeen {
    pub(crate) fn push(&mut self, now: Instant, flow: FlowKey) {
        self.flows.push(flow);
        self.at.get_or_insert(now + DELAY_MAX);
    }

    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.at.is_some_and(|at| at <= now)
    }

    /// Takes all flows, so that each is reported once.
    pub(crate) fn take(&mut self) -> Vec<FlowKey> {
        self.at = None;
        std::mem::take(&mut self.flows)
    }
}
