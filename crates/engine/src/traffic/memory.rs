//! The memory that the connections and flows of an engine take together, and the room for more.

use std::time::{Duration, Instant};

use quictun_flow::{Account, FlowEntry, FlowKey, Lease, PinnedBatches, ReadBuffer, Socket};

/// Size of the longest read from an application once half of the budget is taken. Larger reads would keep unused
/// capacity, and more than the peer may give credit for.
const READ_LARGE: usize = 64 * 1024;

/// Size of the longest read once three quarters are taken. Reads of this size are kept without unused capacity.
const READ_SCARCE: usize = 8 * 1024;

/// Memory that one flow's turn may take with small reads: one batch, and the cost of its pieces.
const TURN_COST: u64 = 68 * 1024;

/// Bytes that a connection may read and send per round trip while only the reserve is left.
const READ_LITTLE: usize = 4 * 1024;

/// The memory of an engine.
pub(crate) struct Memory {
    pub(crate) lease: Lease,
    pub(crate) read_buffer: ReadBuffer,
    pinned: PinnedBatches<FlowKey>,
    /// Memory charged for data that is kept for sending, in bytes.
    pub(crate) kept: u64,
    /// Memory that the role keeps, in bytes.
    pub(crate) kept_by_role: u64,
    /// Time before which no further flow is ended to free memory.
    free_at: Option<Instant>,
}

impl Memory {
    pub(super) fn new(account: &Account) -> Self {
        Self {
            lease: Lease::new(account.clone()),
            read_buffer: ReadBuffer::default(),
            pinned: PinnedBatches::new(account.budget()),
            kept: 0,
            kept_by_role: 0,
            free_at: None,
        }
    }

    /// Charges data that is kept for sending, memory that the role keeps, and `others`, in bytes.
    pub(super) fn charge_kept(&mut self, others: u64) {
        let kept = self.read_buffer.kept() as u64 + self.kept_by_role + others;
        self.lease.adjust(&mut self.kept, kept);
    }

    /// Returns how much the next flow of a connection may read from its application, in bytes. `None` means nothing
    /// until the peer has acknowledged what was sent before. `is_idle` says whether it has.
    ///
    /// Once half of the budget is taken, reads are limited to what the peer gives credit for. While only the reserve is
    /// left, an idle connection still reads [`READ_LITTLE`], so that every connection makes progress.
    pub(super) fn reading_room(&mut self, is_idle: impl FnOnce() -> bool) -> Option<usize> {
        let (lease, buffer) = (&self.lease, &mut self.read_buffer);
        if !lease.is_half_full() {
            buffer.set_max(None);
            return Some(usize::MAX);
        }
        if lease.free() > lease.reserve() / 4 * 3 + TURN_COST {
            let max = if lease.is_scarce() {
                READ_SCARCE
            } else {
                READ_LARGE
            };
            buffer.set_max(Some(max));
            return Some(usize::MAX);
        }
        buffer.set_max(Some(READ_LITTLE));
        let room = lease.free() > lease.reserve() / 8 + 2 * READ_LITTLE as u64;
        (room && is_idle()).then_some(READ_LITTLE)
    }

    /// Counts the `batches` of received datagrams that a flow keeps.
    pub(super) fn note_pinned<S: Socket>(
        &mut self,
        key: FlowKey,
        entry: &mut FlowEntry<S>,
        batches: usize,
    ) {
        self.pinned.note(key, &mut entry.pinned, batches);
    }

    /// Returns a flow that should copy its data out of batches, because all flows together keep too many.
    pub(super) fn first_pinned(&self) -> Option<FlowKey> {
        self.pinned.excess()
    }

    /// Returns whether memory is so short that a flow should end. Returns true at most once per `interval`.
    pub(super) fn takes_flow(&mut self, now: Instant, interval: Duration) -> bool {
        let soon = self.free_at.is_some_and(|at| now < at);
        let short = !soon && self.lease.free() <= self.lease.reserve() / 2;
        if short {
            self.free_at = Some(now + interval);
        }
        short
    }
}
