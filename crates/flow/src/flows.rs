//! All flows of an engine, and their deadlines.

use std::time::Instant;

use slab::Slab;

use crate::deadlines::Deadlines;
use crate::flow_entry::FlowEntry;
use crate::ids::{FlowId, FlowKey, Ids};
use crate::socket::Socket;

/// All flows of an engine.
#[derive(Debug)]
pub struct Flows<S> {
    slots: Slab<Slot<S>>,
    deadlines: Deadlines<FlowKey>,
    /// Number of flows that have left `slots`.
    removed: u64,
}

/// A flow and the time by which it must have left its current phase. The same time is entered in [`Flows::deadlines`].
#[derive(Debug)]
struct Slot<S> {
    entry: FlowEntry<S>,
    deadline: Option<Instant>,
}

impl<S: Socket> Flows<S> {
    /// Returns the id for the next flow. A flow that is refused at once takes an id and is never added.
    pub fn next_id(&self, ids: &mut Ids) -> FlowId {
        ids.flow(FlowKey(self.slots.vacant_key()))
    }

    /// Adds the flow that `make` builds from its id, with the deadline `at`.
    pub fn insert(
        &mut self,
        ids: &mut Ids,
        at: Instant,
        make: impl FnOnce(FlowId) -> FlowEntry<S>,
    ) -> FlowKey {
        let id = self.next_id(ids);
        let key = FlowKey(self.slots.insert(Slot {
            entry: make(id),
            deadline: None,
        }));
        self.set_deadline(key, Some(at));
        key
    }

    /// Removes a flow and its deadline.
    pub fn remove(&mut self, key: FlowKey) -> Option<FlowEntry<S>> {
        self.set_deadline(key, None);
        let slot = self.slots.try_remove(key.0)?;
        self.removed += 1;
        Some(slot.entry)
    }

    /// Returns the flow with this key.
    pub fn get(&self, key: FlowKey) -> Option<&FlowEntry<S>> {
        Some(&self.slots.get(key.0)?.entry)
    }

    /// Returns the flow with this key, for changes.
    pub fn get_mut(&mut self, key: FlowKey) -> Option<&mut FlowEntry<S>> {
        Some(&mut self.slots.get_mut(key.0)?.entry)
    }

    /// Returns whether the flow still exists.
    pub fn contains(&self, key: FlowKey) -> bool {
        self.slots.contains(key.0)
    }

    /// Returns the key of a flow, if the flow still exists.
    pub fn find(&self, id: FlowId) -> Option<FlowKey> {
        let key = id.key();
        (self.get(key)?.id() == id).then_some(key)
    }

    /// Sets or clears the time by which a flow must have left its current phase.
    pub fn set_deadline(&mut self, key: FlowKey, deadline: Option<Instant>) {
        if let Some(slot) = self.slots.get_mut(key.0) {
            self.deadlines.set(key, &mut slot.deadline, deadline);
        }
    }

    /// Returns the earliest deadline of all flows.
    pub fn next_timeout(&self) -> Option<Instant> {
        self.deadlines.next()
    }

    /// Removes a deadline that is due, and returns it with the key of its flow. The flow itself stays.
    pub fn pop_due(&mut self, now: Instant) -> Option<(FlowKey, Instant)> {
        let due = self.deadlines.next()?;
        let key = self.deadlines.pop_due(now)?;
        if let Some(slot) = self.slots.get_mut(key.0) {
            slot.deadline = None;
        }
        Some((key, due))
    }
}

impl<S> Default for Flows<S> {
    fn default() -> Self {
        Self {
            slots: Slab::new(),
            deadlines: Deadlines::default(),
            removed: 0,
        }
    }
}

impl<S> Flows<S> {
    /// Returns the number of flows in the table.
    pub fn count(&self) -> usize {
        self.slots.len()
    }

    /// Returns the number of flows that were removed so far.
    pub fn removed(&self) -> u64 {
        self.removed
    }

    /// Returns the number of flows that have a deadline.
    pub fn deadlines(&self) -> usize {
        self.deadlines.count()
    }

    /// Iterates over all flows in the order of their keys.
    pub fn iter(&self) -> impl Iterator<Item = (FlowKey, &FlowEntry<S>)> {
        let slots = self.slots.iter();
        slots.map(|(key, slot)| (FlowKey(key), &slot.entry))
    }
}
