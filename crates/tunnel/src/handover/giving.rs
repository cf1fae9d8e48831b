//! The old process's part: it answers at its socket, and hands everything over.

use std::fs::DirBuilder;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel, sync_channel};
use std::time::Instant;

use quictun_sys::{PacketListener, PacketPeer, PacketStream, seal_memory};
use quictun_wire::handover::exchange::{FlowFates, HandoverMessage, SocketPurpose};
use quictun_wire::handover::{Handover, HandoverKind};
use thiserror::Error;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tracing::{debug, info, warn};

use super::order::{HandoverOrder, Verdict};
use super::{
    ANSWER_TIME, CHECK_TIME, COMMIT_TIME, COUNTING_TIME, RELEASE_TIME, SETTLING_TIME, passed_as,
    socket_path,
};
use crate::mailbox::{Mailbox, Message};
use crate::reload::running_client::ClientState;
use quictun_control::snapshot::{Detail, Workers};
use quictun_control::systemd;

/// The usage of all clients: the month, and bytes by name.
pub(crate) type ReadUsed = Arc<dyn Fn() -> (String, Vec<(String, u64)>) + Send + Sync>;

/// The sockets and figures that a process hands over beside its workers' flows.
#[derive(Clone)]
pub(crate) struct Offered {
    /// The version of the program.
    pub(crate) program: &'static str,
    /// The listener of the HTTP interface.
    pub(crate) http: Option<Arc<OwnedFd>>,
    pub(crate) of_side: OfferedBySide,
}

/// The part that only one kind of process has.
#[derive(Clone)]
pub(crate) enum OfferedBySide {
    Server {
        /// The UDP address on which clients reach the server.
        listen: SocketAddr,
        tls: Arc<[TcpListener]>,
        used: ReadUsed,
    },
    /// The open forwards, whose listeners go over.
    Client(Arc<ClientState>),
}

impl Offered {
    fn kind(&self) -> HandoverKind {
        match &self.of_side {
            OfferedBySide::Server { .. } => HandoverKind::Server,
            OfferedBySide::Client(_) => HandoverKind::Client,
        }
    }

    /// Returns the servers of a client, as the configuration names them.
    fn servers(&self) -> Vec<String> {
        let OfferedBySide::Client(state) = &self.of_side else {
            return Vec::new();
        };
        let places = state.dialled.places().into_iter();
        let wanted = places.filter(|place| place.wanted);
        wanted.map(|place| place.address.to_string()).collect()
    }

    /// Returns the UDP address on which a server listens.
    fn listen(&self) -> SocketAddr {
        match &self.of_side {
            OfferedBySide::Server { listen, .. } => *listen,
            OfferedBySide::Client(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        }
    }
}

/// The socket at which a new process asks a running one for its flows, and a command for its end.
pub(crate) struct HandoverPort {
    listener: Arc<PacketListener>,
    offered: Offered,
    outcome: HandoverOutcome,
    draining: Arc<Draining>,
}

/// The end of this process once its flows have ended.
#[derive(Debug, Default)]
pub(crate) struct Draining {
    /// A command asks for it.
    pub(crate) asked: Notify,
    begun: AtomicBool,
}

impl Draining {
    /// Notes that the process drains. Returns whether that is new.
    pub(crate) fn begin(&self) -> bool {
        !self.begun.swap(true, Ordering::Relaxed)
    }

    pub(crate) fn has_begun(&self) -> bool {
        self.begun.load(Ordering::Relaxed)
    }
}

/// The request of another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HandoverRequest {
    /// To hand the flows over.
    Take,
    /// To count the flows, and nothing else.
    Count,
    /// To end once the flows have ended.
    Drain,
}

/// Tells whether another process has taken over.
#[derive(Clone, Default)]
pub(crate) struct HandoverOutcome(Arc<AtomicBool>);

