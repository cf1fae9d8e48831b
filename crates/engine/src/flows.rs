//! All flows of an engine, and their deadlines.

use std::time::Instant;

use quictun_flow::Socket;
use slab::Slab;

use crate::deadlines::Deadlines;
use crate::flow_entry::FlowEntry;
use crate::ids::{FlowId, FlowKey, Ids};

/// All flows of an engine.
pub(crate) struct Flows<S> {
    slots: Slab<Slot<S>>,
    deadlines: Deadlines<FlowKey>,
}

/// A flow, and until when it must have left its present phase, as entered in [`Flows::deadlines`].
struct Slot<S> {
    entry: FlowEntry<S>,
    deadline: Option<Instant>,
}

impl<S: Socket> Flows<S> {
    /// Adds the flow that `make` makes for its id, and enters `at` as its deadline.
    pub(crate) fn insert(
        &mut self,
        ids: &mut Ids,
        at: Instant,
        make: impl FnOnce(FlowId) -> FlowEntry<S>,
    ) -> FlowKey {
        let id = ids.flow(FlowKey(self.slots.vacant_key()));
        let key = FlowKey(self.slots.insert(Slot {
            entry: make(id),
            deadline: None,
        }));
        self.set_deadline(key, Some(at));
        key
    }

    pub(crate) fn remove(&mut self, key: FlowKey) -> Option<FlowEntry<S>> {
        self.set_deadline(key, None);
        Some(self.slots.try_remove(key.0)?.entry)
    }

    pub(crate) fn get(&self, key: FlowKey) -> Option<&FlowEntry<S>> {
        Some(&self.slots.get(key.0)?.entry)
    }

    pub(crate) fn get_mut(&mut self, key: FlowKey) -> Option<&mut FlowEntry<S>> {
        Some(&mut self.slots.get_mut(key.0)?.entry)
    }

    pub(crate) fn contains(&self, key: FlowKey) -> bool {
        self.slots.contains(key.0)
    }

    /// The place of a flow, if it is still there.
    pub(crate) fn find(&self, id: FlowId) -> Option<FlowKey> {
        let key = id.key();
        (self.get(key)?.id() == id).then_some(key)
    }

    /// Sets or clears the time until which a flow must have left its present phase.
    pub(crate) fn set_deadline(&mut self, key: FlowKey, deadline: Option<Instant>) {
        if let Some(slot) = self.slots.get_mut(key.0) {
            self.deadlines.set(key, &mut slot.deadline, deadline);
        }
    }

    /// The earliest deadline.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.deadlines.next()
    }

    /// Takes a flow whose deadline has come.
    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<FlowKey> {
        let key = self.deadlines.pop_due(now)?;
        if let Some(slot) = self.slots.get_mut(key.0) {
            slot.deadline = None;
        }
        Some(key)
    }
}

impl<S> Flows<S> {
    pub(crate) fn new() -> Self {
        Self {
            slots: Slab::new(),
            deadlines: Deadlines::new(),
        }
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// How many have a deadline.
    pub(crate) fn deadlines(&self) -> usize {
        self.deadlines.len()
    }

    /// All of them, in the order of their keys.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (FlowKey, &FlowEntry<S>)> {
        let slots = self.slots.iter();
        slots.map(|(key, slot)| (FlowKey(key), &slot.entry))
    }
}
