//! Batches of received datagrams that stay in memory because flows keep slices of them.
//!
//! A slice costs no copy, and keeps a batch of up to 64 KiB. The peer decides how little of a batch it is, so that the
//! bytes that flows hold say little about memory. [`Pinned::note`] is called with what each flow keeps; while the flows
//! together keep too many batches, [`Pinned::excess`] names the flow that has kept some for the longest time, and the
//! engine packs what it holds ([`Inlet::pack`]). Data on its way to an application that reads is rarely copied.
//!
//! [`Inlet::pack`]: quictun_flow::Inlet::pack

use std::collections::BTreeMap;

use quictun_flow::Socket;

use crate::engine::Engine;

/// Memory of one batch, bytes.
const BATCH: u64 = 64 * 1024;

/// Part of the budget that the batches of one engine may take, and the most that they may take, bytes.
const PART: u64 = 64;
const MAX: u64 = 4 << 20;

/// What one flow keeps, as noted here.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Kept {
    batches: usize,
    /// Its place in the order of flows that keep batches.
    turn: u64,
}

/// The batches of all flows of an engine.
#[derive(Debug)]
pub(crate) struct Pinned {
    batches: usize,
    most: usize,
    next: u64,
    /// Flows that keep batches, the one first that has kept some for the longest time.
    flows: BTreeMap<u64, usize>,
}

impl Pinned {
    /// For a process that may hold `budget` bytes.
    pub(crate) fn new(budget: u64) -> Self {
        Self {
            batches: 0,
            most: usize::try_from((budget / PART).min(MAX) / BATCH).unwrap_or(usize::MAX),
            next: 0,
            flows: BTreeMap::new(),
        }
    }

    /// Notes that the flow `key`, which kept `kept`, keeps so many batches now.
    pub(crate) fn note(&mut self, key: usize, kept: &mut Kept, batches: usize) {
        self.batches = self.batches - kept.batches + batches;
        if kept.batches == 0 && batches > 0 {
            kept.turn = self.next;
            self.next += 1;
            self.flows.insert(kept.turn, key);
        } else if kept.batches > 0 && batches == 0 {
            self.flows.remove(&kept.turn);
        }
        kept.batches = batches;
    }

    /// The flow that is to be packed next, while the flows keep too many batches.
    fn excess(&self) -> Option<usize> {
        let (_, &key) = self.flows.first_key_value()?;
        (self.batches > self.most).then_some(key)
    }
}

impl<S: Socket> Engine<S> {
    /// Notes what a flow keeps, and packs what flows hold while they keep too many batches.
    pub(crate) fn note_pinned(&mut self, key: usize) {
        if let Some(entry) = self.flows.get_mut(key) {
            let batches = entry.inlet_mut().map_or(0, |inlet| inlet.batches());
            self.pinned.note(key, &mut entry.pinned, batches);
        }
        while let Some(key) = self.pinned.excess() {
            let entry = &mut self.flows[key];
            if let Some(inlet) = entry.inlet_mut() {
                inlet.pack();
            }
            self.pinned.note(key, &mut entry.pinned, 0);
        }
    }
}
