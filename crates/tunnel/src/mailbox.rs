//! Mailboxes, through which other threads reach a worker: three bounded queues, and an eventfd that wakes its loop.
//!
//! | queue | contents | when full |
//! | --- | --- | --- |
//! | messages | answers that the worker waits for, drain, close | never: each message has a reserved place, see [`MESSAGES`] |
//! | snapshots | requests of the HTTP interface | the caller learns of it, and reports a silent worker |
//! | datagrams | datagrams that the kernel gave to a sibling, within a part of the memory budget | the datagram is lost, as if a socket buffer were full |
//!
//! The worker takes them in this order, and no more than [`TURN`] of them before it looks at its other descriptors. A
//! flood of datagrams therefore neither loses nor delays a message, and siblings that keep sending cannot occupy the
//! worker.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, sync_channel};

use quictun_engine::report::ServerId;
use quictun_engine::{AcceptedTcp, FlowId, ResolveResult};
use quictun_wire::code::{FlowCode, ListenCode};
use quictun_wire::listening::ListenId;
use rustix::event::{EventfdFlags, eventfd};
use tracing::error;

use crate::handover::HandoverOrder;
use crate::outbound_proxy::ProxiedServer;
use crate::reload::change::RulesUpdate;
use crate::reload::join_messages::JoinReply;
use crate::requests::{REQUESTS, WAITING_MAX};
use crate::reverse::bind::Bound;
use crate::reverse::holders::{BINDING_MAX, ListenerNumber};
use crate::tcp_socket::TcpSocket;
use quictun_control::snapshot::{RequestSender, SnapshotRequest};
use quictun_io::udp_port::ReceivedDatagram;

/// Limit of messages that wait for one worker: the maximum that can be under way at once. A server's worker counts its
/// look-ups until it has taken the answers, at most [`REQUESTS`]. A client's worker has one token under way for each
/// connection that waits for one, at most [`WAITING_MAX`], and one look-up for each of at most 16 servers. Drains and
/// closes come from the first two signals, the end of the drain, and the failure of another worker, of which there are
/// 256. Changes of the rules, of the network and of the servers occur one at a time each, and attempts to join number
/// 17. Listeners that are being made have their places, and as many messages say that a listener has moved to another
/// worker ([`Mailbox::tell_taken`]).
const MESSAGES: usize = if REQUESTS > WAITING_MAX {
    REQUESTS
} else {
    WAITING_MAX
} + 2 * BINDING_MAX
    + 512;

/// Limit of snapshot requests that wait. The HTTP interface asks for one at a time, and abandons each after half a
/// second.
const SNAPSHOTS: usize = 16;

/// Limit of datagrams that wait: the arrivals of 50 ms at 1 Gbit/s, which is longer than a worker's turn.
const DATAGRAMS: usize = 4096;

/// Limit for TCP connections that wait for their worker. Their clients dial again.
const CARRIERS: usize = 64;

/// The memory for waiting datagrams, as a fraction of the budget, but at least [`DATAGRAMS_BYTES_MIN`]. The queue fills
/// while its worker waits for a processor.
const DATAGRAMS_PART: u64 = 256;
const DATAGRAMS_BYTES_MIN: usize = 64 * 1024;

/// Limit of items taken in one turn of the worker's loop: four GRO batches, less than a round of its own receive
/// buffers.
const TURN: usize = 256;

/// A change that a worker was notified of and has not taken yet.
pub(crate) type PendingChange = Arc<()>;

/// A message to a worker of either role.
#[derive(Debug)]
pub(crate) enum Message {
    /// The addresses of a target. A client dials targets for reverse flows.
    TargetResolved {
        /// The flow that is being dialled; it may have ended.
        flow: FlowId,
        result: Result<Vec<SocketAddr>, FlowCode>,
    },
    /// The routes or addresses of this machine have changed, or it has slept. Drop the value before acting on it.
    NetworkChanged(PendingChange),
    /// The configuration was read again: apply these rules from now on, and confirm when that is done.
    Rules(RulesUpdate),
    /// Take no more flows, and end once the open ones are done.
    Drain,
    Close,
    /// Another process takes over. It asks once at a time.
    HandOver(Box<HandoverOrder>),
    /// A message that only workers of clients receive.
    Client(ClientMessage),
    /// A message that only workers of servers receive.
    Server(ServerMessage),
}

