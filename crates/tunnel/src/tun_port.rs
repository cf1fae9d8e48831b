//! A TUN device whose connections are carried: connects the user-space stack to the engine.
//!
//! Each connection through the device becomes a flow to its destination address. The application's SYN is answered once
//! the server has reached the target, and refused if the server cannot. Datagrams of a program to one target are a flow as
//! well, and an ICMP error answers them if it is refused. With a chosen name server, DNS queries go there: see
//! [`crate::dns_queries`]. The stack is in this process ([`OwnStack`]) or in another one ([`Remote`]).

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::time::Instant;

use quictun_engine::{Client, Ending, FlowId, FlowSummary};
use quictun_netstack::{Datagram, Event, StackFlowId};
use quictun_wire::target::Target;
use tracing::{debug, error, info, warn};

use crate::app_socket::AppSocket;
use crate::client_worker::datagram_table::{DatagramFate, DatagramTable};
use crate::datagram_socket::{DatagramSocket, DeviceStack};
use crate::dns_queries::DnsQueries;
use crate::flow_source::{FlowEnd, FlowSource, FlowToOpen};
use crate::rate_limited_warning::RateLimitedWarning;
use crate::role::{ClientContext, WorkerPart};
use quictun_control::settings::Phrases;
use quictun_io::crash::Crash;
use quictun_io::poller::{Key, ReadyEvent};
use quictun_stackd::netstackd::{NetstackProcess, RemoteSocket};
use quictun_stackd::own_stack::OwnStack;
use quictun_stackd::stack_socket::StackSocket;
use quictun_stackd::tun_device;

/// Bytes of datagrams taken from the stack in one turn: as many as the engine takes of one flow. The stack keeps the rest.
const DATAGRAM_BYTES: usize = 32 * 1024;

/// The same for an empty datagram, so that 64 short ones are taken in one turn.
const DATAGRAM_COST: usize = DATAGRAM_BYTES / 64;

/// Limit of rounds of sending, and of the work that follows from it, before datagrams are read again.
const ROUNDS: usize = 16;

pub(crate) struct TunPort {
    stack: TunStack,
    to_engine: BTreeMap<StackFlowId, FlowId>,
    to_stack: BTreeMap<FlowId, StackFlowId>,
    /// Flows whose target the server has not reached yet. Their applications have sent nothing.
    unanswered: BTreeSet<FlowId>,
    /// True if the device serves one command, which has ended when a drain begins.
    for_command: bool,
    /// True if the unanswered flows and all DNS queries were abandoned.
    gave_up: bool,
    queries: Option<DnsQueries>,
    /// The flows of datagrams, by program and target.
    datagrams: DatagramTable<(SocketAddr, SocketAddr)>,
    /// The lines about datagram flows that were refused or have failed.
    failures: RateLimitedWarning,
    /// Bytes of datagrams that were taken in this turn.
    taken_bytes: usize,
    gone: bool,
    phrases: Phrases,
}

pub(crate) enum TunStack {
    Own(OwnStack),
    Remote(NetstackProcess),
}

