//! Look-ups of targets that a worker has asked of the control plane.
//!
//! A look-up has its place from [`Lookups::ask`] until its answer was taken ([`Lookups::answered`]), also where its
//! flow has ended meanwhile ([`Lookups::forget`]): so the queues there and back have room for all of them. All workers
//! share the places.

use std::collections::HashMap;

use quictun_engine::FlowId;
use quictun_wire::target::Target;
use tokio::sync::oneshot;

use crate::requests::{REQUESTS, Wanted};
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
    /// The client and the target. `None`: the answer is no longer wanted.
    wanted: Option<(Peer, Target, oneshot::Receiver<()>)>,
}

/// Places for look-ups in a process, of which one client alone may have half.
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

    /// Begins a look-up; `None`: its client has as many as it may.
    pub(crate) fn ask(
        &mut self,
        flow: FlowId,
        holder: &Holder,
        peer: Peer,
        target: Target,
    ) -> Option<Wanted> {
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

    /// The rules have changed, and this is who asked.
    pub(crate) fn set_peer(&mut self, flow: FlowId, peer: Peer) {
        if let Some(Lookup {
            wanted: Some((asked_by, ..)),
            ..
        }) = self.asked.get_mut(&flow)
        {
            *asked_by = peer;
        }
    }

    /// The flow has ended: the control plane is told that its look-up is not wanted.
    pub(crate) fn forget(&mut self, flow: FlowId) {
        if let Some(lookup) = self.asked.get_mut(&flow) {
            lookup.wanted = None;
        }
    }

    /// The answer has come. Returns the client and the target where it is still wanted.
    pub(crate) fn answered(&mut self, flow: FlowId) -> Option<(Peer, Target)> {
        let lookup = self.asked.remove(&flow)?;
        self.places.give_back(&lookup.holder);
        lookup.wanted.map(|(peer, target, _)| (peer, target))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(lookups: &mut Lookups, flow: u64, client: u8) -> Option<Wanted> {
        let holder = Holder::at([192, 0, 2, client].into());
        let target = Target::parse("tcp:db:22").expect("a target");
        lookups.ask(FlowId(flow), &holder, Peer::Anyone, target)
    }

    #[test]
    fn whoever_works_on_a_look_up_sees_that_nobody_wants_it() {
        let mut lookups = Lookups::new(CommonShares::new(8, 1));
        let wanted = ask(&mut lookups, 1, 1).expect("a place");
        assert!(!wanted.is_closed());
        lookups.forget(FlowId(1));
        assert!(wanted.is_closed());
        assert_eq!(lookups.answered(FlowId(1)), None);
        // Too late, or never asked.
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