#[derive(Debug)]
pub(crate) enum ClientMessage {
    /// A host on the path, or this machine, rejects datagrams to this address.
    UdpRejected(SocketAddr),
    /// The addresses of a server.
    ServerResolved {
        server: ServerId,
        tenant: u32,
        resolved: ResolveResult,
        /// The way through the outbound proxy, if the server is reached through one.
        proxied: Option<ProxiedServer>,
    },
    /// The token of an accepted connection. `None` means that there is none, which was logged.
    Token {
        key: usize,
        ticket: u64,
        token: Option<String>,
    },
    /// The SRV records of a service have changed. Drop the value before acting on it.
    PlacesChanged(PendingChange),
    /// Connect again beside every connection, and move its flows.
    Reconnect,
}

#[derive(Debug)]
pub(crate) enum ServerMessage {
    /// The listener that was made for a client.
    Bound {
        number: ListenerNumber,
        result: Result<Bound, ListenCode>,
    },
    /// Another worker has the listener now. Its holder there is another process of the client if `other` is true, else
    /// the same process.
    ListenerTaken {
        number: ListenerNumber,
        id: ListenId,
        other: bool,
    },
    /// The outcome of an attempt to join.
    Joined(Box<JoinReply>),
    /// Flows of this worker have given way to others, and must end.
    GiveWay,
}

impl From<ClientMessage> for Message {
    fn from(message: ClientMessage) -> Self {
        Self::Client(message)
    }
}

impl From<ServerMessage> for Message {
    fn from(message: ServerMessage) -> Self {
        Self::Server(message)
    }
}

#[derive(Debug)]
pub(crate) enum InboxItem {
    Message(Message),
    Snapshot(SnapshotRequest),
    /// A datagram that the kernel gave to another worker.
    Datagram(ReceivedDatagram),
    /// Server: a TCP connection that the kernel gave to another worker.
    Carrier(AcceptedTcp<TcpSocket>),
}

#[derive(Clone, Debug)]
pub(crate) struct Mailbox {
    messages: SyncSender<Message>,
    snapshots: SyncSender<SnapshotRequest>,
    datagrams: SyncSender<ReceivedDatagram>,
    carriers: SyncSender<AcceptedTcp<TcpSocket>>,
    state: Arc<MailboxState>,
}

#[derive(Debug)]
pub(crate) struct Inbox {
    messages: Receiver<Message>,
    snapshots: Receiver<SnapshotRequest>,
    datagrams: Receiver<ReceivedDatagram>,
    carriers: Receiver<AcceptedTcp<TcpSocket>>,
    state: Arc<MailboxState>,
    left: usize,
}

/// The state that both ends share.
#[derive(Debug)]
struct MailboxState {
    /// The memory of waiting datagrams, bytes.
    datagram_bytes: AtomicUsize,
    datagram_bytes_most: usize,
    /// Number of messages that say that a listener has moved.
    taken: AtomicUsize,
    reconnect: AtomicBool,
    give_way: AtomicBool,
    wake: EventFd,
}

/// Creates both ends of a mailbox. `budget` is the memory of the process, bytes.
pub(crate) fn mailbox(budget: u64) -> io::Result<(Mailbox, Inbox)> {
    let part = usize::try_from(budget / DATAGRAMS_PART).unwrap_or(usize::MAX);
    let state = Arc::new(MailboxState {
        datagram_bytes: AtomicUsize::new(0),
        datagram_bytes_most: part.max(DATAGRAMS_BYTES_MIN),
        taken: AtomicUsize::new(0),
        reconnect: AtomicBool::new(false),
        give_way: AtomicBool::new(false),
        wake: EventFd::new()?,
    });
    let (message_sender, messages) = sync_channel(MESSAGES);
    let (snapshot_sender, snapshots) = sync_channel(SNAPSHOTS);
    let (datagram_sender, datagrams) = sync_channel(DATAGRAMS);
    let (carrier_sender, carriers) = sync_channel(CARRIERS);
    let mailbox = Mailbox {
        messages: message_sender,
        snapshots: snapshot_sender,
        datagrams: datagram_sender,
        carriers: carrier_sender,
        state: state.clone(),
    };
    let inbox = Inbox {
        messages,
        snapshots,
        datagrams,
        carriers,
        state,
        left: TURN,
    };
    Ok((mailbox, inbox))
}