impl TunStack {
    /// Returns a descriptor that is readable when the stack has work to do.
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Own(own) => own.frames.wire.as_fd(),
            Self::Remote(remote) => remote.wakes().as_fd(),
        }
    }

    fn name(&self) -> &str {
        match self {
            Self::Own(own) => own.frames.wire.name(),
            Self::Remote(_) => "of another process",
        }
    }

    fn socket(&self, id: StackFlowId, client: SocketAddr) -> AppSocket {
        match self {
            Self::Own(own) => AppSocket::Stack(StackSocket::new(own.shared.clone(), id, client)),
            Self::Remote(remote) => {
                AppSocket::Remote(RemoteSocket::new(remote.shared().clone(), id, client))
            }
        }
    }

    fn next_timeout(&self) -> Option<Instant> {
        match self {
            Self::Own(own) => own.shared.stack.borrow().next_timeout(),
            Self::Remote(_) => None,
        }
    }

    fn poll_event(&self) -> Option<Event> {
        match self {
            Self::Own(own) => own.shared.stack.borrow_mut().poll_event(),
            Self::Remote(remote) => remote.shared().poll_event(),
        }
    }

    fn has_datagram(&self) -> bool {
        match self {
            Self::Own(own) => own.shared.stack.borrow().next_datagram_len().is_some(),
            Self::Remote(remote) => remote.shared().has_datagram(),
        }
    }

    fn poll_datagram(&self) -> Option<Datagram> {
        match self {
            Self::Own(own) => own.shared.stack.borrow_mut().poll_datagram(),
            Self::Remote(remote) => remote.shared().poll_datagram(),
        }
    }

    /// Returns the stack as the sockets of datagram flows have it.
    fn device(&self) -> DeviceStack {
        match self {
            Self::Own(own) => DeviceStack::Own(own.shared.clone()),
            Self::Remote(remote) => DeviceStack::Remote(remote.shared().clone()),
        }
    }

    /// Tells a program that none of its datagrams reach the target.
    fn refuse_datagram(&self, now: Instant, (client, target): (SocketAddr, SocketAddr)) {
        match self {
            Self::Own(own) => {
                let stack = &mut own.shared.stack.borrow_mut();
                stack.refuse_datagram(now, client, target);
            }
            Self::Remote(remote) => remote.shared().refuse_datagram(client, target),
        }
    }

    /// Advances the stack. Returns whether it has more to move.
    fn flush(&mut self, now: Instant) -> io::Result<bool> {
        match self {
            Self::Own(own) => {
                own.shared.now.set(now);
                own.transmit(now)
            }
            Self::Remote(remote) => remote.advance(),
        }
    }
}

impl TunPort {
    pub(crate) fn new(
        stack: TunStack,
        dns: Option<IpAddr>,
        for_command: bool,
        phrases: Phrases,
    ) -> io::Result<Self> {
        Ok(Self {
            stack,
            to_engine: BTreeMap::new(),
            to_stack: BTreeMap::new(),
            unanswered: BTreeSet::new(),
            for_command,
            gave_up: false,
            queries: dns.map(DnsQueries::new).transpose()?,
            datagrams: DatagramTable::default(),
            failures: RateLimitedWarning::default(),
            taken_bytes: 0,
            gone: false,
            phrases,
        })
    }

    /// Returns whether this serves a command none of whose connections waits for an answer.
    pub(crate) fn has_no_waiting_flow(&self) -> bool {
        self.for_command && self.unanswered.is_empty()
    }

    /// Returns whether [`WorkerPart::stop_accepting`] abandoned a flow that has now ended.
    pub(crate) fn has_given_up(&self, flow: FlowId) -> bool {
        let asks = |queries: &DnsQueries| queries.is_open(flow);
        self.gave_up && (self.unanswered.contains(&flow) || self.queries.as_ref().is_some_and(asks))
    }

    /// Returns whether the log leaves out the end of a flow. A browser tries HTTP/3 at each host, and a program whose
    /// datagrams are refused sends on, so one such flow in ten seconds has a line.
    pub(crate) fn leaves_out(&mut self, now: Instant, end: &FlowSummary) -> bool {
        self.datagrams.contains(end.flow)
            && end.ending != Ending::Finished
            && self.failures.count(now).is_none()
    }

    fn handle_events(&mut self, cx: &mut ClientContext<'_>) -> bool {
        if let TunStack::Remote(remote) = &self.stack {
            cx.engine
                .note_dropped_datagrams(remote.shared().take_dropped());
        }
        let mut any = false;
        while let Some(event) = self.stack.poll_event() {
            any = true;
            match event {
                Event::Offered {
                    flow,
                    client,
                    target,
                } => self.open(cx, flow, client, target),
                Event::Open(id) => self.ready(cx, id, true, true),
                Event::Readable(id) => self.ready(cx, id, true, false),
                Event::Writable(id) => {
                    if let TunStack::Own(own) = &self.stack {
                        own.finish_again(cx.now, id);
                    }
                    self.ready(cx, id, false, true);
                }
                Event::Ended { flow, ending } => {
                    debug!(target: "quictun", ?ending, "a connection through the device has ended");
                    if ending != quictun_netstack::FlowEnding::Finished
                        && let Some(&engine) = self.to_engine.get(&flow)
                    {
                        cx.fail(engine);
                    }
                }
            }
        }
        let mut ready = BTreeSet::new();
        while self.taken_bytes < DATAGRAM_BYTES
            && let Some(asked) = self.stack.poll_datagram()
        {
            any = true;
            self.taken_bytes += asked.payload.len().max(DATAGRAM_COST);
            match &mut self.queries {
                Some(queries) if asked.target.port() == tun_device::PORT => queries.ask(cx, asked),
                _ => ready.extend(self.take_datagram(cx, asked)),
            }
        }
        for flow in ready {
            cx.engine.handle_socket(cx.now, flow, true, false, false);
        }
        while let Some(queries) = &mut self.queries
            && let Some(reply) = queries.poll_reply(cx)
        {
            any = true;
            if !self.stack.device().send(reply) {
                cx.engine.note_dropped_datagrams(1);
            }
        }
        any
    }

