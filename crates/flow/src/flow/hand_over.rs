//! Hands a flow without a stream over to another process, and takes it over there.

use bytes::Bytes;
use quictun_wire::handover::{HandedReceived, HandedSent};

use super::Flow;
use crate::close::{DirectionState, Ending};
use crate::inlet::Inlet;
use crate::read_buffer::ReadBuffer;
use crate::socket::Socket;
use crate::to_app::ToApp;
use crate::to_tunnel::ToTunnel;

impl<S: Socket> Flow<S> {
    /// Returns the state of a flow that has left its stream ([`Flow::detach`]), without the confirmations of both sides,
    /// which the flow does not know. `None` if another process cannot continue the flow: it has been reset in one
    /// direction, or cannot move.
    pub fn hand_over(&self) -> Option<(HandedSent, HandedReceived)> {
        if !self.can_move() || self.failed || self.stopped {
            return None;
        }
        let sent = self.to_tunnel.hand_over()?;
        let received = HandedReceived {
            delivered: self.to_app.bytes,
            waiting: self.to_app.inlet.chunks().flatten().copied().collect(),
            whole: self.to_app.inlet.is_whole(),
            finished: match self.to_app.direction {
                DirectionState::Open => false,
                DirectionState::Finished => true,
                DirectionState::Closed => return None,
            },
            end_reported: false,
        };
        Some((sent, received))
    }

    /// Continues the flow of another process, on no stream yet. `buffer` counts the bytes that the flow keeps.
    pub fn take_over(
        socket: S,
        sent: &HandedSent,
        received: &HandedReceived,
        buffer: &ReadBuffer,
    ) -> Self {
        let inlet = Inlet::take_over(received);
        let mut flow = Self::new(socket, inlet);
        flow.to_tunnel = ToTunnel::take_over(sent, buffer);
        flow.to_app = ToApp {
            direction: state_of(received.finished),
            bytes: received.delivered,
            ..flow.to_app
        };
        // The socket was closed in good order before.
        flow.ending = (sent.finished && received.finished).then_some(Ending::Finished);
        flow
    }
}

/// Returns the state of a direction that was not cut.
pub(crate) fn state_of(finished: bool) -> DirectionState {
    if finished {
        DirectionState::Finished
    } else {
        DirectionState::Open
    }
}

/// Splits bytes into copies of at most `most` bytes, so that each can be released by itself.
pub(crate) fn copies(bytes: &[u8], most: usize) -> impl Iterator<Item = Bytes> {
    bytes.chunks(most).map(Bytes::copy_from_slice)
}