impl HandoverOutcome {
    pub(crate) fn is_taken(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// Notes the process that has taken over. The workers end after that: this process's end is in order.
    fn note_taken(&self, peer: PacketPeer) {
        self.0.store(true, Ordering::Release);
        info!(target: "quictun", process = peer.process, "another process has taken over: this one ends");
        systemd::notify(&format!("MAINPID={}", peer.process));
    }
}

/// The reason why nothing was handed over.
#[derive(Debug, Error)]
enum HandoverFailure {
    /// The other process has broken the order, or is gone.
    #[error("the new process does not answer")]
    Exchange(#[from] io::Error),
    /// The other process speaks another version of the exchange.
    #[error("the new process has sent something that is not understood")]
    NotUnderstood(#[from] quictun_wire::handover::HandoverError),
    /// The other process is not one of this user.
    #[error("a process of user {0} has asked for the flows")]
    OtherUser(u32),
    /// The formats of both programs differ.
    #[error(
        "quictun {1} reads another format of the state: restart the {0} instead of taking it over"
    )]
    Version(HandoverKind, String),
    /// A worker could not hand its flows over.
    #[error("a worker cannot hand its flows over")]
    Worker(#[source] io::Error),
    /// A worker has ended.
    #[error("a worker has ended")]
    WorkerGone,
    /// The new process has said something else than expected.
    #[error("the new process has not kept to the order of the exchange")]
    Order,
}

impl HandoverPort {
    /// Opens the socket in a directory, or takes the one that the old process has passed on. Without it the process works,
    /// and cannot be taken over: one log line says why. It is no warning if the directory is only a default, where
    /// another process may have its socket.
    pub(crate) fn open(
        (directory, is_default): (&Path, bool),
        passed: Option<PacketListener>,
        offered: Offered,
    ) -> Option<Self> {
        let path = socket_path(offered.kind(), directory);
        let bound = || match offered.kind() {
            HandoverKind::Server => bind(&path),
            HandoverKind::Client => make_directory(directory).and_then(|()| bind(&path)),
        };
        let listener = passed.map_or_else(bound, Ok);
        match listener {
            Ok(listener) => Some(Self {
                listener: Arc::new(listener),
                offered,
                outcome: HandoverOutcome::default(),
                draining: Arc::default(),
            }),
            // A server with files for its key needs no state directory.
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => None,
            Err(cause) if is_default => {
                debug!(target: "quictun", path = %path.display(), %cause, "no other process will be able to take over from this one (--take-over)");
                None
            }
            Err(cause) => {
                warn!(target: "quictun", path = %path.display(), %cause, "no other process will be able to take over from this one (--take-over)");
                None
            }
        }
    }

    pub(crate) fn outcome(&self) -> HandoverOutcome {
        self.outcome.clone()
    }

    pub(crate) fn draining(&self) -> Arc<Draining> {
        self.draining.clone()
    }

    /// Answers other processes, one at a time. Returns once one of them has taken over.
    pub(crate) async fn run(self, mailboxes: Vec<Mailbox>) {
        let Ok(accepted) = watch(&self.listener) else {
            warn!(target: "quictun", "cannot watch the socket for hand-overs");
            return std::future::pending().await;
        };
        let mut exchanges = JoinSet::new();
        loop {
            let Ok(mut ready) = accepted.readable().await else {
                return std::future::pending().await;
            };
            let Ok(stream) = self.listener.accept() else {
                ready.clear_ready();
                continue;
            };
            let (offered, listener) = (self.offered.clone(), self.listener.clone());
            let (mailboxes, outcome) = (mailboxes.clone(), self.outcome.clone());
            let draining = self.draining.clone();
            exchanges.spawn_blocking(move || {
                serve(
                    stream,
                    &offered,
                    (&listener, &mailboxes),
                    &outcome,
                    &draining,
                )
            });
            let Some(Ok(ended)) = exchanges.join_next().await else {
                continue;
            };
            match ended {
                Ok(Some(HandoverRequest::Take)) => return,
                Ok(Some(HandoverRequest::Drain)) => self.draining.asked.notify_one(),
                // The process has left, or has only asked.
                Ok(Some(HandoverRequest::Count) | None) => {}
                Err(failure) => {
                    let cause = quictun_trust::error_chain(&failure);
                    warn!(target: "quictun", cause, "no other process has taken over: this one goes on");
                }
            }
        }
    }
}

#[expect(
    deprecated,
    reason = "the newer one is unsafe, for types that are not as honest about their descriptor as these"
)]
fn watch(listener: &PacketListener) -> io::Result<AsyncFd<BorrowedFd<'_>>> {
    AsyncFd::with_interest(listener.as_fd(), Interest::READABLE)
}

/// Makes the directory of a client's socket, if it is missing. It must be this user's: its owner could put another socket
/// there.
fn make_directory(directory: &Path) -> io::Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)?;
    if std::fs::metadata(directory)?.uid() == rustix::process::geteuid().as_raw() {
        return Ok(());
    }
    let why = "the directory belongs to another user";
    Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
}

