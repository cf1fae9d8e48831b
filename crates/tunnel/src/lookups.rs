//! The look-ups of targets that a worker has requested from the control plane.
//!
//! A look-up holds its place from [`Lookups::ask`] until its answer is taken ([`Lookups::answered`]), even if its flow
//! ends earlier ([`Lookups::forget`]). So the queues in both directions have room for all look-ups. All workers share
//! the places.

use std::collections::HashMap;

use quictun_engine::FlowId;
use quictun_wire::target::Target;
use tokio::sync::oneshot;

use crate::requests::{Cancellation, REQUESTS};
use quictun_trust::access::Peer;
use quictun_trust::shares::{CommonShares, Holder};

#[derive(Debug)]
pub(crate) struct Lookups {
    places: CommonShares,
    asked: HashMap<FlowId, Lookup>,
}

#[derive(Debug)]
struct Lookup {
    holder: Holder,
    /// The client and the target. `None` if the answer is no longer wanted.
    wanted: Option<(Peer, Target, oneshot::Receiver<()>)>,
}

/// Creates the places for look-ups of a process. A single client gets at most half of them.
pub(crate) fn places() -> CommonShares {
    CommonShares::new(REQUESTS, 1)
}

impl Lookups {
    pub(crate) fn new(places: CommonShares) -> Self {
        Self {
            places,
            asked: HashMap::new(),
        }
    }

    /// Begins a look-up. Returns `None` if its client has its maximum already.
    pub(crate) fn ask(
        &mut self,
        flow: FlowId,
        holder: &Holder,
        peer: Peer,
        target: Target,
    ) -> Option<Cancellation> {
        if !self.places.take(holder) {
            return None;
        }
        let (wanted, want) = oneshot::channel();
        let lookup = Lookup {
            holder: holder.clone(),
            wanted: Some((peer, target, want)),
        };
        self.asked.insert(flow, lookup);
        Some(wanted)
    }

    /// Replaces the client's identity, because the rules have changed.
    pub(crate) fn set_peer(&mut self, flow: FlowId, peer: Peer) {
        if let Some(Lookup {
            wanted: Some((asked_by, ..)),
            ..
        }) = self.asked.get_mut(&flow)
        {
            *asked_by = peer;
        }
    }

    /// Cancels the look-up of a flow that has ended. The control plane sees that the answer is not wanted.
    pub(crate) fn forget(&mut self, flow: FlowId) {
        if let Some(lookup) = self.asked.get_mut(&flow) {
            lookup.wanted = None;
        }
    }

    /// Handles the answer. Returns the client and the target if the answer is still wanted.
    pub(crate) fn answered(&mut self, flow: FlowId) -> Option<(Peer, Target)> {
        let lookup = self.asked.remove(&flow)?;
        self.places.give_back(&lookup.holder);
        lookup.wanted.map(|(peer, target, _)| (peer, target))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(lookups: &mut Lookups, flow: u64, client: u8) -> Option<Cancellation> {
        let holder = Holder::at([192, 0, 2, client].into());
        let target = Target::parse("tcp:db:22").expect("a target");
        lookups.ask(FlowId(flow), &holder, Peer::Anyone, target)
    }

    #[test]
    fn the_control_plane_sees_that_a_look_up_was_cancelled() {
        let mut lookups = Lookups::new(CommonShares::new(8, 1));
        let wanted = ask(&mut lookups, 1, 1).expect("a place");
        assert!(!wanted.is_closed());
        lookups.forget(FlowId(1));
        assert!(wanted.is_closed());
        assert_eq!(lookups.answered(FlowId(1)), None);
        // Too late, or without a request.
        lookups.forget(FlowId(1));
        assert_eq!(lookups.answered(FlowId(2)), None);
    }

    #[test]
    fn a_forgotten_look_up_keeps_its_place_until_it_is_answered() {
        let mut lookups = Lookups::new(CommonShares::new(4, 1));
        let held: Vec<_> = (0..4).filter_map(|n| ask(&mut lookups, n, 1)).collect();
        assert_eq!(held.len(), 2, "half of the places");
        lookups.forget(FlowId(0));
        assert!(ask(&mut lookups, 5, 1).is_none());
        assert!(ask(&mut lookups, 6, 2).is_some(), "another client's");
        lookups.answered(FlowId(0));
        lookups.answered(FlowId(1));
        assert!(ask(&mut lookups, 7, 1).is_some());
    }
}