    /// Takes a datagram of a program. Returns the flow that has it, if that exists already.
    fn take_datagram(&mut self, cx: &mut ClientContext<'_>, asked: Datagram) -> Option<FlowId> {
        let ends = (asked.client, asked.target);
        let token = || {
            let target = Target::parse(&format!("udp:{}", asked.target));
            target.ok().map(|target| target.to_string())
        };
        let device = self.stack.device();
        let socket = |inbox| Some(DatagramSocket::behind_device(ends, device, inbox));
        // The address of a program behind a device is meaningless to a target.
        let how = (token, self.phrases, None);
        match self
            .datagrams
            .take(cx, ends, asked.payload.into(), how, socket)
        {
            DatagramFate::Put(flow) => return Some(flow),
            DatagramFate::Begun(flow) => {
                self.unanswered.insert(flow);
            }
            DatagramFate::Refused => self.stack.refuse_datagram(cx.now, ends),
            DatagramFate::Dropped => {}
        }
        None
    }

    /// Moves what the stack and the engine have for each other, with a limit. Returns whether anything has moved.
    fn exchange(&mut self, cx: &mut ClientContext<'_>) -> bool {
        let mut any = false;
        for _ in 0..ROUNDS {
            if self.gone {
                break;
            }
            match self.stack.flush(cx.now) {
                Ok(more) => any |= more,
                Err(cause) => {
                    self.lose(cx, &cause);
                    return true;
                }
            }
            if !self.handle_events(cx) {
                return any;
            }
            any = true;
        }
        any
    }

    fn open(
        &mut self,
        cx: &mut ClientContext<'_>,
        id: StackFlowId,
        client: SocketAddr,
        target: SocketAddr,
    ) {
        let socket = self.stack.socket(id, client);
        let target = match &self.queries {
            Some(queries) if target == tun_device::STAND_IN => queries.resolver(),
            _ => target,
        };
        // The text is parsed and formatted, so that a target has one text wherever it comes from.
        let token = match Target::parse(&format!("tcp:{target}")) {
            Ok(target) => target.to_string(),
            Err(cause) => {
                warn!(target: "quictun", %target, %cause, "a connection was refused");
                return;
            }
        };
        // An address in the device's network is meaningless to a target.
        let Some(flow) = FlowToOpen::new(socket, token).open(cx, self.phrases, None) else {
            return;
        };
        self.to_engine.insert(id, flow);
        self.to_stack.insert(flow, id);
        self.unanswered.insert(flow);
    }

    fn ready(
        &mut self,
        cx: &mut ClientContext<'_>,
        id: StackFlowId,
        readable: bool,
        writable: bool,
    ) {
        if let Some(&flow) = self.to_engine.get(&id) {
            cx.engine
                .handle_socket(cx.now, flow, readable, writable, false);
        }
    }

    fn lose(&mut self, cx: &mut ClientContext<'_>, cause: &io::Error) {
        if std::mem::replace(&mut self.gone, true) {
            return;
        }
        error!(target: "quictun", device = self.stack.name(), %cause, "the device is gone: its connections are reset");
        if let Err(cause) = cx.poller.remove(self.stack.as_fd()) {
            debug!(target: "quictun", %cause, "the device was not watched");
        }
        for flow in self.to_stack.keys() {
            cx.fail(*flow);
        }
        self.datagrams.end_all(cx);
    }
}

impl WorkerPart for TunPort {
    type Role = Client;

    fn start(&mut self, cx: &mut ClientContext<'_>) -> io::Result<()> {
        info!(target: "quictun", device = self.stack.name(), "carrying connections through the device");
        cx.poller.add_input(self.stack.as_fd(), Key::Tun)
    }