/// Binds the socket. A file that a dead process has left is replaced.
fn bind(path: &Path) -> io::Result<PacketListener> {
    match PacketListener::bind(path) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            match PacketStream::connect(path) {
                Ok(_) => Err(io::Error::new(
                    io::ErrorKind::AddrInUse,
                    "another process with this directory runs",
                )),
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                    std::fs::remove_file(path)?;
                    PacketListener::bind(path)
                }
                Err(error) => Err(error),
            }
        }
        bound => bound,
    }
}

/// Answers one process, which may leave before it has asked for anything. Returns the request that was fulfilled.
fn serve(
    stream: PacketStream,
    offered: &Offered,
    (listener, mailboxes): (&PacketListener, &[Mailbox]),
    outcome: &HandoverOutcome,
    draining: &Draining,
) -> Result<Option<HandoverRequest>, HandoverFailure> {
    let peer = stream.peer()?;
    let own = rustix::process::geteuid().as_raw();
    if peer.user != own && peer.user != 0 {
        return Err(HandoverFailure::OtherUser(peer.user));
    }
    let asked = greet(&stream, offered, mailboxes.len())?;
    match asked {
        None => return Ok(None),
        Some(HandoverRequest::Count | HandoverRequest::Drain) => {
            let fates = HandoverMessage::Fates(fates(mailboxes));
            stream.send(&fates.encode(), &[], Instant::now() + ANSWER_TIME)?;
            return Ok(asked);
        }
        // The workers of a process that drains end one by one, so it cannot hand over.
        Some(HandoverRequest::Take) if draining.has_begun() => {
            let reason = "it drains, and ends with its last flow".to_owned();
            let kept = HandoverMessage::Kept { reason }.encode();
            stream.send(&kept, &[], Instant::now() + ANSWER_TIME)?;
            return Ok(None);
        }
        Some(HandoverRequest::Take) => {}
    }
    let stream = Arc::new(stream);
    let until = Instant::now() + COMMIT_TIME;
    let (verdicts, handed) = give(&stream, offered, (listener, mailboxes), until);
    let committed = handed.and_then(|()| await_commitment(&stream, until));
    // Whatever happens from here on, at most one of both processes goes on. If RELEASED cannot be sent, the new process is
    // gone. If it is not read any more, the flows end with both processes.
    let soon = Instant::now() + RELEASE_TIME;
    let released = committed.and_then(|()| {
        let released = HandoverMessage::Released.encode();
        Ok(stream.send(&released, &[], soon)?)
    });
    if let Err(failure) = &released {
        let reason = quictun_trust::error_chain(failure);
        let kept = HandoverMessage::Kept { reason };
        // An error means that the new process is gone.
        if stream.send(&kept.encode(), &[], soon).is_err() {}
    }
    let verdict = if released.is_ok() {
        outcome.note_taken(peer);
        Verdict::Released
    } else {
        Verdict::Kept
    };
    for worker in verdicts {
        // An error means that the worker has not taken the order yet. It then goes on.
        if worker.send(verdict).is_err() {}
    }
    released.map(|()| asked)
}

/// Counts the flows of all workers. Those of a worker that does not answer are missing.
fn fates(mailboxes: &[Mailbox]) -> FlowFates {
    let workers = Workers::new(mailboxes.iter().map(Mailbox::snapshots).collect());
    let collected = workers.collect(Detail::Counters, COUNTING_TIME);
    let collected = Handle::current().block_on(collected);
    let costs = collected.snapshots.iter().map(|it| it.restart_cost);
    costs.fold(FlowFates::default(), |all, cost| FlowFates {
        continuing: all.continuing + cost.continuing as u64,
        reset: all.reset + cost.reset() as u64,
    })
}

/// Agrees on a version, and waits for the request. `None` if the process has left.
fn greet(
    stream: &PacketStream,
    offered: &Offered,
    workers: usize,
) -> Result<Option<HandoverRequest>, HandoverFailure> {
    let until = Instant::now() + ANSWER_TIME;
    let hello = match stream.receive(until) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        packet => HandoverMessage::decode(&packet?.bytes)?,
    };
    let HandoverMessage::Hello {
        lowest,
        highest,
        program,
    } = hello
    else {
        return Err(HandoverFailure::Order);
    };
    let kind = offered.kind();
    let version = kind.version();
    if !(lowest..=highest).contains(&version) {
        let failure = HandoverFailure::Version(kind, program);
        let reason = format!(
            "the running {kind}, quictun {}, writes version {version} of the state, and the new process reads {lowest} to {highest}: restart the {kind} instead",
            offered.program
        );
        stream.send(&HandoverMessage::Refuse { reason }.encode(), &[], until)?;
        return Err(failure);
    }
    let accept = HandoverMessage::Accept {
        version,
        program: offered.program.to_owned(),
        listen: offered.listen(),
        workers: workers as u64,
        servers: offered.servers(),
    };
    stream.send(&accept.encode(), &[], until)?;
    match stream.receive(Instant::now() + CHECK_TIME) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        packet => match HandoverMessage::decode(&packet?.bytes)? {
            HandoverMessage::Take => Ok(Some(HandoverRequest::Take)),
            HandoverMessage::Ask => Ok(Some(HandoverRequest::Count)),
            HandoverMessage::Drain => Ok(Some(HandoverRequest::Drain)),
            _ => Err(HandoverFailure::Order),
        },
    }
}

