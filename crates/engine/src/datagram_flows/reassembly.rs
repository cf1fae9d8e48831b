//! Datagrams of one flow that have arrived in part.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use quictun_wire::datagram::{Fragment, MAX_PAYLOAD};

/// Bytes of incomplete datagrams, for each flow. One of the greatest length fits.
const HELD_MAX: usize = 64 * 1024 + 64 * PART_COST;

/// Time after which an incomplete datagram is dropped. Its fragments leave together, so that the rest is lost by then.
const PARTIAL_MAX: Duration = Duration::from_secs(2);

/// Memory of a fragment beside its bytes.
const PART_COST: usize = 64;

#[derive(Debug, Default)]
pub(crate) struct Reassembly {
    /// Incomplete datagrams, oldest first.
    partial: VecDeque<Partial>,
    held: usize,
    /// Number of datagrams that were dropped and not counted yet.
    pub(super) dropped: u64,
}

#[derive(Debug)]
struct Partial {
    sequence: u64,
    parts: Vec<Option<Bytes>>,
    missing: usize,
    bytes: usize,
    since: Instant,
}

impl Partial {
    fn cost(&self) -> usize {
        self.bytes + self.parts.len() * PART_COST
    }
}

impl Reassembly {
    /// Returns the memory of fragments, bytes.
    pub(super) fn held(&self) -> usize {
        self.held
    }

    pub(super) fn next_timeout(&self) -> Option<Instant> {
        self.partial.front().map(|it| it.since + PARTIAL_MAX)
    }

    /// Drops all incomplete datagrams. Returns how many there were.
    pub(super) fn clear(&mut self) -> u64 {
        self.held = 0;
        self.partial.drain(..).count() as u64
    }

    /// Drops the datagrams that have been incomplete for too long.
    pub(super) fn expire(&mut self, now: Instant) {
        while self.next_timeout().is_some_and(|at| at <= now) {
            self.drop_at(0);
        }
    }

    /// Takes a fragment. Returns the datagram that it completes.
    ///
    /// A datagram whose fragments contradict each other is dropped: they have different counts, or are too long together.
    /// A fragment that is there already is ignored.
    pub(super) fn take(&mut self, now: Instant, fragment: Fragment, part: &Bytes) -> Option<Bytes> {
        self.expire(now);
        let at = self
            .partial
            .iter()
            .position(|it| it.sequence == fragment.sequence);
        let at = at.unwrap_or_else(|| self.begin(now, fragment));
        let partial = &mut self.partial[at];
        let count = partial.parts.len();
        if count != usize::from(fragment.count) || partial.bytes + part.len() > MAX_PAYLOAD {
            self.drop_at(at);
            return None;
        }
        let place = &mut partial.parts[usize::from(fragment.index)];
        if place.is_some() {
            return None;
        }
        // The frame is a slice of a batch, which this must not keep.
        *place = Some(Bytes::copy_from_slice(part));
        partial.bytes += part.len();
        partial.missing -= 1;
        self.held += part.len();
        if partial.missing == 0 {
            let whole = self.remove(at)?;
            let mut payload = BytesMut::with_capacity(whole.bytes);
            whole
                .parts
                .iter()
                .flatten()
                .for_each(|part| payload.extend_from_slice(part));
            return Some(payload.freeze());
        }
        while self.held > HELD_MAX && self.partial.len() > 1 {
            self.drop_at(0);
        }
        None
    }

    fn begin(&mut self, now: Instant, fragment: Fragment) -> usize {
        let count = usize::from(fragment.count);
        let partial = Partial {
            sequence: fragment.sequence,
            parts: vec![None; count],
            missing: count,
            bytes: 0,
            since: now,
        };
        self.held += partial.cost();
        self.partial.push_back(partial);
        self.partial.len() - 1
    }

    fn remove(&mut self, at: usize) -> Option<Partial> {
        let partial = self.partial.remove(at)?;
        self.held -= partial.cost();
        Some(partial)
    }

    fn drop_at(&mut self, at: usize) {
        self.dropped += u64::from(self.remove(at).is_some());
    }
}

#[cfg(test)]
mod tests;
