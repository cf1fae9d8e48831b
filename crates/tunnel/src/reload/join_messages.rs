//! Messages about attempts to join: from a worker to the control plane, and back.

use std::net::SocketAddr;

use quictun_engine::ConnectionId;
use quictun_trust::enrolment::{Directory, JoinAttempt, JoinRefusal};
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// Limit of attempts that wait, over all workers. Each takes milliseconds, and a client that finds the queue full tries
/// again.
const WAITING_MAX: usize = 16;

/// An attempt to join.
#[derive(Debug)]
pub(crate) struct PendingJoin {
    /// The worker that waits for the outcome.
    pub(crate) worker: usize,
    pub(crate) connection: ConnectionId,
    pub(crate) remote: SocketAddr,
    pub(crate) clients: Directory,
    pub(crate) attempt: JoinAttempt,
}

/// The outcome of an attempt, for its worker.
#[derive(Debug)]
pub(crate) struct JoinReply {
    pub(crate) connection: ConnectionId,
    pub(crate) remote: SocketAddr,
    pub(crate) attempt: JoinAttempt,
    pub(crate) outcome: Result<JoinOutcome, JoinRefusal>,
}

/// The outcome of an attempt that was not refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JoinOutcome {
    /// The client's key was stored, which uses up the invitation.
    Enrolled,
    /// The key was known before, and no invitation was used.
    Known,
}

pub(crate) fn joins() -> (Sender<PendingJoin>, Receiver<PendingJoin>) {
    channel(WAITING_MAX)
}
