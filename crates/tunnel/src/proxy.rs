//! A client's proxy, for applications that name their target before their bytes.
//!
//! A connection waits in [`Proxy`] until its request is complete ([`quictun_wire::proxy`]). Then it becomes a flow like
//! any other, whose socket is a [`ProxiedSocket`]. The socket answers once the server has connected the target. If the
//! server refuses, the engine returns the socket, and the proxy answers with the reason.
//!
//! ```text
//!  accept ─► asking ── request ──► flow ── established ─► answered, bytes
//!              │    └─ UDP ASSOCIATE ─┼─► the caller's: `client_worker/associations.rs`
//!              │ refused, or late     │ refused
//!              ▼                      ▼
//!           leaving ◄── answer ───────┘    reads on for a moment: a reset would take the answer away
//! ```

pub(crate) mod socket;
/// Takes a place for the host that has connected. The programs of this machine over Unix sockets count as one host.
fn place(places: &CommonShares, socket: &AppSocket) -> Option<SharePlace> {
    let address = socket.peer_address();
    let holder = address.map_or(Holder::Own, |address| Holder::at(address.ip()));
    places.place(&holder)
}

#[cfg(test)]
mod tests;

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use quictun_engine::{Ending, FlowId, Socket as _};
use quictun_trust::logins::Logins;
use quictun_trust::shares::{CommonShares, Holder, SharePlace};
use quictun_wire::code::FlowCode;
use quictun_wire::proxy::{Dialect, Handshake, HandshakeStep, MAX_HEAD, Request};
use slab::Slab;
use tracing::{debug, warn};

use crate::app_socket::AppSocket;
use crate::flow_source::FlowToOpen;
use crate::rate_limited_warning::RateLimitedWarning;
use crate::role::ClientContext;
use quictun_io::poller::{Key, Poller, ReadyEvent};

use socket::{ProxiedSocket, ReturnedSocket, ReturnedSockets};

/// Maximum number of connections of one worker that have no complete request, or were refused and are not closed yet.
/// With the longest requests they take 64 MiB. Hosts share them.
const PENDING_MAX: usize = 4096;

/// A host gets another place while it has fewer than four for each free one: a single host gets four fifths of all.
const WEIGHT: usize = 4;

/// Time limit for a request. A slow application would otherwise hold its place.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Time limit for an application to read a refusal and close.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(2);

/// Maximum number of bytes to read from a refused application: twice the longest request.
const LEAVE_MAX: usize = 2 * MAX_HEAD;

/// Maximum number of associations of one worker. Each holds two descriptors. Hosts share them.
const ASSOCIATIONS_MAX: usize = 256;

/// Minimum time between two checks of the deadlines.
const SWEEP: Duration = Duration::from_millis(100);

/// The connections of one worker that are not flows.
#[derive(Debug)]
pub(crate) struct Proxy {
    logins: Option<Logins>,
    pending: Slab<Pending>,
    /// The places for connections that are not flows, and for associations. A host that opens many connections and sends
    /// no request takes no place from hosts with few.
    places: CommonShares,
    association_places: CommonShares,
    returns: ReturnedSockets,
    buffer: Vec<u8>,
    sweep_at: Option<Instant>,
    overflow: RateLimitedWarning,
    unknown: RateLimitedWarning,
}

#[derive(Debug)]
struct Pending {
    socket: AppSocket,
    /// `None` only for a refused connection, which then does not stay.
    place: Option<SharePlace>,
    deadline: Instant,
    state: PendingState,
}

#[derive(Debug)]
enum PendingState {
    Asking(Box<Handshake>),
    /// The application was refused; holds the number of bytes that may still be read.
    Leaving(usize),
}

/// The request of an application.
#[derive(Debug)]
pub(crate) enum ProxyRequest {
    Flow(FlowToOpen),
    Association(AssociationRequest),
}

