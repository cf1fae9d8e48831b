//! A TUN device whose connections are carried: connects the user-space stack to the engine.
//!
//! Each connection through the device becomes a flow to its destination address. The application's SYN is answered once
//! the server has reached the target, and refused if the server cannot. DNS queries go to the chosen name server: see
//! [`crate::dns_queries`]. The stack is in this process ([`OwnStack`]) or in another one ([`Remote`]).

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::time::Instant;

use quictun_engine::{Client, FlowId};
use quictun_netstack::{Datagram, Event, StackFlowId};
use quictun_wire::target::Target;
use tracing::{debug, error, info, warn};

use crate::app_socket::AppSocket;
use crate::dns_queries::DnsQueries;
use crate::flow_source::{FlowEnd, FlowSource, FlowToOpen};
use crate::role::{ClientContext, WorkerPart};
use quictun_control::settings::Phrases;
use quictun_io::crash::Crash;
use quictun_io::poller::{Key, ReadyEvent};
use quictun_stackd::netstackd::{NetstackProcess, RemoteSocket};
use quictun_stackd::own_stack::OwnStack;
use quictun_stackd::stack_socket::StackSocket;
use quictun_stackd::tun_device;

/// Limit of rounds of sending, and of the work that follows from it, before datagrams are read again.
const ROUNDS: usize = 16;

#[expect(
    clippy::struct_excessive_bools,
    reason = "they are independent of one another"
)]
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
    /// A line was logged about the first refused datagram.
    has_refused_datagrams: bool,
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

    fn poll_datagram(&self) -> Option<Datagram> {
        match self {
            Self::Own(own) => own.shared.stack.borrow_mut().poll_datagram(),
            Self::Remote(remote) => remote.shared().poll_datagram(),
        }
    }

    fn send_datagram(&self, datagram: &Datagram) {
        match self {
            Self::Own(own) => own.shared.stack.borrow_mut().send_datagram(datagram),
            Self::Remote(remote) => remote.shared().send_datagram(datagram),
        }
    }

    /// Advances the stack. Returns whether it has more to move.
    fn flush(&mut self, now: Instant) -> io::Result<bool> {
        match self {
            Self::Own(own) => {
                own.shared.now.set(now);
                own.transmit(now).map(|()| false)
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
            has_refused_datagrams: false,
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

    fn handle_events(&mut self, cx: &mut ClientContext<'_>) -> bool {
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
                Event::DatagramRefused { client, target } => {
                    // An honest stack reports this once.
                    if std::mem::replace(&mut self.has_refused_datagrams, true) {
                        continue;
                    }
                    warn!(target: "quictun", { "Client-App-Addr" = %client, %target }, "a program sends UDP, which the tunnel does not carry: its datagrams are refused, and further ones without a line");
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
        let Some(queries) = &mut self.queries else {
            return any;
        };
        while let Some(asked) = self.stack.poll_datagram() {
            any = true;
            queries.ask(cx, asked);
        }
        while let Some(reply) = queries.poll_reply(cx) {
            any = true;
            self.stack.send_datagram(&reply);
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
                if let Err(cause) = own.take_frames(cx.now) {
                    self.lose(cx, &cause);
                }
            }
            TunStack::Remote(remote) => remote.handle_ready(),
        }
        self.handle_events(cx);
    }

    /// Sends the stack's packets. Returns whether the engine may have work to do afterwards.
    fn flush(&mut self, cx: &mut ClientContext<'_>) -> bool {
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
            cx.fail(*flow);
        }
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
        let Some(&id) = self.to_stack.get(&flow) else {
            return;
        };
        self.unanswered.remove(&flow);
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

    fn handle_closed(&mut self, _: &mut ClientContext<'_>, end: &FlowEnd<'_>) {
        let flow = end.summary.flow;
        self.unanswered.remove(&flow);
        if let Some(id) = self.to_stack.remove(&flow) {
            self.to_engine.remove(&id);
        }
        if let Some(queries) = &mut self.queries {
            queries.handle_closed(flow);
        }
    }
}
