//! State of the direction from the application to the stream.

use std::sync::Arc;

use bytes::{Buf, Bytes};
use quictun_wire::handover::HandedSent;

use crate::close::DirectionState;
use crate::flow::{copies, state_of};
use crate::read_buffer::{PIECE_MAX, ReadBuffer};
use crate::retained::RetainedBytes;
use crate::stream::{Stream, WriteEnd};

#[derive(Debug)]
pub(crate) struct ToTunnel {
    pub(crate) direction: DirectionState,
    /// The socket has neither returned would-block nor been drained since it was last ready.
    pub(crate) readable: bool,
    /// Bytes that the stream accepts next.
    pending: Bytes,
    /// Bytes at the front of `pending` that belong to the protocol header, not to the application.
    prefix: usize,
    /// Number of the application's next byte that the current stream accepts.
    sent: u64,
    /// The largest value that `sent` has had.
    most: u64,
    /// The current stream's sending part has ended: with the FIN, or with a reset.
    fin_sent: bool,
    /// The peer has not said yet what it lacks: only header bytes may be sent.
    waits: bool,
    /// Bytes that the peer may ask for again, if the flow can move.
    retained: Option<RetainedBytes>,
    /// Each chunk that was read holds a reference until QUIC has its acknowledgement and it is no longer retained.
    unconfirmed: Arc<()>,
}

/// The reason why [`Flow::pump_to_tunnel`](crate::Flow::pump_to_tunnel) stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToTunnelStop {
    /// The application has sent nothing more. Wait for its socket.
    Starved,
    /// Flow control allows no more bytes. Wait for the stream to become writable.
    Blocked,
    /// The budget is used up. Call again when there is more.
    Budget,
    /// The direction has ended.
    Ended,
}

impl ToTunnel {
    pub(crate) fn new() -> Self {
        Self {
            direction: DirectionState::Open,
            readable: true,
            pending: Bytes::new(),
            prefix: 0,
            sent: 0,
            most: 0,
            fin_sent: false,
            waits: false,
            retained: None,
            unconfirmed: Arc::default(),
        }
    }

    pub(crate) fn send_first(&mut self, prefix: Bytes) {
        self.prefix = prefix.len();
        self.pending = prefix;
    }

    /// Returns the number of bytes of the header that the stream has not accepted.
    pub(crate) fn prefix_left(&self) -> usize {
        self.prefix
    }

    /// Returns the number of bytes of the application that streams have accepted. A byte that is sent again counts
    /// once.
    pub(crate) fn app_bytes(&self) -> u64 {
        self.most
    }

    /// Returns whether no byte of the application has been read: `pending` holds header bytes only.
    pub(crate) fn is_untouched(&self) -> bool {
        self.direction != DirectionState::Closed && !self.has_bytes()
    }

    /// Returns whether bytes of the application were read.
    pub(crate) fn has_bytes(&self) -> bool {
        self.most > 0 || !self.pending.is_empty() && self.prefix == 0
    }

    /// Returns what each chunk refers to that the peer has not confirmed.
    pub(crate) fn unconfirmed(&self) -> &Arc<()> {
        &self.unconfirmed
    }

    /// Returns the number of chunks that the peer has not confirmed: by SEEN, if they are retained for it, and by
    /// QUIC's acknowledgement.
    pub(crate) fn unconfirmed_chunks(&self) -> usize {
        Arc::strong_count(&self.unconfirmed) - 1
    }

    pub(crate) fn close(&mut self) {
        if self.direction == DirectionState::Open {
            self.direction = DirectionState::Closed;
        }
        self.fin_sent = true;
        self.drop_unsent();
        if let Some(retained) = &mut self.retained {
            retained.clear();
        }
    }

    fn drop_unsent(&mut self) {
        self.pending = Bytes::new();
        self.prefix = 0;
    }

    pub(crate) fn is_written(&self) -> bool {
        self.pending.is_empty() && self.retained.as_ref().is_none_or(RetainedBytes::is_given)
    }

    /// Returns whether nothing may be given to the stream now, because the peer has not said yet what it lacks.
    pub(crate) fn is_waiting(&self) -> bool {
        self.waits && self.prefix == 0
    }

    pub(crate) fn push(&mut self, chunk: Bytes) {
        if let Some(retained) = self.retained.as_mut().filter(|it| !it.is_over()) {
            retained.push(&chunk);
        }
        self.pending = chunk;
    }

    pub(crate) fn write<T: Stream>(&mut self, stream: &mut T, budget: &mut usize) -> WriteEnd {
        if self.pending.is_empty() {
            let again = self.retained.as_mut().and_then(RetainedBytes::give);
            self.pending = again.unwrap_or_default();
        }
        let offered = self.pending.len().min(*budget);
        let mut part = self.pending.slice(..offered);
        let end = stream.write(&mut part);
        let taken = offered - part.len();
        self.pending.advance(taken);
        if self.pending.is_empty() {
            // An empty rest would still refer to its chunk.
            self.pending = Bytes::new();
        }
        *budget -= taken;
        let own = self.prefix.min(taken);
        self.prefix -= own;
        self.sent += (taken - own) as u64;
        self.most = self.most.max(self.sent);
        end
    }