/// A connection whose application wants to send datagrams, which was not answered yet.
#[derive(Debug)]
pub(crate) struct AssociationRequest {
    pub(crate) lifeline: AppSocket,
    pub(crate) place: SharePlace,
    /// The port from which the application sends, if it has named one.
    pub(crate) from_port: Option<u16>,
    /// The connection's key in the poller, if the poller watches it.
    pub(crate) watched: Option<Key>,
}

/// The next action for a connection.
enum NextAction {
    Wait,
    Open(Request),
    Associate(Option<u16>),
    Leave(Vec<u8>),
    Gone,
}

impl Proxy {
    /// Sets the users of later connections.
    pub(crate) fn set_logins(&mut self, logins: Option<Logins>) {
        self.logins = logins;
    }

    /// Creates a proxy. With `logins`, an application must present one of them.
    pub(crate) fn new(logins: Option<Logins>) -> Self {
        Self {
            logins,
            pending: Slab::new(),
            places: CommonShares::new(PENDING_MAX, WEIGHT),
            association_places: CommonShares::new(ASSOCIATIONS_MAX, WEIGHT),
            returns: ReturnedSockets::default(),
            buffer: Vec::with_capacity(MAX_HEAD),
            sweep_at: None,
            overflow: RateLimitedWarning::default(),
            unknown: RateLimitedWarning::default(),
        }
    }

    /// Handles a new connection of an application. The request may have arrived already.
    pub(crate) fn accept(
        &mut self,
        now: Instant,
        poller: &Poller,
        socket: AppSocket,
    ) -> Option<ProxyRequest> {
        let place = place(&self.places, &socket);
        if place.is_none() {
            if let Some(connections) = self.overflow.count(now) {
                warn!(target: "quictun", connections, "too many connections to the proxy have sent no request: they were reset");
            }
            return None;
        }
        let handshake = Box::new(Handshake::new(self.logins.is_some()));
        let deadline = now + REQUEST_TIMEOUT;
        let state = PendingState::Asking(handshake);
        let pending = Pending {
            socket,
            place,
            deadline,
            state,
        };
        self.advance(now, poller, pending, None)
    }

    /// Handles a connection that is ready.
    pub(crate) fn handle_ready(
        &mut self,
        now: Instant,
        poller: &Poller,
        ready: ReadyEvent,
    ) -> Option<ProxyRequest> {
        let Key::Asking(key) = ready.key else {
            return None;
        };
        // The connection may have ended earlier in this turn.
        let pending = self.pending.try_remove(key)?;
        self.advance(now, poller, pending, Some(ready.key))
    }

    /// Handles the end of a flow. An application whose flow was never established gets an answer with the reason.
    pub(crate) fn handle_closed(
        &mut self,
        now: Instant,
        poller: &Poller,
        flow: FlowId,
        ending: Ending,
    ) {
        let code = match ending {
            Ending::PeerReset(code) => code,
            Ending::PeerRefused(_)
            | Ending::PeerClosed(_)
            | Ending::Abandoned(_)
            | Ending::LimitReached(_)
            | Ending::NoConnection => Some(ending.code()),
            // The application itself has closed.
            Ending::AppReset | Ending::Finished => return self.returns.forget(flow),
        };
        if let Some(returned) = self.returns.take(flow) {
            let watched = Some(Key::Flow(flow));
            self.refuse(now, poller, returned, code, watched);
        }
    }

    /// Assigns a flow to its socket. The flow may be over already.
    pub(crate) fn name(&self, cx: &ClientContext<'_>, flow: FlowId) {
        match cx.engine.socket(flow) {
            Some(AppSocket::Proxied(socket)) => socket.name(flow),
            Some(_) => {}
            None => self.returns.name(flow),
        }
    }

    /// Handles that the engine takes no more flows and has returned the socket at once.
    pub(crate) fn handle_refused(&mut self, now: Instant, poller: &Poller, watched: Option<Key>) {
        if let Some(returned) = self.returns.take_nameless() {
            self.refuse(now, poller, returned, Some(FlowCode::Limit), watched);
        }
    }

