//! What workers ask of the control plane.

use quictun_engine::FlowId;
use quictun_engine::report::ServerId;
use quictun_wire::listening::ListenAddress;
use quictun_wire::target::Family;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::oneshot;

use crate::app_addr::AppAddr;
use crate::reverse::holders::Number;
use quictun_trust::shares::Holder;

/// Connections of one worker that may wait for a token.
pub(crate) const WAITING_MAX: usize = 4096;

/// What the control plane holds while it works on a look-up: it is closed once the answer is not wanted any more.
pub(crate) type Wanted = oneshot::Sender<()>;

/// Requests that may wait, and that may be under way.
pub(crate) const REQUESTS: usize = 4096;

#[derive(Debug)]
pub(crate) enum Request {
    ResolveServer {
        worker: usize,
        server: ServerId,
    },
    /// Nothing has come back from this server: ask the network why, and tell. There is no answer to the worker.
    Unanswered(ServerId),
    ResolveTarget {
        worker: usize,
        flow: FlowId,
        holder: Holder,
        /// Closed once the flow has ended; the answer is sent all the same.
        wanted: Wanted,
        host: String,
        port: u16,
        family: Family,
    },
    /// Server: listen for a client.
    Listen {
        worker: usize,
        number: Number,
        address: ListenAddress,
    },
    Token {
        worker: usize,
        key: usize,
        ticket: u64,
        forward: usize,
        app: AppAddr,
    },
}

pub(crate) fn requests() -> (Sender<Request>, Receiver<Request>) {
    channel(REQUESTS)
}
