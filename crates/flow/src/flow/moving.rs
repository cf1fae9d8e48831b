//! The flow without its stream, and its move to another one (PROTOCOL section 5.8).
//!
//! ```text
//! retain ─► … ─► detach ─► attach (MOVE or MOVE_ACK goes first) ─► resume (the peer has said what it lacks) ─► …
//! ```

use bytes::Bytes;
use quictun_wire::code::FlowCode;

use super::Flow;
use crate::close::{Direction, Ending};
use crate::inlet::Inlet;
use crate::socket::Socket;
use crate::stream::{NoStream, ReadEnd, Stream};

/// A number that the peer names, and that the flow cannot go on from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadNumber {
    /// The bytes from it on are no longer kept.
    TooOld,
    /// Nothing with that number was ever sent.
    NeverSent,
}

impl<S: Socket> Flow<S> {
    /// Keeps what the application sends until the peer has it, so that the flow can move. To be called before the first byte
    /// is read.
    pub fn retain(&mut self) {
        self.to_tunnel.retain();
    }

    /// Gives that up: the flow ends with its connection.
    pub fn forgo(&mut self) {
        self.to_tunnel.forgo();
    }

    /// Drops what is kept of what the stream was given: the flow can only move once the peer has all of it.
    pub fn forget_retained(&mut self) {
        self.to_tunnel.forget_retained();
    }

    /// Bytes that are kept for the peer.
    pub fn retained(&self) -> u64 {
        self.to_tunnel.retained()
    }

    /// Memory behind what is kept for the peer, bytes.
    pub fn kept(&self) -> u64 {
        self.to_tunnel.kept()
    }

    /// Whether the flow can continue on another stream. One of which a part was reset cannot.
    pub fn can_move(&self) -> bool {
        let ended = !matches!(self.ending, None | Some(Ending::Finished));
        let cut = |direction| direction == Direction::Closed;
        self.to_tunnel.is_retaining()
            && !ended
            && !self.stopped
            && self.parting.is_none()
            && self.lost.is_none()
            && !cut(self.to_tunnel.direction)
            && !cut(self.to_app.direction)
    }

    /// Whether this code of a reset stream says that the peer has moved the flow.
    pub(super) fn is_left(&self, code: u64) -> bool {
        FlowCode::from_u64(code) == Some(FlowCode::Moved) && self.can_move()
    }

    /// The first number that has not arrived in order.
    pub fn next(&self) -> u64 {
        self.to_app.inlet.next()
    }

    /// The number after all that was sent, the FIN included.
    pub fn sent(&self) -> u64 {
        self.to_tunnel.sent()
    }

    /// Whether the peer could get what it lacks, if it lacks everything from the number `next` on.
    ///
    /// # Errors
    ///
    /// The number is of nothing that was sent, or of something that is no longer kept.
    pub fn check_next(&self, next: u64) -> Result<(), BadNumber> {
        if next > self.to_tunnel.sent() {
            Err(BadNumber::NeverSent)
        } else if next < self.to_tunnel.oldest() {
            Err(BadNumber::TooOld)
        } else {
            Ok(())
        }
    }

    /// Whether its present stream has not ended, although both directions may have.
    pub fn owes_stream(&self) -> bool {
        self.to_tunnel.is_owed() || self.to_app.inlet.is_spent()
    }

    /// The peer has everything before the number `next`.
    ///
    /// # Errors
    ///
    /// [`BadNumber::NeverSent`].
    pub fn handle_seen(&mut self, next: u64) -> Result<(), BadNumber> {
        if next > self.to_tunnel.sent() {
            return Err(BadNumber::NeverSent);
        }
        self.to_tunnel.release(next);
        Ok(())
    }

    /// The stream is gone, or is left: takes what it has brought in order, and goes on without. A reset that it has brought
    /// ends the flow.
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

    /// Begins on a new stream: `header` goes first, the application's bytes after [`Flow::resume`].
    pub fn attach(&mut self, header: Bytes) {
        self.to_tunnel.send_first(header);
    }

    /// The peer lacks everything from the number `next` on. `leg` is where the new stream's bytes arrive, without its header:
    /// they begin with [`Flow::next`].
    ///
    /// # Errors
    ///
    /// As [`Flow::check_next`]: then nothing has changed.
    pub fn resume(&mut self, next: u64, leg: Inlet) -> Result<(), BadNumber> {
        self.check_next(next)?;
        self.to_tunnel.resume(next);
        self.to_app.inlet.go_on(leg);
        Ok(())
    }
}
