//! All flows of an engine, and their deadlines.

use std::time::Instant;

use slab::Slab;

use crate::deadlines::Deadlines;
use crate::flow_entry::FlowEntry;
use crate::ids::{FlowId, FlowKey, Ids};
use crate::socket::Socket;

/// All flows of an engine, on streams named by a `T`.
#[derive(Debug)]
pub struct Flows<S, T> {
    slots: Slab<Slot<S, T>>,
    deadlines: Deadlines<FlowKey>,
}

/// A flow, and until when it must have left its present phase, as entered in [`Flows::deadlines`].
#[derive(Debug)]
struct Slot<S, T> {
    entry: FlowEntry<S, T>,
    deadline: Option<Instant>,
}

impl<S: Socket, T: Copy> Flows<S, T> {
    /// Adds the flow that `make` makes for its id, and enters `at` as its deadline.
    pub fn insert(
        &mut self,
        ids: &mut Ids,
        at: Instant,
        make: impl FnOnce(FlowId) -> FlowEntry<S, T>,
    ) -> FlowKey {
        let id = ids.flow(FlowKey(self.slots.vacant_key()));
        let key = FlowKey(self.slots.insert(Slot {
            entry: make(id),
            deadline: None,
        }));
        self.set_deadline(key, Some(at));
        key
    }

    /// Takes a flow out.
    pub fn remove(&mut self, key: FlowKey) -> Option<FlowEntry<S, T>> {
        self.set_deadline(key, None);
        Some(self.slots.try_remove(key.0)?.entry)
    }

    /// A flow.
    pub fn get(&self, key: FlowKey) -> Option<&FlowEntry<S, T>> {
        Some(&self.slots.get(key.0)?.entry)
    }

    /// A flow, to change it.
    pub fn get_mut(&mut self, key: FlowKey) -> Option<&mut FlowEntry<S, T>> {
        Some(&mut self.slots.get_mut(key.0)?.entry)
    }

    /// Whether a flow is still there.
    pub fn contains(&self, key: FlowKey) -> bool {
        self.slots.contains(key.0)
    }

    /// The place of a flow, if it is still there.
    pub fn find(&self, id: FlowId) -> Option<FlowKey> {
        let key = id.key();
        (self.get(key)?.id() == id).then_some(key)
    }

    /// Sets or clears the time until which a flow must have left its present phase.
    pub fn set_deadline(&mut self, key: FlowKey, deadline: Option<Instant>) {
        if let Some(slot) = self.slots.get_mut(key.0) {
            self.deadlines.set(key, &mut slot.deadline, deadline);
        }
    }

    /// The earliest deadline.
    pub fn next_timeout(&self) -> Option<Instant> {
        self.deadlines.next()
    }

    /// Takes a flow whose deadline has come.
    pub fn pop_due(&mut self, now: Instant) -> Option<FlowKey> {
        let key = self.deadlines.pop_due(now)?;
        if let Some(slot) = self.slots.get_mut(key.0) {
            slot.deadline = None;
        }
        Some(key)
    }
}

impl<S, T> Default for Flows<S, T> {
    fn default() -> Self {
        Self {
            slots: Slab::new(),
            deadlines: Deadlines::default(),
        }
    }
}

impl<S, T> Flows<S, T> {
    /// How many there are.
    pub fn count(&self) -> usize {
        self.slots.len()
    }

    /// How many have a deadline.
    pub fn deadlines(&self) -> usize {
        self.deadlines.count()
    }

    /// All flows, in the order of their keys.
    pub fn iter(&self) -> impl Iterator<Item = (FlowKey, &FlowEntry<S, T>)> {
        let slots = self.slots.iter();
        slots.map(|(key, slot)| (FlowKey(key), &slot.entry))
    }
}
