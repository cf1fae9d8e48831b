//! Dials to targets: many at once, and none delays another.
//!
//! A dial tries the addresses of its target one after the other, each with a share of the remaining time, until one
//! connects, the deadline passes, or its flow ends. If the target gets a PROXY header (PROTOCOL section 5.10), the dial
//! continues until the socket has taken all of it: no other byte can come before. Clients share the places for dials:
//! see `quictun_trust::shares`.
//!
//! ```text
//! resolving ─► connecting ─► writing header ─► the flow's
//!                  │ ▲ next address
//!                  └─┘
//! ```

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use quictun_engine::{FlowId, Socket as _};
use quictun_wire::code::FlowCode;
use rustix::io::Errno;
use slab::Slab;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use crate::app_socket::{AppSocket, reset_on_close};
use quictun_io::poller::{Key, Poller};
use quictun_trust::shares::{Holder, Shares};

/// Limit of dials under way in one worker, for a crowd that comes at once. One client may have at most half of them.
const MAX: usize = 16384;

/// Minimum time for an address while several are to be tried.
const SHARE_MIN: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct Dials {
    pending: Slab<Dial>,
    by_flow: HashMap<FlowId, usize>,
    shares: Shares,
    timeouts: BTreeSet<(Instant, usize)>,
}

#[derive(Debug)]
struct Dial {
    flow: FlowId,
    holder: Holder,
    state: State,
    deadline: Instant,
    timeout: Instant,
}

#[derive(Debug)]
enum State {
    Resolving,
    Connecting {
        socket: AppSocket,
        address: SocketAddr,
        next: VecDeque<SocketAddr>,
    },
    /// The socket is connected, and the rest of the header waits for room in its send buffer.
    WritingHeader {
        socket: AppSocket,
        address: SocketAddr,
        rest: Vec<u8>,
    },
}

#[derive(Debug)]
pub(crate) struct DialResult {
    pub(crate) flow: FlowId,
    /// The connected socket, registered in the poller under the flow's key, and its address.
    pub(crate) result: Result<(AppSocket, String), FlowCode>,
}

impl Dials {
    pub(crate) fn new() -> Self {
        Self {
            pending: Slab::new(),
            by_flow: HashMap::new(),
            shares: Shares::new(MAX, 1),
            timeouts: BTreeSet::new(),
        }
    }

    /// Begins a dial whose addresses are being looked up. Returns `false` if its client has as many dials as it may.
    pub(crate) fn resolve(&mut self, flow: FlowId, holder: &Holder, deadline: Instant) -> bool {
        if !self.shares.take(holder) {
            return false;
        }
        let dial = Dial {
            flow,
            holder: holder.clone(),
            state: State::Resolving,
            deadline,
            timeout: deadline,
        };
        let key = self.pending.insert(dial);
        self.by_flow.insert(flow, key);
        self.timeouts.insert((deadline, key));
        true
    }

    /// Cancels the dial of a flow that has ended, if it has one (PROTOCOL OPEN-12).
    pub(crate) fn cancel(&mut self, flow: FlowId) {
        let Some(&key) = self.by_flow.get(&flow) else {
            return;
        };
        if let State::Connecting { mut socket, .. } | State::WritingHeader { mut socket, .. } =
            self.remove(key).state
        {
            // A target that has just accepted sees a reset. If no target has accepted, nothing is sent.
            socket.abort();
        }
    }

    /// Handles the answer of a look-up, which the policy has judged already. A late answer is ignored.
    pub(crate) fn handle_resolved(
        &mut self,
        now: Instant,
        poller: &Poller,
        flow: FlowId,
        result: Result<Vec<SocketAddr>, FlowCode>,
    ) -> Option<DialResult> {
        let key = *self.by_flow.get(&flow)?;
        let (next, reason) = match result {
            Ok(addresses) => (addresses.into(), FlowCode::NameNotFound),
            Err(code) => (VecDeque::new(), code),
        };
        self.connect_next(now, poller, key, next, reason)
    }