    fn handle_ready(&mut self, cx: &mut ClientContext<'_>, ready: ReadyEvent) {
        if ready.key != Key::Tun {
            return;
        }
        match &mut self.stack {
            TunStack::Own(own) => {
                own.shared.now.set(cx.now);
                // Datagrams that the engine sends count there.
                let dropped = own.dropped_datagrams();
                let taken = own.take_frames(cx.now);
                cx.engine
                    .note_dropped_datagrams(own.dropped_datagrams() - dropped);
                if let Err(cause) = taken {
                    self.lose(cx, &cause);
                }
            }
            TunStack::Remote(remote) => remote.handle_ready(),
        }
        self.handle_events(cx);
    }

    /// Sends the stack's packets. Returns whether the engine may have work to do afterwards.
    fn flush(&mut self, cx: &mut ClientContext<'_>) -> bool {
        let any = self.exchange(cx);
        self.taken_bytes = 0;
        any || !self.gone && self.stack.has_datagram()
    }

    fn next_timeout(&self) -> Option<Instant> {
        let queries = self.queries.as_ref();
        let queries = queries.and_then(DnsQueries::next_timeout);
        let both = [queries, self.stack.next_timeout()];
        both.into_iter().flatten().min()
    }

    fn handle_timeout(&mut self, cx: &mut ClientContext<'_>) {
        if let TunStack::Own(own) = &self.stack {
            own.shared.now.set(cx.now);
            own.shared.stack.borrow_mut().handle_timeout(cx.now);
        }
        if let Some(queries) = &mut self.queries {
            queries.handle_timeout(cx);
        }
        self.handle_events(cx);
    }

    /// Refuses connections without an answer if the device serves a command. The command has ended already, so that a
    /// drain waits only for the bytes that it has sent. The programs of a host keep running and wait for their answers.
    fn stop_accepting(&mut self, cx: &mut ClientContext<'_>) {
        if !self.for_command {
            return;
        }
        self.gave_up = true;
        for flow in &self.unanswered {
            if !self.datagrams.contains(*flow) {
                cx.fail(*flow);
            }
        }
        // The end of a flow sends the command's last datagrams.
        self.datagrams.end_all(cx);
        if let Some(queries) = &self.queries {
            queries.give_up(cx);
        }
    }

    /// Returns the failure if the other process is gone: this process is then useless, and another pair takes over the
    /// device.
    fn failure(&self) -> Option<io::Error> {
        (self.gone && matches!(self.stack, TunStack::Remote(_))).then(|| Crash::Netstack.into())
    }

    /// Returns whether connections are left. Data that the tunnel has delivered, and the ends of flows, may still be on
    /// the way.
    fn is_busy(&self) -> bool {
        !self.gone
            && match &self.stack {
                TunStack::Own(own) => own.shared.stack.borrow().usage().flows > 0,
                TunStack::Remote(remote) => remote.shared().is_busy(),
            }
    }
}

impl FlowSource for TunPort {
    /// Answers the application of a flow whose target the server has reached.
    fn handle_established(&mut self, cx: &mut ClientContext<'_>, flow: FlowId) {
        if let Some(queries) = &self.queries {
            queries.handle_established(cx, flow);
        }
        self.unanswered.remove(&flow);
        let Some(&id) = self.to_stack.get(&flow) else {
            return;
        };
        match &self.stack {
            TunStack::Remote(remote) => remote.shared().accept(id),
            TunStack::Own(own) => {
                let accepted = own.shared.stack.borrow_mut().accept(cx.now, id);
                if let Err(cause) = accepted {
                    // The application has given up, or no buffers are left.
                    debug!(target: "quictun", %cause, "a connection could not be accepted");
                    cx.fail(flow);
                }
            }
        }
    }

    fn handle_closed(&mut self, cx: &mut ClientContext<'_>, end: &FlowEnd<'_>) {
        let (flow, ending) = (end.summary.flow, end.summary.ending);
        self.unanswered.remove(&flow);
        if let Some(ends) = self.datagrams.handle_closed(cx.now, flow, ending)
            && ending != Ending::Finished
        {
            self.stack.refuse_datagram(cx.now, ends);
        }
        if let Some(id) = self.to_stack.remove(&flow) {
            self.to_engine.remove(&id);
        }
        if let Some(queries) = &mut self.queries {
            queries.handle_closed(flow);
        }
    }
}