    /// Refuses an association to the application on this connection, which has its key in the poller if it is watched.
    pub(crate) fn refuse_associate(
        &mut self,
        now: Instant,
        poller: &Poller,
        (lifeline, watched): (AppSocket, Option<Key>),
        code: FlowCode,
    ) {
        let answer = Dialect::Socks5.refused(Some(code));
        self.begin_leaving(now, poller, lifeline, &answer, watched);
    }

    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.sweep_at
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        if self.sweep_at.is_none_or(|at| at > now) {
            return;
        }
        // An application that sends nothing is reset without an answer, because its protocol is unknown.
        self.pending.retain(|_, pending| pending.deadline > now);
        let next = self.pending.iter().map(|(_, pending)| pending.deadline);
        self.sweep_at = next.min().map(|at| at.max(now + SWEEP));
    }

    /// Resets the connections without a request, because the process takes no more flows.
    pub(crate) fn stop(&mut self) {
        self.pending.clear();
    }

    fn refuse(
        &mut self,
        now: Instant,
        poller: &Poller,
        returned: ReturnedSocket,
        code: Option<FlowCode>,
        watched: Option<Key>,
    ) {
        let answer = returned.dialect.refused(code);
        self.begin_leaving(now, poller, returned.socket, &answer, watched);
    }

    fn begin_leaving(
        &mut self,
        now: Instant,
        poller: &Poller,
        socket: AppSocket,
        answer: &[u8],
        watched: Option<Key>,
    ) {
        let leaving = Pending {
            place: place(&self.places, &socket),
            socket,
            deadline: now + LEAVE_TIMEOUT,
            state: PendingState::Leaving(LEAVE_MAX),
        };
        self.leave(now, poller, leaving, answer, watched);
    }

    /// Advances a connection and stores it according to its new stage.
    fn advance(
        &mut self,
        now: Instant,
        poller: &Poller,
        mut pending: Pending,
        watched: Option<Key>,
    ) -> Option<ProxyRequest> {
        match self.read_available(now, &mut pending) {
            NextAction::Wait => {
                self.store(poller, pending, watched);
                None
            }
            NextAction::Open(request) => {
                let token = request.target.to_string();
                let Request { dialect, rest, .. } = request;
                let proxied =
                    ProxiedSocket::new(pending.socket, dialect, rest, self.returns.clone());
                let socket = AppSocket::Proxied(Box::new(proxied));
                Some(ProxyRequest::Flow(FlowToOpen {
                    socket,
                    token,
                    watched,
                }))
            }
            NextAction::Associate(from_port) => {
                let lifeline = pending.socket;
                let Some(place) = place(&self.association_places, &lifeline) else {
                    debug!(target: "quictun", { "Client-App-Addr" = lifeline.peer() }, "an application was refused an association for datagrams, because there are too many");
                    self.refuse_associate(now, poller, (lifeline, watched), FlowCode::Limit);
                    return None;
                };
                Some(ProxyRequest::Association(AssociationRequest {
                    lifeline,
                    place,
                    from_port,
                    watched,
                }))
            }
            NextAction::Leave(answer) => {
                pending.state = PendingState::Leaving(LEAVE_MAX);
                pending.deadline = now + LEAVE_TIMEOUT;
                self.leave(now, poller, pending, &answer, watched);
                None
            }
            NextAction::Gone => None,
        }
    }

    /// Reads the available bytes and returns the next action.
    fn read_available(&mut self, now: Instant, pending: &mut Pending) -> NextAction {
        loop {
            self.buffer.clear();
            let read = match pending.socket.read(&mut self.buffer) {
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return NextAction::Wait,
                Err(_) => return NextAction::Gone,
            };
            match &mut pending.state {
                PendingState::Asking(_) if read == 0 => return NextAction::Gone,
                PendingState::Asking(handshake) => {
                    handshake.push(&self.buffer);
                    let unknown = &mut self.unknown;
                    match continue_handshake(
                        handshake,
                        &pending.socket,
                        self.logins.as_ref(),
                        || {
                            if let Some(attempts) = unknown.count(now) {
                                warn!(target: "quictun", attempts, "the proxy was given a user or password that is not in its file");
                            }
                        },
                    ) {
                        NextAction::Wait => {}
                        next => return next,
                    }
                }
                PendingState::Leaving(left) => {
                    *left = left.saturating_sub(read);
                    if read == 0 || *left == 0 {
                        pending.socket.close();
                        return NextAction::Gone;
                    }
                }
            }
            if pending.socket.is_drained() {
                return NextAction::Wait;
            }
        }
    }

    /// Answers, finishes the direction to the application, and reads on until the application finishes too. Closing a
    /// socket with unread bytes would cause a reset, which may discard the answer.
    fn leave(
        &mut self,
        now: Instant,
        poller: &Poller,
        mut pending: Pending,
        answer: &[u8],
        watched: Option<Key>,
    ) {
        let sent = answer.is_empty() || pending.socket.say(answer).is_ok();
        if !sent || answer.is_empty() || pending.socket.finish().is_err() {
            return;
        }
        // From here on a close delivers the answer.
        pending.socket.close();
        if pending.place.is_some()
            && matches!(self.read_available(now, &mut pending), NextAction::Wait)
        {
            self.store(poller, pending, watched);
        }
    }

    fn store(&mut self, poller: &Poller, pending: Pending, watched: Option<Key>) {
        let entry = self.pending.vacant_entry();
        let key = Key::Asking(entry.key());
        let fd = pending.socket.descriptor();
        let done = match watched {
            None => poller.add_flow(fd, key),
            // The connection was taken out a moment ago, and returns to the same slot.
            Some(known) if known == key => Ok(()),
            Some(_) => poller.rename_flow(fd, key),
        };
        if let Err(cause) = done {
            warn!(target: "quictun", %cause, "a connection cannot be watched: it was reset");
            return;
        }
        let at = pending.deadline;
        entry.insert(pending);
        self.sweep_at = Some(self.sweep_at.map_or(at, |sweep| sweep.min(at)));
    }
}

