//! How a flow leaves its connection: it starts again on another one, moves to another one of its bond, or only delivers
//! the data that has arrived.

use std::time::Instant;

use super::{Attachment, FlowEntry, FlowPhase, Placement, StreamKey};
use crate::bonded::DetachedState;
use crate::flow::Flow;
use crate::inlet::Inlet;
use crate::salvage::{Leg, Salvage};
use crate::socket::Socket;

/// Limit for the times that a flow may start again on another connection. After that it waits for its turn: each new
/// start costs a connection.
const REOPENS_MAX: u8 = 3;

/// A new start on another connection, and delivery without a connection.
impl<S: Socket> FlowEntry<S> {
    /// Returns whether the flow may start again on another connection: the server has not answered, and no application
    /// byte has been sent that another request would send again (PROTOCOL CLOSE-10).
    pub fn may_reopen(&self) -> bool {
        let FlowPhase::Bridged {
            flow,
            answered: false,
        } = &self.phase
        else {
            return false;
        };
        self.reopened < REOPENS_MAX && flow.is_untouched()
    }

    /// Takes the flow off its connection, to wait for another. Returns where it was carried.
    pub fn reopen(&mut self) -> Option<StreamKey> {
        let stream_key = self.stream_key()?;
        self.leave_for(Placement::Waiting);
        self.reopened += 1;
        let phase = std::mem::replace(&mut self.phase, FlowPhase::Reading(Inlet::new()));
        if let FlowPhase::Bridged { flow, .. } = phase {
            self.phase = FlowPhase::Waiting(flow.into_socket());
        }
        Some(stream_key)
    }

    /// Returns whether the flow was taken off a connection before.
    pub fn is_reopened(&self) -> bool {
        self.reopened > 0
    }

    /// Continues without the stream, to deliver data that has arrived.
    pub fn begin_salvage(&mut self, now: Instant, leg: Leg) {
        let salvage = Salvage::new(now, leg, self.is_moving());
        self.leave_for(Placement::Salvaged(Box::new(salvage)));
    }

    /// Takes the flow off its connection, and forgets its places in queues.
    fn leave_for(&mut self, placement: Placement) -> Placement {
        self.shaped = false;
        std::mem::replace(&mut self.placement, placement)
    }

    /// Returns the salvage state of the flow, if its connection is lost or its stream was reset.
    pub fn salvage(&self) -> Option<&Salvage> {
        match &self.placement {
            Placement::Salvaged(salvage) => Some(salvage),
            _ => None,
        }
    }

    /// Returns the flow and its salvage state, if its connection is lost or its stream was reset.
    pub fn salvaged(&mut self) -> Option<(&mut Flow<S>, &mut Salvage)> {
        match (&mut self.phase, &mut self.placement) {
            (FlowPhase::Bridged { flow, .. }, Placement::Salvaged(salvage)) => {
                Some((flow, salvage))
            }
            _ => None,
        }
    }
}

/// Moves (PROTOCOL section 5.8).
impl<S: Socket> FlowEntry<S> {
    /// Returns whether the flow can continue on another connection.
    pub fn can_move(&self) -> bool {
        let answered = matches!(self.phase, FlowPhase::Bridged { answered: true, .. });
        answered && self.bonded.is_some() && self.flow().is_some_and(Flow::can_move)
    }

    /// Returns whether the flow stays although both its directions have ended: the peer may still ask for sent data, or
    /// the stream that the flow moved to must still be ended.
    pub fn lingers(&self) -> bool {
        self.has_open_stream() || self.can_move() && self.unseen_end().is_some()
    }

    /// Returns whether the flow's stream has not ended, even if the flow has.
    pub fn has_open_stream(&self) -> bool {
        self.placement.attachment().is_some() && self.flow().is_some_and(Flow::has_open_stream)
    }

    /// Returns whether the flow has received everything, and the peer has confirmed everything.
    pub fn needs_no_peer(&self) -> bool {
        let flow = self.flow();
        let all_sent = flow.is_some_and(|flow| flow.end_sent().is_some());
        let stopped = flow.is_some_and(Flow::is_stopped);
        let whole = flow.is_some_and(|flow| flow.arrived().is_whole());
        (all_sent || stopped) && whole && self.unseen_end().is_none()
    }

