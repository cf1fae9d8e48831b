//! The role of an engine: the steps of its work that differ between a client and a server.

use std::fmt::Debug;
use std::time::Instant;

use quictun_congestion::TimeoutAction;
use quictun_flow::{ConnectionKey, FlowKey, Socket};
use quictun_wire::code::FlowCode;

use crate::event::EngineEvent;
use crate::loss::LossReason;
use crate::traffic::{DatagramRecipient, Traffic};

/// The role of an engine: [`Client`](crate::Client) or [`Server`](crate::Server).
#[expect(private_bounds, reason = "no other crate implements a role")]
pub trait Role: RoleSteps {
    /// The events that an engine of this role reports.
    type Event: Debug + Into<EngineEvent>;

    /// Returns the event as one of this role, or `None` if only the other role reports it.
    fn event(event: EngineEvent) -> Option<Self::Event>;
}

/// The steps of an engine's work that belong to its role.
pub(crate) trait RoleSteps {
    /// Returns when the role has work of its own.
    fn next_timeout(&self) -> Option<Instant>;

    /// Handles a datagram whose recipient is known.
    fn handle_datagram<S: Socket>(
        &mut self,
        now: Instant,
        traffic: &mut Traffic<S>,
        recipient: DatagramRecipient,
    );

    /// Handles a moment in the life of a connection.
    fn handle_moment<S: Socket>(
        &mut self,
        now: Instant,
        traffic: &mut Traffic<S>,
        key: ConnectionKey,
        moment: Moment<'_>,
    );

    /// Handles a flow that the peer has not answered in time.
    fn handle_unanswered<S: Socket>(
        &mut self,
        now: Instant,
        traffic: &mut Traffic<S>,
        key: FlowKey,
    );

    /// Handles connections that have ended.
    fn note_ended<S: Socket>(&mut self, now: Instant, traffic: &mut Traffic<S>);

    /// Stops the connections that are not established, for good.
    fn stop<S: Socket>(&mut self, traffic: &mut Traffic<S>);

    /// Does the role's work at the beginning of a turn.
    fn begin_turn<S: Socket>(&mut self, _: Instant, _: &mut Traffic<S>) {}

    /// Does the role's work that is due, at the end of a turn.
    fn drive<S: Socket>(&mut self, _: Instant, _: &mut Traffic<S>) {}

    /// Makes a step that waits until nothing can be sent. Returns whether it was made.
    fn make_step<S: Socket>(&mut self, _: Instant, _: &mut Traffic<S>) -> bool {
        false
    }

    /// Refuses flows that wait for a connection.
    fn refuse_waiting<S: Socket>(&mut self, _: Instant, _: &mut Traffic<S>, _: FlowCode) {}
}

/// A moment in the life of a connection in which the roles act differently.
pub(crate) enum Moment<'a> {
    /// The handshake has ended.
    Connected,
    /// The time within which the client is admitted has ended.
    AdmissionLate,
    /// The peer permits more streams.
    StreamsAvailable,
    /// The silence of the peer has been judged.
    Silent(TimeoutAction),
    /// The connection is lost as soon as the role has acted.
    Losing(&'a LossReason),
    /// The data that has arrived has been delivered.
    Delivered,
}
