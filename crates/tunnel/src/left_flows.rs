//! Flows whose clients do not answer: after a crash of a client they wait for its return, and count against its limits.
//! If the client has reached a limit, the oldest of them gives way to its next flow (PROTOCOL LIMIT-4).
//!
//! All workers share one table, because a client that returns need not reach the worker that has its earlier flows.
//!
//! ```text
//!  its client falls silent        take_oldest, by any worker       the flow's worker
//!  ─────────────────────────► left ─────────────────────────► claimed ─────────────► ended
//!                            ◄─┘ the client answers
//! ```
//!
//! A flow that is claimed ends even if its client answers in the meantime. Its place is passed on at once.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use quictun_engine::FlowId;
use quictun_trust::shares::Holder;

/// The table of all workers. Clones share the same table.
#[derive(Clone, Debug, Default)]
pub(crate) struct LeftTable(Arc<Mutex<LeftIndex>>);

#[derive(Debug, Default)]
struct LeftIndex {
    by_holder: HashMap<Holder, BTreeSet<LeftFlow>>,
    /// Flows that have given way to others, and that their workers have not ended yet.
    claimed: BTreeMap<usize, Vec<FlowId>>,
}

/// A flow whose client does not answer. The order is that of giving way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LeftFlow {
    since: Instant,
    pub(crate) worker: usize,
    pub(crate) flow: FlowId,
}

/// One worker's view of the table.
#[derive(Debug)]
pub(crate) struct LeftFlows {
    table: LeftTable,
    worker: usize,
    own: HashMap<FlowId, (Holder, Instant)>,
}

impl LeftFlows {
    pub(crate) fn new(table: LeftTable, worker: usize) -> Self {
        Self {
            table,
            worker,
            own: HashMap::new(),
        }
    }

    /// Notes that the client of a flow of this worker does not answer.
    pub(crate) fn note(&mut self, now: Instant, flow: FlowId, holder: Holder) {
        if self.own.contains_key(&flow) {
            return;
        }
        self.own.insert(flow, (holder.clone(), now));
        let left = self.entry(flow, now);
        self.table
            .lock()
            .by_holder
            .entry(holder)
            .or_default()
            .insert(left);
    }

    /// Notes that the client of a flow answers again, or that the flow is over.
    pub(crate) fn forget(&mut self, flow: FlowId) {
        if let Some((holder, since)) = self.own.remove(&flow) {
            let left = self.entry(flow, since);
            self.table.lock().remove(&holder, left);
        }
    }

    /// Takes the flow of a client that was left for the longest time. The caller passes its place on, and ends it if it
    /// is one of this worker. Otherwise the caller wakes the flow's worker.
    pub(crate) fn take_oldest(&mut self, holder: &Holder) -> Option<LeftFlow> {
        let mut table = self.table.lock();
        let oldest = *table.by_holder.get(holder)?.first()?;
        table.remove(holder, oldest);
        if oldest.worker == self.worker {
            self.own.remove(&oldest.flow);
        } else {
            table
                .claimed
                .entry(oldest.worker)
                .or_default()
                .push(oldest.flow);
        }
        Some(oldest)
    }

    /// Returns the flows of this worker that other workers have taken.
    pub(crate) fn claimed(&mut self) -> Vec<FlowId> {
        let claimed = self.table.lock().claimed.remove(&self.worker);
        let claimed = claimed.unwrap_or_default();
        for flow in &claimed {
            self.own.remove(flow);
        }
        claimed
    }

    fn entry(&self, flow: FlowId, since: Instant) -> LeftFlow {
        LeftFlow {
            since,
            worker: self.worker,
            flow,
        }
    }
}

impl LeftTable {
    /// Locks the table. It stays consistent even if a thread panicked while it held the lock, because each change is
    /// one step.
    fn lock(&self) -> MutexGuard<'_, LeftIndex> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LeftIndex {
    fn remove(&mut self, holder: &Holder, left: LeftFlow) {
        if let Some(flows) = self.by_holder.get_mut(holder) {
            flows.remove(&left);
            if flows.is_empty() {
                self.by_holder.remove(holder);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn holder(number: u8) -> Holder {
        Holder::at([192, 0, 2, number].into())
    }

    fn workers() -> [LeftFlows; 2] {
        let table = LeftTable::default();
        [0, 1].map(|worker| LeftFlows::new(table.clone(), worker))
    }

    // PROTOCOL LIMIT-4.
    #[test]
    fn the_flow_that_was_left_first_gives_way_in_whichever_worker_it_is() {
        let ([mut one, mut other], now) = (workers(), Instant::now());
        let second = now + Duration::from_secs(1);
        one.note(second, FlowId(1), holder(1));
        other.note(now, FlowId(2), holder(1));
        other.note(now, FlowId(3), holder(2));
        // A flow keeps the time at which it was left first.
        other.note(second, FlowId(2), holder(1));
        let taken = |of: &mut LeftFlows| {
            let taken = of.take_oldest(&holder(1));
            taken.map(|left| (left.worker, left.flow))
        };
        assert_eq!(taken(&mut one), Some((1, FlowId(2))));
        assert_eq!(taken(&mut one), Some((0, FlowId(1))));
        assert_eq!(taken(&mut one), None, "flow 3 is of another client");
        assert_eq!(other.claimed(), [FlowId(2)]);
        assert!(other.claimed().is_empty() && one.claimed().is_empty());
    }

    #[test]
    fn a_flow_whose_client_answers_again_stays_and_nothing_is_left_of_it() {
        let [mut one, mut other] = workers();
        one.note(Instant::now(), FlowId(1), holder(1));
        one.forget(FlowId(1));
        one.forget(FlowId(1));
        assert!(other.take_oldest(&holder(1)).is_none());
        assert!(one.own.is_empty() && one.table.lock().by_holder.is_empty());
    }
}