    /// Continues without a connection until `until`. Call [`Flow::detach`] first.
    pub fn detach(&mut self, leg: Leg, until: Instant) {
        if self.detached().is_none() {
            self.leave_for(Placement::Detached(Box::new(DetachedState::new(
                leg, until,
            ))));
        }
    }

    /// Returns the state of a flow that has no connection now.
    pub fn detached(&self) -> Option<&DetachedState> {
        match &self.placement {
            Placement::Detached(detached) => Some(detached),
            _ => None,
        }
    }

    /// Returns the time at which bytes stopped moving, if the flow has no connection now.
    pub fn detached_since(&self) -> Option<Instant> {
        self.detached()?;
        self.bonded?.stalled()
    }

    /// Returns the flow and its detached state, if it has no connection now. Lets the caller move data that has
    /// arrived.
    pub fn detached_mut(&mut self) -> Option<(&mut Flow<S>, &mut DetachedState)> {
        match (&mut self.phase, &mut self.placement) {
            (FlowPhase::Bridged { flow, .. }, Placement::Detached(detached)) => {
                Some((flow, detached))
            }
            _ => None,
        }
    }

    /// Continues on `stream_key`. Returns the state of the time without a connection.
    pub fn attach(&mut self, stream_key: StreamKey) -> Option<Box<DetachedState>> {
        // The time without a connection does not count.
        self.end_wait = None;
        self.backlog.restart();
        match self.leave_for(Placement::On(Attachment::new(stream_key))) {
            Placement::Detached(detached) => Some(detached),
            _ => None,
        }
    }

    /// Client: waits for the answer to MOVE on the flow's stream.
    pub fn begin_moving(&mut self) {
        if let Some(key) = self.stream_key() {
            self.placement = Placement::Moving(Attachment::new(key), Box::default());
        }
    }

    /// Client: returns whether the answer to MOVE has not arrived yet.
    pub fn is_moving(&self) -> bool {
        self.placement.moving().is_some()
    }

    /// Client: returns whether the server may never read MOVE, because its answer has not arrived.
    pub fn has_unread_move(&self) -> bool {
        self.is_moving() || self.salvage().is_some_and(Salvage::has_unread_move)
    }

    /// Client: stops waiting for the answer to MOVE, and returns its inlet.
    pub fn end_moving(&mut self) -> Option<Inlet> {
        match std::mem::replace(&mut self.placement, Placement::Waiting) {
            Placement::Moving(attachment, inlet) => {
                self.placement = Placement::On(attachment);
                Some(*inlet)
            }
            other => {
                self.placement = other;
                None
            }
        }
    }

    /// Gives up moving and continues like a flow whose connection is lost for good.
    pub fn abandon_move(&mut self, now: Instant) -> Option<Box<DetachedState>> {
        let leg = self.detached()?.leg();
        self.bonded = None;
        let salvage = Salvage::new(now, leg, false);
        match self.leave_for(Placement::Salvaged(Box::new(salvage))) {
            Placement::Detached(detached) => Some(detached),
            _ => None,
        }
    }
}

/// Confirmation of data that has arrived (PROTOCOL CONTROL-5).
impl<S: Socket> FlowEntry<S> {
    /// Returns the number to confirm to the peer, once everything has been taken off the stream. Later calls return
    /// `None`.
    pub fn take_end(&mut self) -> Option<u64> {
        let end = self.flow()?.arrived().end()?;
        (!std::mem::replace(&mut self.end_reported, true)).then_some(end)
    }

    /// Returns whether the arrival of everything was confirmed to the peer.
    pub fn is_end_reported(&self) -> bool {
        self.end_reported
    }

    /// Notes that the peer has everything before the number `next`.
    pub fn note_seen(&mut self, next: u64) {
        self.seen = self.seen.max(next);
    }

    /// Returns the number that the peer still has to confirm, once everything was sent.
    pub fn unseen_end(&self) -> Option<u64> {
        self.flow()?.end_sent().filter(|&next| self.seen < next)
    }
}