/// Makes all workers hand their flows over, and sends everything else. Returns the ways to the workers, which wait for the
/// verdict.
fn give(
    stream: &Arc<PacketStream>,
    offered: &Offered,
    (listener, mailboxes): (&PacketListener, &[Mailbox]),
    until: Instant,
) -> (Vec<Sender<Verdict>>, Result<(), HandoverFailure>) {
    info!(target: "quictun", "another process takes over: flows of bonds are detached");
    let settles_until = Instant::now() + SETTLING_TIME;
    let unsettled = Arc::new(AtomicUsize::new(mailboxes.len()));
    let (reply, replies) = sync_channel(mailboxes.len());
    let mut verdicts = Vec::new();
    for mailbox in mailboxes {
        let (sender, verdict) = channel();
        verdicts.push(sender);
        mailbox.send(Message::HandOver(Box::new(HandoverOrder {
            stream: stream.clone(),
            unsettled: unsettled.clone(),
            settles_until,
            until,
            reply: reply.clone(),
            verdict,
        })));
    }
    drop(reply);
    let sent = send_listeners(stream, offered, listener, until)
        .and_then(|()| send_state(stream, offered, (&replies, mailboxes.len()), until));
    (verdicts, sent)
}

fn send_listeners(
    stream: &PacketStream,
    offered: &Offered,
    listener: &PacketListener,
    until: Instant,
) -> Result<(), HandoverFailure> {
    let send = |purpose, fd: BorrowedFd<'_>| {
        let message = HandoverMessage::Sockets(purpose).encode();
        stream.send(&message, &[fd], until)
    };
    match &offered.of_side {
        OfferedBySide::Server { tls, .. } => {
            for tls in tls.iter() {
                send(SocketPurpose::Tls, tls.as_fd())?;
            }
        }
        OfferedBySide::Client(state) => {
            let listeners = state.forwards().listeners();
            for (listen, listener) in listeners {
                let address = passed_as(&listen);
                send(SocketPurpose::Forward { address }, listener.as_fd())?;
            }
        }
    }
    if let Some(http) = &offered.http {
        send(SocketPurpose::Http, http.as_fd())?;
    }
    Ok(send(SocketPurpose::Handover, listener.as_fd())?)
}

type Replies = Receiver<(usize, io::Result<Vec<quictun_wire::handover::HandedBond>>)>;

/// Collects the bonds of all workers, and sends them as one document in sealed memory.
fn send_state(
    stream: &PacketStream,
    offered: &Offered,
    (replies, workers): (&Replies, usize),
    until: Instant,
) -> Result<(), HandoverFailure> {
    let mut bonds = vec![Vec::new(); workers];
    for _ in 0..workers {
        let left = until.saturating_duration_since(Instant::now());
        let reply = replies.recv_timeout(left);
        let (worker, of_worker) = reply.map_err(|_| HandoverFailure::WorkerGone)?;
        bonds[worker] = of_worker.map_err(HandoverFailure::Worker)?;
    }
    let (month, usage) = match &offered.of_side {
        OfferedBySide::Server { used, .. } => used(),
        OfferedBySide::Client(_) => Default::default(),
    };
    let state = Handover {
        kind: offered.kind(),
        month,
        usage,
        workers: bonds,
    };
    let bytes = zeroize::Zeroizing::new(state.encode());
    // Every copy holds the data of all flows.
    drop(state);
    let memory = seal_memory(&bytes)?;
    drop(bytes);
    let message = HandoverMessage::State.encode();
    Ok(stream.send(&message, &[memory.as_fd()], until)?)
}

fn await_commitment(stream: &PacketStream, until: Instant) -> Result<(), HandoverFailure> {
    let packet = stream.receive(until)?;
    match HandoverMessage::decode(&packet.bytes)? {
        HandoverMessage::Committed => Ok(()),
        _ => Err(HandoverFailure::Order),
    }
}