/// Handles that the server has connected the target of a flow.
pub(crate) fn handle_established(cx: &mut ClientContext<'_>, flow: FlowId) {
    let sent = match cx.engine.socket(flow) {
        Some(AppSocket::Proxied(socket)) => socket.accept(),
        _ => return,
    };
    if sent.is_err() {
        cx.fail(flow);
    }
}

/// Continues the handshake as far as the received bytes allow.
fn continue_handshake(
    handshake: &mut Handshake,
    socket: &AppSocket,
    logins: Option<&Logins>,
    unknown: impl FnOnce(),
) -> NextAction {
    let mut unknown = Some(unknown);
    let mut step = handshake.poll();
    loop {
        step = match step {
            HandshakeStep::More => return NextAction::Wait,
            HandshakeStep::Reply(answer) => {
                if socket.say(&answer).is_err() {
                    return NextAction::Gone;
                }
                handshake.poll()
            }
            HandshakeStep::Login(login) => {
                let known = logins.is_none_or(|it| it.knows(&login.user, &login.password));
                if !known && let Some(unknown) = unknown.take() {
                    unknown();
                }
                handshake.handle_login(known)
            }
            HandshakeStep::Connect(request) => return NextAction::Open(request),
            HandshakeStep::Associate { from_port } => return NextAction::Associate(from_port),
            HandshakeStep::Refuse(refusal) => {
                debug!(target: "quictun", { "Client-App-Addr" = socket.peer(), cause = refusal.why }, "a connection to the proxy was refused");
                return NextAction::Leave(refusal.answer);
            }
        };
    }
}