    /// Applies new rules: the dial of a flow continues with those of its addresses that `permits` accepts. Returns
    /// `Some` if none is left. A dial whose addresses are still being looked up is judged when they come.
    pub(crate) fn rejudge(
        &mut self,
        now: Instant,
        poller: &Poller,
        flow: FlowId,
        permits: impl Fn(IpAddr) -> bool,
    ) -> Option<DialResult> {
        let key = *self.by_flow.get(&flow)?;
        let state = &mut self.pending[key].state;
        let next = match state {
            State::Connecting { next, .. } => {
                next.retain(|address| permits(address.ip()));
                next.clone()
            }
            State::Resolving | State::WritingHeader { .. } => VecDeque::new(),
        };
        let (State::Connecting {
            socket, address, ..
        }
        | State::WritingHeader {
            socket, address, ..
        }) = state
        else {
            return None;
        };
        if permits(address.ip()) {
            return None;
        }
        socket.abort();
        self.connect_next(now, poller, key, next, FlowCode::Revoked)
    }

    /// Handles a socket that has connected, has failed, or has room. `header` makes the header for a target at an
    /// address; it returns `None` if that target gets none.
    pub(crate) fn handle_ready(
        &mut self,
        now: Instant,
        poller: &Poller,
        key: usize,
        header: impl FnOnce(FlowId, SocketAddr) -> Option<Vec<u8>>,
    ) -> Option<DialResult> {
        let dial = self.pending.get_mut(key)?;
        match &mut dial.state {
            State::Resolving => return None,
            State::Connecting {
                socket,
                address,
                next,
            } => match check_connected(socket) {
                Ok(()) => {
                    let rest = header(dial.flow, *address).unwrap_or_default();
                    self.connected(key, rest);
                }
                Err(error) => {
                    let next = std::mem::take(next);
                    return self.connect_next(now, poller, key, next, code_of(&error));
                }
            },
            State::WritingHeader { .. } => {}
        }
        self.write_header(poller, key)
    }

    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.timeouts.first().map(|&(at, _)| at)
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant, poller: &Poller) -> Option<DialResult> {
        loop {
            let &(at, key) = self.timeouts.first()?;
            if at > now {
                return None;
            }
            let dial = &mut self.pending[key];
            let next = match &mut dial.state {
                State::Connecting { next, .. } if now < dial.deadline => std::mem::take(next),
                State::Connecting { .. } | State::Resolving | State::WritingHeader { .. } => {
                    VecDeque::new()
                }
            };
            let ended = self.connect_next(now, poller, key, next, FlowCode::DialTimeout);
            if ended.is_some() {
                return ended;
            }
        }
    }

    /// Tries the next address. Returns the reason of the failure if no address is left.
    fn connect_next(
        &mut self,
        now: Instant,
        poller: &Poller,
        key: usize,
        mut next: VecDeque<SocketAddr>,
        mut reason: FlowCode,
    ) -> Option<DialResult> {
        while let Some(address) = next.pop_front() {
            match start_tcp(address) {
                Ok(socket) => match poller.add_flow(socket.descriptor(), Key::Dial(key)) {
                    Ok(()) => {
                        self.wait_for(now, key, socket, address, next);
                        return None;
                    }
                    Err(_) => reason = FlowCode::Limit,
                },
                Err(error) => reason = code_of(&error),
            }
        }
        Some(self.fail(key, reason))
    }

    fn fail(&mut self, key: usize, reason: FlowCode) -> DialResult {
        let flow = self.remove(key).flow;
        let result = Err(reason);
        DialResult { flow, result }
    }

    fn wait_for(
        &mut self,
        now: Instant,
        key: usize,
        socket: AppSocket,
        address: SocketAddr,
        next: VecDeque<SocketAddr>,
    ) {
        let dial = &mut self.pending[key];
        let left = dial.deadline.saturating_duration_since(now);
        let addresses = u32::try_from(next.len() + 1).unwrap_or(u32::MAX);
        let share = (left / addresses).max(SHARE_MIN).min(left);
        self.timeouts.remove(&(dial.timeout, key));
        dial.timeout = now + share;
        self.timeouts.insert((dial.timeout, key));
        dial.state = State::Connecting {
            socket,
            address,
            next,
        };
    }

    /// Handles a connected socket: no other address is tried, and the remaining time of the dial is for the header.
    fn connected(&mut self, key: usize, rest: Vec<u8>) {
        let dial = &mut self.pending[key];
        self.timeouts.remove(&(dial.timeout, key));
        dial.timeout = dial.deadline;
        self.timeouts.insert((dial.timeout, key));
        let state = std::mem::replace(&mut dial.state, State::Resolving);
        if let State::Connecting {
            socket, address, ..
        } = state
        {
            dial.state = State::WritingHeader {
                socket,
                address,
                rest,
            };
        }
    }

    /// Writes as much of the header as fits. The flow gets the socket once the socket has taken all of it.
    fn write_header(&mut self, poller: &Poller, key: usize) -> Option<DialResult> {
        if let State::WritingHeader { socket, rest, .. } = &mut self.pending.get_mut(key)?.state {
            while !rest.is_empty() {
                match socket.write(&[IoSlice::new(rest)]) {
                    Ok(0) => return Some(self.fail(key, FlowCode::Unreachable)),
                    Ok(written) => drop(rest.drain(..written)),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
                    Err(error) => return Some(self.fail(key, code_of(&error))),
                }
            }
        }
        let dial = self.remove(key);
        let result = match dial.state {
            State::WritingHeader {
                socket, address, ..
            } => poller
                .rename_flow(socket.descriptor(), Key::Flow(dial.flow))
                .map(|()| (socket, address.to_string()))
                .map_err(|_| FlowCode::Internal),
            State::Resolving | State::Connecting { .. } => Err(FlowCode::Internal),
        };
        let flow = dial.flow;
        Some(DialResult { flow, result })
    }

    fn remove(&mut self, key: usize) -> Dial {
        let dial = self.pending.remove(key);
        self.by_flow.remove(&dial.flow);
        self.timeouts.remove(&(dial.timeout, key));
        self.shares.give_back(&dial.holder);
        dial
    }
}