    /// Ends the stream after the bytes written so far.
    pub(crate) fn finish<T: Stream>(&mut self, stream: &mut T) {
        stream.finish();
        self.direction = DirectionState::Finished;
        self.fin_sent = true;
    }

    /// Returns whether a stream still has something to accept: bytes, or the end.
    pub(crate) fn is_owed(&self) -> bool {
        match self.direction {
            DirectionState::Open => true,
            // After a move the new stream still has to end.
            DirectionState::Finished | DirectionState::Closed => !self.fin_sent,
        }
    }
}

/// Hand-over to another process.
impl ToTunnel {
    /// Returns the state of a direction without a stream. `None` if it was cut, or keeps nothing.
    pub(crate) fn hand_over(&self) -> Option<HandedSent> {
        let retained = self.retained.as_ref().filter(|_| self.waits)?;
        Some(HandedSent {
            bytes: self.most,
            seen: 0,
            kept_from: retained.from(),
            kept: retained.pieces().flatten().copied().collect(),
            finished: match self.direction {
                DirectionState::Open => false,
                DirectionState::Finished => true,
                DirectionState::Closed => return None,
            },
        })
    }

    /// Continues the direction of another process, on no stream yet.
    pub(crate) fn take_over(sent: &HandedSent, buffer: &ReadBuffer) -> Self {
        let mut taken = Self::new();
        let mut retained = RetainedBytes::starting_at(sent.kept_from);
        for piece in copies(&sent.kept, PIECE_MAX) {
            retained.push(&buffer.keep_copy(piece, &taken.unconfirmed));
        }
        taken.retained = Some(retained);
        taken.direction = state_of(sent.finished);
        (taken.sent, taken.most, taken.waits) = (sent.bytes, sent.bytes, true);
        taken
    }
}

/// Moves to another stream.
impl ToTunnel {
    /// Keeps everything read from now on until the peer has it. Has no effect once application bytes were read.
    pub(crate) fn retain(&mut self) {
        if self.most == 0 && self.pending.len() == self.prefix {
            self.retained.get_or_insert_default();
        }
    }

    /// Stops keeping bytes for the peer.
    pub(crate) fn stop_retaining(&mut self) {
        if let Some(retained) = &mut self.retained {
            retained.end();
        }
    }

    pub(crate) fn is_retaining(&self) -> bool {
        self.retained.as_ref().is_some_and(|it| !it.is_over())
    }

    /// Returns the number of bytes that are kept for the peer.
    pub(crate) fn retained(&self) -> u64 {
        self.retained.as_ref().map_or(0, RetainedBytes::len)
    }

    /// Returns the memory behind the bytes that are kept for the peer, in bytes.
    pub(crate) fn kept(&self) -> u64 {
        self.retained.as_ref().map_or(0, RetainedBytes::memory)
    }

    /// Returns the memory behind the kept bytes that the current stream must be given again, in bytes.
    pub(crate) fn kept_to_repeat(&self) -> u64 {
        let retained = self.retained.as_ref();
        retained.map_or(0, RetainedBytes::memory_to_give)
    }

    /// Drops everything that was given to the current stream so far.
    pub(crate) fn forget_retained(&mut self) {
        if let Some(retained) = &mut self.retained {
            retained.forget();
        }
    }

    /// Returns the number after everything that was ever sent. The FIN takes one number.
    pub(crate) fn sent(&self) -> u64 {
        self.most + u64::from(self.direction == DirectionState::Finished)
    }

    /// Drops what the peer has: everything before the number `next`. Bytes that the current stream has not accepted yet
    /// are kept, even if the peer claims to have them.
    pub(crate) fn release(&mut self, next: u64) {
        if let Some(retained) = &mut self.retained {
            retained.release(next.min(self.sent));
        }
    }

    /// Leaves a stream that is lost. Bytes that it has not accepted stay among the retained ones.
    pub(crate) fn leave(&mut self) {
        self.drop_unsent();
        if let Some(retained) = &mut self.retained {
            retained.hold_back();
        }
        self.fin_sent = false;
        self.waits = true;
    }

    /// Returns the number of the first byte that can still be sent again.
    pub(crate) fn oldest(&self) -> u64 {
        self.retained
            .as_ref()
            .map_or(self.most, RetainedBytes::from)
    }

    /// Sends everything from the number `next` on again, which the peer lacks, and then what follows.
    pub(crate) fn resume(&mut self, next: u64) {
        self.waits = false;
        self.sent = next.min(self.most);
        if let Some(retained) = &mut self.retained {
            retained.release(self.sent);
            retained.give_again();
        }
    }
}
