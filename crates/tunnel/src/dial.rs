//! Dials to targets, many at once, none of which holds up another.
//!
//! A dial tries the addresses of its target one after the other, each with a share of the time that is
//! left, until one connects or the deadline has come.

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use quictun_engine::FlowId;
use quictun_wire::code::FlowCode;
use rustix::io::Errno;
use slab::Slab;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use crate::app_socket::AppSocket;
use crate::poller::{Key, Poller};

/// Dials under way in one worker. Each holds a descriptor.
const MAX: usize = 8192;

/// Where several addresses are to be tried, none gets less than this.
const SHARE_MIN: Duration = Duration::from_secs(1);

/// All dials of a worker.
#[derive(Debug, Default)]
pub(crate) struct Dials {
    pending: Slab<Dial>,
    timeouts: BTreeSet<(Instant, usize)>,
    tickets: u64,
}

#[derive(Debug)]
struct Dial {
    flow: FlowId,
    ticket: u64,
    state: State,
    deadline: Instant,
    /// As entered in `timeouts`.
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
}

/// A dial's end.
#[derive(Debug)]
pub(crate) struct Dialed {
    pub(crate) flow: FlowId,
    /// The connected socket, in the poller under the flow's key, and its address.
    pub(crate) result: Result<(AppSocket, String), FlowCode>,
}

impl Dials {
    /// Begins a dial whose addresses are being looked up; its key and ticket go with the look-up.
    pub(crate) fn resolve(&mut self, flow: FlowId, deadline: Instant) -> Option<(usize, u64)> {
        if self.pending.len() >= MAX {
            return None;
        }
        self.tickets += 1;
        let dial = Dial {
            flow,
            ticket: self.tickets,
            state: State::Resolving,
            deadline,
            timeout: deadline,
        };
        let key = self.pending.insert(dial);
        self.timeouts.insert((deadline, key));
        Some((key, self.tickets))
    }

    /// The look-up's answer, already judged by the policy.
    pub(crate) fn handle_resolved(
        &mut self,
        now: Instant,
        poller: &Poller,
        key: usize,
        ticket: u64,
        result: Result<Vec<SocketAddr>, FlowCode>,
    ) -> Option<Dialed> {
        let dial = self.pending.get(key).filter(|dial| dial.ticket == ticket)?;
        let flow = dial.flow;
        match result {
            Ok(addresses) => {
                self.connect_next(now, poller, key, addresses.into(), FlowCode::NameNotFound)
            }
            Err(code) => {
                self.remove(key);
                Some(Dialed {
                    flow,
                    result: Err(code),
                })
            }
        }
    }

    /// A connecting socket is ready, one way or the other.
    pub(crate) fn handle_ready(
        &mut self,
        now: Instant,
        poller: &Poller,
        key: usize,
    ) -> Option<Dialed> {
        let dial = self.pending.get_mut(key)?;
        let State::Connecting { socket, next, .. } = &mut dial.state else {
            return None;
        };
        match socket.take_error() {
            Ok(None) => Some(self.connected(poller, key)),
            Ok(Some(error)) | Err(error) => {
                let next = std::mem::take(next);
                self.connect_next(now, poller, key, next, code_of(&error))
            }
        }
    }

    /// When [`Dials::handle_timeout`] wants to be called.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.timeouts.first().map(|&(at, _)| at)
    }

    /// Ends or moves on one dial whose time is up.
    pub(crate) fn handle_timeout(&mut self, now: Instant, poller: &Poller) -> Option<Dialed> {
        loop {
            let &(at, key) = self.timeouts.first()?;
            if at > now {
                return None;
            }
            let dial = &mut self.pending[key];
            let next = match &mut dial.state {
                State::Connecting { next, .. } if now < dial.deadline => std::mem::take(next),
                State::Connecting { .. } | State::Resolving => VecDeque::new(),
            };
            let ended = self.connect_next(now, poller, key, next, FlowCode::DialTimeout);
            if ended.is_some() {
                return ended;
            }
        }
    }

    /// Tries the next address; `Some`: there is none left, for this reason.
    fn connect_next(
        &mut self,
        now: Instant,
        poller: &Poller,
        key: usize,
        mut next: VecDeque<SocketAddr>,
        mut reason: FlowCode,
    ) -> Option<Dialed> {
        while let Some(address) = next.pop_front() {
            match start_tcp(address) {
                Ok(socket) => match poller.add_flow(&socket, Key::Dial(key)) {
                    Ok(()) => {
                        self.wait_for(now, key, socket, address, next);
                        return None;
                    }
                    Err(_) => reason = FlowCode::Limit,
                },
                Err(error) => reason = code_of(&error),
            }
        }
        let flow = self.pending[key].flow;
        self.remove(key);
        Some(Dialed {
            flow,
            result: Err(reason),
        })
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

    fn connected(&mut self, poller: &Poller, key: usize) -> Dialed {
        let dial = self.remove(key);
        let result = match dial.state {
            State::Resolving => Err(FlowCode::Internal),
            State::Connecting {
                socket, address, ..
            } => poller
                .rename_flow(&socket, Key::Flow(dial.flow))
                .map(|()| (socket, address.to_string()))
                .map_err(|_| FlowCode::Internal),
        };
        Dialed {
            flow: dial.flow,
            result,
        }
    }

    fn remove(&mut self, key: usize) -> Dial {
        let dial = self.pending.remove(key);
        self.timeouts.remove(&(dial.timeout, key));
        dial
    }
}

/// Connects to a Unix socket: done or failed at once.
pub(crate) fn dial_unix(path: &str) -> Result<AppSocket, FlowCode> {
    // A full backlog would block a blocking socket; a non-blocking one says so.
    let connect = || -> io::Result<AppSocket> {
        let socket = Socket::new(Domain::UNIX, Type::STREAM.nonblocking(), None)?;
        socket.connect(&SockAddr::unix(path)?)?;
        AppSocket::unix(UnixStream::from(std::os::fd::OwnedFd::from(socket)))
    };
    connect().map_err(|error| code_of(&error))
}

fn start_tcp(address: SocketAddr) -> io::Result<AppSocket> {
    let domain = Domain::for_address(address);
    let socket = Socket::new(domain, Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
    match socket.connect(&address.into()) {
        Err(error) if error.raw_os_error() != Some(Errno::INPROGRESS.raw_os_error()) => Err(error),
        Ok(()) | Err(_) => AppSocket::tcp(socket.into()),
    }
}

/// What a failed connect means to the client.
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