impl Mailbox {
    /// Leaves a message and wakes the worker. A message is lost only if the worker has ended.
    pub(crate) fn send(&self, message: impl Into<Message>) {
        match self.messages.try_send(message.into()) {
            Ok(()) => self.state.wake.signal(),
            Err(TrySendError::Full(message)) => {
                error!(target: "quictun", ?message, "a worker takes no messages: it is stuck, or more are sent than can be under way");
            }
            // The worker has ended.
            Err(TrySendError::Disconnected(_)) => {}
        }
    }

    /// Tells the worker that another worker has taken a listener over. A client can move its listeners from one worker to
    /// another as often as it likes. If too many of these messages wait, this one is lost: the worker notices the move
    /// when it accepts.
    pub(crate) fn tell_taken(&self, number: ListenerNumber, id: ListenId, other: bool) {
        // The counter is only a sum and guards no other memory, so `Relaxed` suffices, here and in the inbox.
        if self.state.taken.fetch_add(1, Ordering::Relaxed) < BINDING_MAX {
            self.send(ServerMessage::ListenerTaken { number, id, other });
        } else {
            self.state.taken.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Makes a client's worker replace its connections. All calls before the worker has done so count as one, and take
    /// no place in a queue.
    pub(crate) fn reconnect(&self) {
        // The write to the eventfd orders this store.
        self.state.reconnect.store(true, Ordering::Relaxed);
        self.state.wake.signal();
    }

    /// Makes a server's worker end the flows that have given way to flows of other workers. Calls count as for
    /// [`Mailbox::reconnect`].
    pub(crate) fn give_way(&self) {
        // The lock of the table orders its contents.
        self.state.give_way.store(true, Ordering::Relaxed);
        self.state.wake.signal();
    }

    /// Returns the way for requests of snapshots.
    pub(crate) fn snapshots(&self) -> RequestSender {
        let mailbox = self.clone();
        Box::new(move |request| mailbox.ask(request))
    }

    /// Requests a snapshot. Returns `false` if the worker has ended or is stuck.
    pub(crate) fn ask(&self, request: SnapshotRequest) -> bool {
        let asked = self.snapshots.try_send(request).is_ok();
        if asked {
            self.state.wake.signal();
        }
        asked
    }

    /// Hands a datagram over. Returns `false` if it is lost.
    pub(crate) fn hand_over(&self, datagram: ReceivedDatagram) -> bool {
        let bytes = memory(&datagram);
        if !self.state.enter(bytes) {
            return false;
        }
        let taken = self.datagrams.try_send(datagram).is_ok();
        if taken {
            self.state.wake.signal();
        } else {
            self.state.leave(bytes);
        }
        taken
    }

    /// Hands a TCP connection over. Returns `false` if it is closed, because too many wait.
    pub(crate) fn hand_over_carrier(&self, tcp: AcceptedTcp<TcpSocket>) -> bool {
        let taken = self.carriers.try_send(tcp).is_ok();
        if taken {
            self.state.wake.signal();
        }
        taken
    }
}

/// Returns the memory that a datagram keeps, bytes. The datagram may be the beginning of a larger buffer.
fn memory(datagram: &ReceivedDatagram) -> usize {
    datagram.data.capacity() + size_of::<ReceivedDatagram>()
}

impl MailboxState {
    fn enter(&self, bytes: usize) -> bool {
        // The counter is only a sum and guards no other memory, so `Relaxed` suffices, here and below.
        let before = self.datagram_bytes.fetch_add(bytes, Ordering::Relaxed);
        let fits = before + bytes <= self.datagram_bytes_most;
        if !fits {
            self.leave(bytes);
        }
        fits
    }

    fn leave(&self, bytes: usize) {
        self.datagram_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Inbox {
    /// Begins a turn, and lets the loop sleep again after it. Must be called before [`Inbox::receive`].
    pub(crate) fn begin_turn(&mut self) {
        self.state.wake.clear();
        self.left = TURN;
    }

    /// Takes the next item. Returns `None` if nothing is left, or if this turn is over and the loop will be woken
    /// again.
    pub(crate) fn receive(&mut self) -> Option<InboxItem> {
        if self.left == 0 {
            self.state.wake.signal();
            return None;
        }
        self.left -= 1;
        if self.state.reconnect.swap(false, Ordering::Relaxed) {
            return Some(InboxItem::Message(ClientMessage::Reconnect.into()));
        }
        if self.state.give_way.swap(false, Ordering::Relaxed) {
            return Some(InboxItem::Message(ServerMessage::GiveWay.into()));
        }
        let message = self.messages.try_recv();
        if matches!(
            message,
            Ok(Message::Server(ServerMessage::ListenerTaken { .. }))
        ) {
            self.state.taken.fetch_sub(1, Ordering::Relaxed);
        }
        message
            .map(InboxItem::Message)
            .or_else(|_| self.snapshots.try_recv().map(InboxItem::Snapshot))
            .or_else(|_| self.next_datagram().map(InboxItem::Datagram))
            .or_else(|_| self.carriers.try_recv().map(InboxItem::Carrier))
            .ok()
    }

    fn next_datagram(&self) -> Result<ReceivedDatagram, TryRecvError> {
        let datagram = self.datagrams.try_recv()?;
        self.state.leave(memory(&datagram));
        Ok(datagram)
    }
}

impl AsFd for Inbox {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.state.wake.0.as_fd()
    }
}

#[derive(Debug)]
struct EventFd(OwnedFd);

impl EventFd {
    fn new() -> io::Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(Self(eventfd(0, flags)?))
    }

    fn signal(&self) {
        // The write fails only if the counter is about to overflow, and then the worker is awake.
        let _full = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    fn clear(&self) {
        let mut counter = [0; 8];
        // Would-block means that no signal was pending.
        let _empty = rustix::io::read(&self.0, &mut counter);
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use bytes::BytesMut;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;

    fn datagram() -> ReceivedDatagram {
        ReceivedDatagram {
            remote: ([192, 0, 2, 1], 7500).into(),
            local_ip: None,
            ecn: None,
            data: BytesMut::from(&b"x"[..]),
        }
    }

    /// Takes a turn's mail, and returns the names of its variants.
    fn turn(inbox: &mut Inbox) -> Vec<String> {
        inbox.begin_turn();
        let mut taken = Vec::new();
        while let Some(mail) = inbox.receive() {
            taken.push(match mail {
                InboxItem::Message(message) => format!("{message:?}"),
                InboxItem::Snapshot(_) => "Snapshot".to_owned(),
                InboxItem::Datagram(_) => "Datagram".to_owned(),
                InboxItem::Carrier(_) => "Carrier".to_owned(),
            });
        }
        taken
    }

    fn is_signalled(inbox: &Inbox) -> bool {
        let mut fds = [PollFd::new(inbox, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec::default())).expect("poll") > 0
    }

    // PROTOCOL LIMIT-3.
    #[test]
    fn a_flood_of_datagrams_neither_loses_nor_delays_a_drain() {
        let (mailbox, mut inbox) = mailbox(1 << 30).expect("a mailbox");
        let taken = (0..10_000)
            .filter(|_| mailbox.hand_over(datagram()))
            .count();
        assert_eq!(taken, DATAGRAMS, "the rest is lost");
        mailbox.send(Message::Drain);
        assert_eq!(turn(&mut inbox)[0], "Drain");
    }

    // PROTOCOL MEMORY-1.
    #[test]
    fn datagrams_that_wait_take_a_part_of_the_budget() {
        let (mailbox, mut inbox) = mailbox(4 << 20).expect("a mailbox");
        let large = || ReceivedDatagram {
            data: BytesMut::zeroed(1200),
            ..datagram()
        };
        let taken = (0..1000).filter(|_| mailbox.hand_over(large())).count();
        assert_eq!(taken, DATAGRAMS_BYTES_MIN / memory(&large()));
        // Items that were taken out leave room for as many again.
        assert_eq!(turn(&mut inbox).len(), taken);
        let again = (0..1000).filter(|_| mailbox.hand_over(large())).count();
        assert_eq!(again, taken);
    }

    #[test]
    fn tcp_connections_for_a_worker_are_limited_and_closed_beyond_the_limit() {
        let (mailbox, mut inbox) = mailbox(1 << 30).expect("a mailbox");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let remote = listener.local_addr().expect("an address");
        let taken = (0..=CARRIERS).filter(|_| {
            let stream = TcpStream::connect(remote).expect("a connection");
            mailbox.hand_over_carrier(AcceptedTcp {
                remote,
                socket: TcpSocket::new(stream),
                received: BytesMut::new(),
            })
        });
        assert_eq!(taken.count(), CARRIERS);
        assert!(is_signalled(&inbox));
        assert_eq!(turn(&mut inbox), vec!["Carrier"; CARRIERS]);
    }

    // PROTOCOL LIMIT-3.
    #[test]
    fn a_turn_is_bounded_and_the_next_one_follows_by_itself() {
        let (mailbox, mut inbox) = mailbox(1 << 30).expect("a mailbox");
        assert!(!is_signalled(&inbox));
        for _ in 0..=TURN {
            assert!(mailbox.hand_over(datagram()));
        }
        assert!(is_signalled(&inbox));
        assert_eq!(turn(&mut inbox).len(), TURN);
        assert!(is_signalled(&inbox), "one item is left");
        assert_eq!(turn(&mut inbox).len(), 1);
        assert!(!is_signalled(&inbox));
    }

    #[test]
    fn every_message_that_can_be_under_way_has_a_place() {
        let (mailbox, mut inbox) = mailbox(1 << 30).expect("a mailbox");
        for _ in 1..MESSAGES {
            mailbox.send(Message::Close);
        }
        mailbox.send(Message::Drain);
        // One message above the maximum: it is logged as an error, and no other message is lost.
        mailbox.send(Message::Close);
        let mut messages = Vec::new();
        while is_signalled(&inbox) {
            messages.extend(turn(&mut inbox));
        }
        assert_eq!(messages.len(), MESSAGES);
        assert_eq!(messages.last().map(String::as_str), Some("Drain"));
    }

    // A client that moves its listeners from one worker to another without end.
    #[test]
    fn listeners_that_move_take_no_places_of_other_messages() {
        let (mailbox, mut inbox) = mailbox(1 << 30).expect("a mailbox");
        for number in 0..2 * MESSAGES as u64 {
            mailbox.tell_taken(number, 1, false);
        }
        mailbox.send(Message::Drain);
        let mut messages = Vec::new();
        while is_signalled(&inbox) {
            messages.extend(turn(&mut inbox));
        }
        assert_eq!(messages.len(), BINDING_MAX + 1);
        assert_eq!(messages.last().map(String::as_str), Some("Drain"));
        mailbox.tell_taken(7, 1, false);
        assert_eq!(turn(&mut inbox).len(), 1, "the places are free again");
    }

    #[test]
    fn snapshots_wait_in_their_own_queue_and_are_refused_when_it_is_full() {
        let (mailbox, mut inbox) = mailbox(1 << 30).expect("a mailbox");
        let ask = || {
            let (reply, _answer) = tokio::sync::oneshot::channel();
            let detail = quictun_control::snapshot::Detail::Counters;
            mailbox.ask(SnapshotRequest { detail, reply })
        };
        assert!(mailbox.hand_over(datagram()));
        assert!((0..SNAPSHOTS).all(|_| ask()));
        assert!(!ask());
        mailbox.send(Message::Close);
        let taken = turn(&mut inbox);
        assert_eq!(taken[..2], ["Close", "Snapshot"]);
        assert_eq!(taken.last().map(String::as_str), Some("Datagram"));
    }

    #[test]
    fn a_worker_that_has_ended_takes_nothing() {
        let (mailbox, inbox) = mailbox(1 << 30).expect("a mailbox");
        drop(inbox);
        mailbox.send(Message::Close);
        assert!(!mailbox.hand_over(datagram()));
    }
}
