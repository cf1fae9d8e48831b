//! Dials to targets: many at once, and none delays another.
//!
//! A dial tries the addresses of its target in a race ([`race`]): an address that does not answer delays the next one by
//! a quarter of a second. The first socket that connects wins, and the others are closed before any byte is sent. The
//! addresses that were outrun are tried last by later dials ([`memory`]). If the target gets a PROXY header (PROTOCOL
//! section 5.10), the dial continues until the socket has taken all of it: no other byte can come before. Clients share
//! the places for dials: see `quictun_trust::shares`.
//!
//! The first attempt uses the descriptor that its flow has. Each further attempt takes a place of its own.
//!
//! ```text
//! resolving ─► racing ─► writing header ─► the flow's
//! ```

mod memory;
mod race;

use std::collections::{BTreeSet, HashMap};
use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Instant;

use quictun_engine::{FlowId, Socket as _};
use quictun_wire::code::FlowCode;
use rustix::io::Errno;
use slab::Slab;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use crate::app_socket::{AppSocket, prepare};
use crate::datagram_socket::DatagramSocket;
use quictun_io::poller::{Key, Poller};
use quictun_io::socket_path::SocketPath;
use quictun_trust::shares::{CommonShares, Holder, Shares};

pub(crate) use memory::DialMemory;
use race::{Race, Step};

/// Limit of dials under way in one worker, for a crowd that comes at once. One client may have at most half of them.
const MAX: usize = 16384;

#[derive(Debug)]
pub(crate) struct Dials {
    pending: Slab<Dial>,
    by_flow: HashMap<FlowId, usize>,
    /// The dial of each attempt. A number is used once, so that a late event belongs to no other attempt.
    by_attempt: HashMap<usize, usize>,
    next_attempt: usize,
    shares: Shares,
    /// The descriptors of the process, for attempts beyond the first.
    descriptors: CommonShares,
    memory: DialMemory,
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
    /// As above; the target takes datagrams.
    ResolvingForDatagrams,
    Racing {
        race: Race,
        attempts: Vec<Attempt>,
        /// The last failure, which the flow gets if no attempt connects.
        reason: FlowCode,
    },
    /// The socket is connected, and the rest of the header waits for room in its send buffer.
    WritingHeader {
        attempt: Attempt,
        rest: Vec<u8>,
    },
}

#[derive(Debug)]
struct Attempt {
    number: usize,
    socket: AppSocket,
    address: SocketAddr,
    /// True if this attempt has taken a place for its descriptor, beside the one of its flow.
    extra: bool,
}

#[derive(Debug)]
pub(crate) struct DialResult {
    pub(crate) flow: FlowId,
    /// The connected socket, registered in the poller under the flow's key, and its address.
    pub(crate) result: Result<(AppSocket, String), FlowCode>,
}

impl Dials {
    /// Creates the dials of a worker. All workers share `descriptors` and `memory`.
    pub(crate) fn new(descriptors: CommonShares, memory: DialMemory) -> Self {
        Self {
            pending: Slab::new(),
            by_flow: HashMap::new(),
            by_attempt: HashMap::new(),
            next_attempt: 0,
            shares: Shares::new(MAX, 1),
            descriptors,
            memory,
            timeouts: BTreeSet::new(),
        }
    }

