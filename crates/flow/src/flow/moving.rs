//! Moves a flow from one stream to another (PROTOCOL section 5.8).
//!
//! ```text
//! retain ─► … ─► detach ─► attach (MOVE or MOVE_ACK goes first) ─► resume (the peer has said what it lacks) ─► …
//! ```

use bytes::Bytes;
use quictun_wire::code::FlowCode;

use super::Flow;
use crate::close::{DirectionState, Ending};
use crate::inlet::Inlet;
use crate::socket::Socket;
use crate::stream::{NoStream, ReadEnd, Stream};

/// The peer named a number from which the flow cannot continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResumeError {
    /// Bytes from this number on are no longer kept.
    TooOld,
    /// Nothing with this number was ever sent.
    NeverSent,
}

impl<S: Socket> Flow<S> {
    /// Keeps what the application sends until the peer has it, so that the flow can move. Call this before the first
    /// byte is read; later calls have no effect.
    pub fn retain(&mut self) {
        self.to_tunnel.retain();
    }

    /// Stops keeping bytes: the flow then ends with its connection.
    pub fn stop_retaining(&mut self) {
        self.to_tunnel.stop_retaining();
    }

    /// Drops the kept bytes that were given to the stream. The flow can then move only once the peer has all of them.
    pub fn forget_retained(&mut self) {
        self.to_tunnel.forget_retained();
    }

    /// Returns the number of bytes that are kept for the peer.
    pub fn retained(&self) -> u64 {
        self.to_tunnel.retained()
    }

    /// Returns the memory behind the bytes that are kept for the peer, in bytes.
    pub fn kept(&self) -> u64 {
        self.to_tunnel.kept()
    }

    /// Returns the part of [`Flow::kept`] behind bytes that the current stream must be given again after a move.
    /// [`Flow::forget_retained`] does not drop these.
    pub fn kept_to_repeat(&self) -> u64 {
        self.to_tunnel.kept_to_repeat()
    }

    /// Returns whether the flow can continue on another stream. It can also if one of its directions was stopped, so
    /// that the other one arrives before the reset.
    pub fn can_move(&self) -> bool {
        let ended = !matches!(self.ending, None | Some(Ending::Finished));
        self.to_tunnel.is_retaining() && !ended && self.parting.is_none() && self.lost.is_none()
    }

    /// Returns whether `code`, of a reset stream, says that the peer has moved the flow.
    pub(super) fn is_left(&self, code: u64) -> bool {
        FlowCode::from_u64(code) == Some(FlowCode::Moved) && self.can_move()
    }

    /// Returns the first number that has not arrived in order.
    pub fn next(&self) -> u64 {
        self.to_app.inlet.next()
    }

    /// Returns the number after everything that was sent, including the FIN.
    pub fn sent(&self) -> u64 {
        self.to_tunnel.sent()
    }

    /// Checks that a peer that lacks everything from the number `next` on can still get it.
    ///
    /// # Errors
    ///
    /// [`ResumeError::NeverSent`] if nothing with that number was sent, [`ResumeError::TooOld`] if it is no longer
    /// kept.
    pub fn check_next(&self, next: u64) -> Result<(), ResumeError> {
        if next > self.to_tunnel.sent() {
            Err(ResumeError::NeverSent)
        } else if next < self.to_tunnel.oldest() && !self.stopped {
            Err(ResumeError::TooOld)
        } else {
            Ok(())
        }
    }

    /// Returns whether the current stream has not ended, even if both directions of the flow have.
    pub fn has_open_stream(&self) -> bool {
        self.to_tunnel.is_owed() || self.to_app.inlet.is_drain_only()
    }

    /// Notes that the peer has everything before the number `next`, and drops what was kept of it.
    ///
    /// # Errors
    ///
    /// [`ResumeError::NeverSent`] if `next` is beyond everything that was sent.
    pub fn handle_seen(&mut self, next: u64) -> Result<(), ResumeError> {
        if next > self.to_tunnel.sent() {
            return Err(ResumeError::NeverSent);
        }
        self.to_tunnel.release(next);
        Ok(())
    }

    /// Leaves a stream that is lost or abandoned: takes what it delivered in order, then continues without a stream. If
    /// the stream was reset for another reason than a move, the flow ends.
    pub fn detach<T: Stream>(&mut self, stream: &mut T) {
        let inlet = &mut self.to_app.inlet;
        while !inlet.is_whole() {
            match inlet.take_in(stream, usize::MAX) {
                ReadEnd::More => {}
                ReadEnd::Reset(code) if FlowCode::from_u64(code) != Some(FlowCode::Moved) => {
                    return self.handle_reset(&mut NoStream, code);
                }
                _ => break,
            }
        }
        self.to_app.inlet.leave();
        self.to_tunnel.leave();
    }

    /// Begins on a new stream. `header` is sent first; the application's bytes follow after [`Flow::resume`].
    pub fn attach(&mut self, header: Bytes) {
        self.to_tunnel.send_first(header);
    }

    /// Continues for a peer that lacks everything from the number `next` on. `leg` is the new stream's inlet, with the
    /// header removed. Its bytes begin with the number [`Flow::next`].
    ///
    /// # Errors
    ///
    /// As for [`Flow::check_next`]. The flow is unchanged then.
    pub fn resume(&mut self, next: u64, leg: Inlet) -> Result<(), ResumeError> {
        self.check_next(next)?;
        self.to_tunnel.resume(next);
        self.to_app.inlet.resume(leg);
        self.stop_sent = false;
        if self.to_app.direction == DirectionState::Closed {
            self.to_app.inlet.clear();
        }
        Ok(())
    }
}
