//! Requests of workers to the control plane.

use quictun_engine::FlowId;
use quictun_engine::report::ServerId;
use quictun_wire::listening::ListenAddress;
use quictun_wire::target::Family;
use tokio::sync::mpsc::Sender;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::oneshot;

use crate::app_addr::AppAddr;
use crate::reverse::holders::ListenerNumber;
use quictun_trust::shares::Holder;

/// Maximum number of connections of one worker that wait for a token.
pub(crate) const WAITING_MAX: usize = 4096;

/// The control plane holds this while it works on a look-up. It is closed once the answer is no longer wanted.
pub(crate) type Cancellation = oneshot::Sender<()>;

/// Maximum number of requests in the queue, and of requests under way.
pub(crate) const REQUESTS: usize = 4096;

#[derive(Debug)]
pub(crate) enum Request {
    ResolveServer {
        server: ServerId,
        /// The server's number among those of its place; the answer repeats it.
        tenant: u32,
    },
    /// This server sends nothing back: ask the network why, and log the result. The worker gets no answer.
    Unanswered(ServerId),
    ResolveTarget {
        flow: FlowId,
        holder: Holder,
        /// Closed once the flow has ended. The answer is sent even then.
        wanted: Cancellation,
        host: String,
        port: u16,
        family: Family,
    },
    /// Server: listen for a client.
    Listen {
        number: ListenerNumber,
        /// The client, as the source of log lines.
        holder: Holder,
        address: ListenAddress,
        /// The directory that links in the address's path must not leave.
        below: Option<String>,
    },
    /// Server: remove the socket file of a client's listener, which is closed. The worker gets no answer.
    RemoveSocket(ListenAddress),
    Token {
        key: usize,
        ticket: u64,
        forward: usize,
        app: AppAddr,
    },
}

/// A worker's way to the control plane.
#[derive(Clone, Debug)]
pub(crate) struct Requester {
    worker: usize,
    sender: Sender<(usize, Request)>,
}

impl Requester {
    pub(crate) fn new(worker: usize, sender: Sender<(usize, Request)>) -> Self {
        Self { worker, sender }
    }

    /// Sends a request, unless the control plane is too busy or has ended.
    pub(crate) fn send(&self, request: Request) -> Result<(), TrySendError<(usize, Request)>> {
        self.sender.try_send((self.worker, request))
    }
}