/// Connects to a Unix socket, and writes the header, if any, before any other byte.
pub(crate) fn dial_unix(path: &str, header: Option<Vec<u8>>) -> Result<AppSocket, FlowCode> {
    // With a full backlog a blocking connect would wait; a non-blocking one fails at once.
    let connect = || -> io::Result<AppSocket> {
        let socket = Socket::new(Domain::UNIX, Type::STREAM.nonblocking(), None)?;
        socket.connect(&SockAddr::unix(path)?)?;
        let socket = AppSocket::unix(UnixStream::from(std::os::fd::OwnedFd::from(socket)))?;
        // A Unix socket to which nothing was written before takes a header whole or not at all.
        header.map_or(Ok(()), |header| socket.say(&header))?;
        Ok(socket)
    };
    connect().map_err(|error| code_of(&error))
}

fn start_tcp(address: SocketAddr) -> io::Result<AppSocket> {
    let domain = Domain::for_address(address);
    let socket = Socket::new(domain, Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
    reset_on_close(&socket)?;
    match socket.connect(&address.into()) {
        Err(error) if error.raw_os_error() != Some(Errno::INPROGRESS.raw_os_error()) => Err(error),
        Ok(()) | Err(_) => AppSocket::tcp(socket.into()),
    }
}

/// Returns why a socket that has finished connecting is not connected to a target.
fn check_connected(socket: &AppSocket) -> io::Result<()> {
    if let Some(error) = socket.take_error()? {
        return Err(error);
    }
    // If no process listens at a port of this host, the kernel may choose that port as the source. The socket then connects
    // to itself: it echoes, and keeps the target from listening.
    if socket.is_its_own_peer() {
        return Err(Errno::CONNREFUSED.into());
    }
    Ok(())
}

fn code_of(error: &io::Error) -> FlowCode {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::CONNREFUSED | Errno::AGAIN | Errno::NOENT) => FlowCode::Refused,
        Some(Errno::TIMEDOUT) => FlowCode::DialTimeout,
        Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM | Errno::ADDRNOTAVAIL) => {
            FlowCode::Limit
        }
        Some(Errno::ACCESS | Errno::PERM) => FlowCode::Denied,
        _ => FlowCode::Unreachable,
    }
}

#[cfg(test)]
mod tests;
