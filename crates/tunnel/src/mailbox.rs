//! How other threads reach a worker: a bounded queue and an eventfd that wakes its loop.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use bytes::BytesMut;
use quictun_engine::Resolved;
use quictun_wire::code::FlowCode;
use rustix::event::{EventfdFlags, eventfd};

use crate::snapshot::SnapshotRequest;

/// Messages that may wait for one worker. A loop iteration takes all of them, so that many only wait
/// when the worker is stuck; senders then treat it as such.
const CAPACITY: usize = 4096;

/// What a worker can be told.
#[derive(Debug)]
pub(crate) enum Message {
    /// Client: the server's addresses.
    ServerResolved(Resolved),
    /// Server: the addresses of a target.
    TargetResolved {
        /// The dial that asked.
        dial: usize,
        /// Its ticket, so that an answer that comes too late finds nobody.
        ticket: u64,
        /// What was found.
        result: Result<Vec<SocketAddr>, FlowCode>,
    },
    /// Client: the token of an accepted connection; `None`: there is none, which was logged.
    Token {
        /// The connection that waits.
        key: usize,
        /// Its ticket.
        ticket: u64,
        /// The token.
        token: Option<String>,
    },
    /// Tell how things stand.
    Snapshot(SnapshotRequest),
    /// A datagram that the kernel gave to another worker.
    Datagram {
        /// Its sender.
        remote: SocketAddr,
        /// The address it was sent to.
        local_ip: Option<IpAddr>,
        /// Its two ECN bits.
        ecn: Option<u8>,
        /// Its payload.
        data: BytesMut,
    },
    /// Take no more flows; end once the open ones are done.
    Drain,
    /// End now.
    Close,
}

/// The sending end; cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Mailbox {
    sender: SyncSender<Message>,
    wake: Arc<OwnedFd>,
}

/// The worker's end.
#[derive(Debug)]
pub(crate) struct Inbox {
    receiver: Receiver<Message>,
    wake: Arc<OwnedFd>,
}

/// Makes both ends.
pub(crate) fn mailbox() -> io::Result<(Mailbox, Inbox)> {
    let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
    let (sender, receiver) = sync_channel(CAPACITY);
    let mailbox = Mailbox {
        sender,
        wake: wake.clone(),
    };
    Ok((mailbox, Inbox { receiver, wake }))
}

impl Mailbox {
    /// Leaves a message and wakes the worker; `false`: it has ended, or is stuck.
    pub(crate) fn send(&self, message: Message) -> bool {
        if self.sender.try_send(message).is_err() {
            return false;
        }
        // It fails only when the counter is about to overflow, and then the worker is awake.
        let _full = rustix::io::write(&*self.wake, &1u64.to_ne_bytes());
        true
    }
}

impl Inbox {
    /// Takes the next message.
    pub(crate) fn receive(&self) -> Option<Message> {
        self.receiver.try_recv().ok()
    }

    /// Lets the loop sleep again. To be called before the messages are taken.
    pub(crate) fn acknowledge(&self) {
        let mut counter = [0; 8];
        // Would-block means that there was nothing to acknowledge.
        let _empty = rustix::io::read(&*self.wake, &mut counter);
    }
}

impl AsFd for Inbox {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}