    /// Handles a change of the network: what was learnt about addresses no longer counts.
    pub(crate) fn handle_network_change(&self) {
        self.memory.clear();
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

    /// Notes that the target of a dial whose addresses are being looked up takes datagrams.
    pub(crate) fn expect_datagrams(&mut self, flow: FlowId) {
        if let Some(&key) = self.by_flow.get(&flow) {
            self.pending[key].state = State::ResolvingForDatagrams;
        }
    }

    /// Cancels the dial of a flow that has ended, if it has one (PROTOCOL OPEN-12).
    pub(crate) fn cancel(&mut self, flow: FlowId) {
        if let Some(&key) = self.by_flow.get(&flow) {
            self.remove(key);
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
        let mut addresses = match result {
            Ok(addresses) => addresses,
            Err(code) => return Some(self.fail(key, code)),
        };
        if matches!(&self.pending[key].state, State::ResolvingForDatagrams) {
            return Some(self.connect_datagrams(poller, key, &addresses));
        }
        self.memory.sort(now, &mut addresses);
        let dial = &mut self.pending[key];
        dial.state = State::Racing {
            race: Race::new(addresses, now, dial.deadline),
            attempts: Vec::new(),
            reason: FlowCode::NameNotFound,
        };
        self.run(now, poller, key)
    }

    /// Binds a UDP socket for the first of the addresses that this host has a route to. Whether a program listens there
    /// shows later, if at all.
    fn connect_datagrams(
        &mut self,
        poller: &Poller,
        key: usize,
        addresses: &[SocketAddr],
    ) -> DialResult {
        let flow = self.remove(key);
        let mut result = Err(FlowCode::NameNotFound);
        for &address in addresses {
            let socket = DatagramSocket::connect(address).map_err(|error| code_of(&error));
            let socket = socket.map(|socket| AppSocket::Datagrams(Box::new(socket)));
            result = socket.and_then(|socket| {
                let added = poller.add_flow(socket.descriptor(), Key::Flow(flow));
                added.map_err(|_| FlowCode::Limit)?;
                Ok((socket, address.to_string()))
            });
            if result.is_ok() {
                break;
            }
        }
        DialResult { flow, result }
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
        let revoked = match &mut self.pending[key].state {
            State::Resolving | State::ResolvingForDatagrams => return None,
            State::WritingHeader { attempt, .. } => {
                let revoked = !permits(attempt.address.ip());
                return revoked.then(|| self.fail(key, FlowCode::Revoked));
            }
            State::Racing { race, reason, .. } => {
                let revoked = race.retain(now, |address| permits(address.ip()));
                if !revoked.is_empty() {
                    *reason = FlowCode::Revoked;
                }
                revoked
            }
        };
        for address in revoked {
            self.end_attempt(key, address);
        }
        self.run(now, poller, key)
    }

    /// Handles a socket that has connected, has failed, or has room. `header` makes the header for a target at an
    /// address; it returns `None` if that target gets none.
    pub(crate) fn handle_ready(
        &mut self,
        now: Instant,
        poller: &Poller,
        number: usize,
        header: impl FnOnce(FlowId, SocketAddr) -> Option<Vec<u8>>,
    ) -> Option<DialResult> {
        let key = *self.by_attempt.get(&number)?;
        let dial = self.pending.get_mut(key)?;
        let State::Racing {
            race,
            attempts,
            reason,
        } = &mut dial.state
        else {
            return self.write_header(poller, key);
        };
        let attempt = attempts.iter().find(|attempt| attempt.number == number)?;
        let address = attempt.address;
        if let Err(error) = check_connected(&attempt.socket) {
            *reason = code_of(&error);
            race.handle_failed(now, address);
            self.end_attempt(key, address);
            return self.run(now, poller, key);
        }
        self.memory.record(now, address, race.running());
        let rest = header(dial.flow, address).unwrap_or_default();
        self.win(key, address, rest);
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
            let ended = if self.pending[key].deadline <= now {
                Some(self.fail(key, FlowCode::DialTimeout))
            } else {
                self.run(now, poller, key)
            };
            if ended.is_some() {
                return ended;
            }
        }
    }

    /// Begins and ends attempts as the race demands. Returns the reason of the failure if no address is left.
    fn run(&mut self, now: Instant, poller: &Poller, key: usize) -> Option<DialResult> {
        while let State::Racing { race, reason, .. } = &mut self.pending[key].state {
            match race.poll(now) {
                Some(Step::Begin(address)) => self.begin(now, poller, key, address),
                Some(Step::GiveUp(address)) => {
                    *reason = FlowCode::DialTimeout;
                    self.end_attempt(key, address);
                }
                None if race.is_lost() => {
                    let reason = *reason;
                    return Some(self.fail(key, reason));
                }
                None => {
                    let at = race.next_timeout();
                    self.set_timeout(key, at);
                    return None;
                }
            }
        }
        None
    }

    /// Begins an attempt, if there is a descriptor for it.
    fn begin(&mut self, now: Instant, poller: &Poller, key: usize, address: SocketAddr) {
        let dial = &mut self.pending[key];
        let State::Racing {
            race,
            attempts,
            reason,
        } = &mut dial.state
        else {
            return;
        };
        let extra = attempts.iter().any(|attempt| !attempt.extra);
        if extra && !self.descriptors.take(&dial.holder) {
            return race.postpone(now, address);
        }
        let number = self.next_attempt;
        let socket = start_tcp(address).map_err(|error| code_of(&error));
        let socket = socket.and_then(|socket| {
            let added = poller.add_flow(socket.descriptor(), Key::Dial(number));
            added.map(|()| socket).map_err(|_| FlowCode::Limit)
        });
        match socket {
            Ok(socket) => {
                self.next_attempt += 1;
                self.by_attempt.insert(number, key);
                race.handle_begun(now, address);
                attempts.push(Attempt {
                    number,
                    socket,
                    address,
                    extra,
                });
            }
            Err(code) => {
                if extra {
                    self.descriptors.give_back(&dial.holder);
                }
                if extra && code == FlowCode::Limit {
                    return race.postpone(now, address);
                }
                *reason = code;
                race.handle_failed(now, address);
            }
        }
    }

    /// Closes the attempt to this address. A target that has just accepted sees a reset. If no target has accepted,
    /// nothing is sent.
    fn end_attempt(&mut self, key: usize, address: SocketAddr) {
        let dial = &mut self.pending[key];
        if let State::Racing { attempts, .. } = &mut dial.state
            && let Some(index) = attempts.iter().position(|it| it.address == address)
        {
            let attempt = attempts.remove(index);
            let holder = dial.holder.clone();
            self.close(&holder, attempt);
        }
    }

    fn close(&mut self, holder: &Holder, mut attempt: Attempt) {
        attempt.socket.abort();
        self.by_attempt.remove(&attempt.number);
        if attempt.extra {
            self.descriptors.give_back(holder);
        }
    }

    fn fail(&mut self, key: usize, reason: FlowCode) -> DialResult {
        let flow = self.remove(key);
        let result = Err(reason);
        DialResult { flow, result }
    }

    fn set_timeout(&mut self, key: usize, at: Instant) {
        let dial = &mut self.pending[key];
        self.timeouts.remove(&(dial.timeout, key));
        dial.timeout = at;
        self.timeouts.insert((at, key));
    }

    /// Handles a connected socket: all others are closed, and the remaining time of the dial is for the header. The
    /// socket keeps the descriptor of the flow.
    fn win(&mut self, key: usize, address: SocketAddr, rest: Vec<u8>) {
        let dial = &mut self.pending[key];
        let (deadline, holder) = (dial.deadline, dial.holder.clone());
        let State::Racing { attempts, .. } = &mut dial.state else {
            return;
        };
        let mut others = std::mem::take(attempts);
        let Some(index) = others.iter().position(|it| it.address == address) else {
            return;
        };
        let mut attempt = others.swap_remove(index);
        if std::mem::take(&mut attempt.extra) {
            self.descriptors.give_back(&holder);
        }
        dial.state = State::WritingHeader { attempt, rest };
        for other in others {
            self.close(&holder, other);
        }
        self.set_timeout(key, deadline);
    }

    /// Writes as much of the header as fits. The flow gets the socket once the socket has taken all of it.
    fn write_header(&mut self, poller: &Poller, key: usize) -> Option<DialResult> {
        let dial = self.pending.get_mut(key)?;
        let State::WritingHeader { attempt, rest } = &mut dial.state else {
            return None;
        };
        while !rest.is_empty() {
            match attempt.socket.write(&[IoSlice::new(rest)]) {
                Ok(0) => return Some(self.fail(key, FlowCode::Unreachable)),
                Ok(written) => drop(rest.drain(..written)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
                Err(error) => return Some(self.fail(key, code_of(&error))),
            }
        }
        let flow = dial.flow;
        let state = std::mem::replace(&mut dial.state, State::Resolving);
        let State::WritingHeader { attempt, .. } = state else {
            return None;
        };
        self.by_attempt.remove(&attempt.number);
        self.remove(key);
        let renamed = poller.rename_flow(attempt.socket.descriptor(), Key::Flow(flow));
        let result = match renamed {
            Ok(()) => Ok((attempt.socket, attempt.address.to_string())),
            Err(_) => Err(FlowCode::Internal),
        };
        Some(DialResult { flow, result })
    }

    /// Removes a dial, and closes its attempts. Returns its flow.
    fn remove(&mut self, key: usize) -> FlowId {
        let dial = self.pending.remove(key);
        let attempts = match dial.state {
            State::Resolving | State::ResolvingForDatagrams => Vec::new(),
            State::Racing { attempts, .. } => attempts,
            State::WritingHeader { attempt, .. } => vec![attempt],
        };
        for attempt in attempts {
            self.close(&dial.holder, attempt);
        }
        self.by_flow.remove(&dial.flow);
        self.timeouts.remove(&(dial.timeout, key));
        self.shares.give_back(&dial.holder);
        dial.flow
    }
}

/// Connects to a Unix socket, and writes the header, if any, before any other byte. Links in the path must not lead out
/// of the directory `below`, if there is one.
pub(crate) fn dial_unix(
    path: &str,
    below: Option<&str>,
    header: Option<Vec<u8>>,
) -> Result<AppSocket, FlowCode> {
    // With a full backlog a blocking connect would wait; a non-blocking one fails at once.
    let connect = || -> io::Result<AppSocket> {
        let path = SocketPath::existing(Path::new(path), below.map(Path::new))?;
        let socket = Socket::new(Domain::UNIX, Type::STREAM.nonblocking(), None)?;
        socket.connect(&SockAddr::unix(path.path())?)?;
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
    prepare(&socket)?;
    match socket.connect(&address.into()) {
        Err(error) if error.raw_os_error() != Some(Errno::INPROGRESS.raw_os_error()) => Err(error),
        Ok(()) | Err(_) => Ok(AppSocket::tcp(socket.into())),
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
        // XDEV: a link leads out of the directory of the client's rule.
        Some(Errno::ACCESS | Errno::PERM | Errno::XDEV) => FlowCode::Denied,
        _ => FlowCode::Unreachable,
    }
}

#[cfg(test)]
mod tests;
