//! A worker: one thread, one epoll loop, one UDP socket, one engine.
//!
//! Each turn of the loop waits, passes input to the engine (datagrams, socket readiness, messages, the time), sends its
//! output, and handles its events. A [`WorkerRole`] contains the differences between client and server.

use std::io;
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use quictun_engine::Engine;
use quictun_engine::report::RestartCost;
use tracing::{debug, error, info, warn};

use crate::app_socket::AppSocket;
use crate::handover::{HandoverOrder, Verdict};
use crate::mailbox::{Inbox, InboxItem, Mailbox, Message};
use crate::role::{WorkerContext, WorkerPart, WorkerRole};
use quictun_control::snapshot::{Detail, SnapshotRequest, WorkerSnapshot};
use quictun_io::EnginePort;
use quictun_io::poller::{Key, Poller, ReadyEvent};
use quictun_io::udp_port::{UdpPort, other_worker};

/// Interval at which a worker looks whether the flows of other workers have settled.
const SETTLING_CHECK: Duration = Duration::from_millis(5);

/// Delay of a turn that counts as a pause of the process. Turns take milliseconds, so a busy worker is never that late.
const PAUSE: Duration = Duration::from_secs(1);

pub(crate) struct WorkerParts<R: WorkerPart> {
    pub(crate) index: usize,
    pub(crate) engine: Engine<AppSocket, R::Role>,
    pub(crate) udp: UdpPort,
    pub(crate) inbox: Inbox,
    pub(crate) siblings: Vec<Mailbox>,
    pub(crate) role: R,
}

#[expect(clippy::struct_excessive_bools, reason = "independent of each other")]
struct Worker<R: WorkerPart> {
    index: usize,
    port: EnginePort<AppSocket, R::Role>,
    inbox: Inbox,
    siblings: Vec<Mailbox>,
    role: R,
    poller: Poller,
    /// True if the poller watches the UDP socket for room to send.
    wants_room: bool,
    draining: bool,
    closing: bool,
    /// Another process asks for the worker's flows. The worker looks at the order again at this time.
    order: Option<(HandoverOrder, Instant)>,
    /// The flows have settled, as the order knows.
    settled: bool,
    /// Another process has the worker's flows.
    released: bool,
    /// The time at which the connections whose flows were detached for another process are closed.
    leaves_at: Option<Instant>,
}

pub(crate) fn run<R: WorkerRole>(parts: WorkerParts<R>) -> io::Result<()> {
    let mut worker = Worker::new(parts)?;
    worker.with_role(Instant::now(), WorkerPart::start)?;
    worker.turn_until_closed()
}

impl<R: WorkerRole> Worker<R> {
    fn new(parts: WorkerParts<R>) -> io::Result<Self> {
        let poller = Poller::new()?;
        poller.add_input(&parts.udp, Key::Udp)?;
        poller.add_input(&parts.inbox, Key::Wake)?;
        Ok(Self {
            index: parts.index,
            port: EnginePort::new(parts.engine, parts.udp),
            inbox: parts.inbox,
            siblings: parts.siblings,
            role: parts.role,
            poller,
            wants_room: false,
            draining: false,
            closing: false,
            order: None,
            settled: false,
            released: false,
            leaves_at: None,
        })
    }

    fn turn_until_closed(&mut self) -> io::Result<()> {
        let mut ready = Vec::new();
        // The engine may have output before any input.
        let mut more = true;
        let mut turn = Instant::now();
        loop {
            let before = Instant::now();
            let until = if more {
                Some(turn)
            } else {
                self.next_timeout()
            };
            let plan = self.port.wait_plan(before);
            self.poller.wait(until, plan, &mut ready)?;
            let now = Instant::now();
            self.port.note_wait(now.saturating_duration_since(before));
            let due = until.map(|until| until.max(turn));
            turn = now;
            self.take_input(&ready, due, now);
            let now = Instant::now();
            if self.next_timeout().is_some_and(|at| at <= now) {
                self.port.engine.handle_timeout(now);
                self.with_role(now, WorkerPart::handle_timeout);
            }
            more = self.transmit();
            more |= self.handle_events(now);
            more |= self.with_role(now, WorkerPart::flush);
            self.hand_over_if_settled();
            self.leave_if_due();
            if self.released {
                return Ok(());
            }
            // A draining worker ends anyway, and its other flows may still end in good order.
            if !self.draining
                && let Some(error) = self.role.failure()
            {
                self.close();
                return Err(error);
            }
            if !self.draining && self.role.is_over() {
                self.draining = true;
                self.port.engine.drain();
            }
            if self.draining && !self.role.is_busy() && self.port.engine.is_drained() {
                self.closing = true;
            }
            if self.closing {
                self.close();
                return Ok(());
            }
        }
    }

    /// Handles everything that is `ready`. Then reports a pause if the turn began at `now`, much later than it was
    /// `due`. What has arrived meanwhile comes first: it may be the answer of a peer that seems silent.
    fn take_input(&mut self, ready: &[ReadyEvent], due: Option<Instant>, now: Instant) {
        self.handle_all(ready);
        let late = |due: &Instant| now.saturating_duration_since(*due) >= PAUSE;
        if let Some(since) = due.filter(late) {
            self.with_role(Instant::now(), |role, cx| role.handle_pause(cx, since));
        }
    }

    fn next_timeout(&self) -> Option<Instant> {
        let order = self.order.as_ref().map(|(_, again)| *again);
        let all = [
            self.port.engine.next_timeout(),
            self.role.next_timeout(),
            order,
            self.leaves_at,
        ];
        all.into_iter().flatten().min()
    }

    fn handle_all(&mut self, ready: &[ReadyEvent]) {
        for event in ready {
            let now = Instant::now();
            match event.key {
                Key::Udp => self.handle_udp(*event),
                Key::Wake => self.handle_messages(),
                Key::Flow(flow) => self.port.engine.handle_socket(
                    now,
                    flow,
                    event.readable,
                    event.writable,
                    event.failed,
                ),
                Key::Listener(_)
                | Key::Dial(_)
                | Key::Asking(_)
                | Key::Relay(_)
                | Key::Lifeline(_)
                | Key::Tun
                | Key::CarrierListener(_)
                | Key::Carrier(_) => {
                    self.with_role(now, |role, cx| role.handle_ready(cx, *event));
                }
            }
        }
    }

    fn handle_udp(&mut self, ready: ReadyEvent) {
        if ready.writable {
            self.port.flush_blocked();
            self.watch_for_room();
        }
        if !ready.readable && !ready.failed {
            return;
        }
        let (me, siblings) = (self.index, &self.siblings);
        self.port.receive(|datagram| {
            let Some(other) = other_worker(&datagram.data, me, siblings.len()) else {
                return Some(datagram);
            };
            // The kernel chose the worker by address, but the connection id is authoritative. A full mailbox drops the
            // datagram, as a full socket buffer would.
            let _lost = siblings[other].hand_over(datagram);
            None
        });
    }

    fn handle_messages(&mut self) {
        self.inbox.begin_turn();
        while let Some(mail) = self.inbox.receive() {
            let now = Instant::now();
            match mail {
                InboxItem::Datagram(datagram) => self.port.handle_datagram(now, datagram),
                InboxItem::Snapshot(request) => self.answer(request),
                InboxItem::Carrier(tcp) => {
                    self.with_role(now, |role, cx| role.handle_carrier(cx, tcp));
                }
                InboxItem::Message(Message::Drain) => {
                    self.draining = true;
                    self.port.engine.drain();
                    self.with_role(now, WorkerPart::stop_accepting);
                }
                InboxItem::Message(Message::Close) => self.closing = true,
                InboxItem::Message(Message::HandOver(order)) => {
                    let until = order.settles_until();
                    self.with_role(now, |role, cx| role.prepare_hand_over(cx, until));
                    (self.order, self.settled) = (Some((*order, now)), false);
                }
                InboxItem::Message(message) => {
                    if let Message::Rules(update) = &message
                        && let Some(transport) = &update.transport
                    {
                        self.port.engine.set_transport(
                            transport.congestion,
                            transport.idle_timeout,
                            transport.keep_alive,
                        );
                        let engine = &mut self.port.engine;
                        engine.set_datagram_idle(transport.datagram_idle);
                    }
                    self.with_role(now, |role, cx| role.handle_message(cx, message));
                }
            }
        }
    }

    /// Sends the engine's output. Returns `true` if there is more.
    fn transmit(&mut self) -> bool {
        let more = self.port.transmit();
        if self.port.has_refused_segments() {
            info!(target: "quictun", "UDP segmentation offload failed on this path: sending without");
        }
        self.watch_for_room();
        more
    }

    /// Makes the poller report when there is room for the blocked batch.
    fn watch_for_room(&mut self) {
        let blocked = self.port.is_blocked();
        if std::mem::replace(&mut self.wants_room, blocked) == blocked {
            return;
        }
        if let Err(cause) = self.poller.set_output(&self.port.udp, Key::Udp, blocked) {
            error!(target: "quictun", %cause, "cannot watch the UDP socket");
            self.closing = true;
        }
    }

    /// Handles the engine's events. Returns `true` if they may have given the engine something to send.
    fn handle_events(&mut self, now: Instant) -> bool {
        let events: Vec<_> = std::iter::from_fn(|| self.port.engine.poll_event()).collect();
        let any = !events.is_empty();
        for event in events {
            self.with_role(now, |role, cx| role.handle_event(cx, event));
        }
        any
    }

    fn answer(&mut self, request: SnapshotRequest) {
        let engine = &self.port.engine;
        let flows = match request.detail {
            Detail::Flows => engine.flow_reports(),
            Detail::Counters => Vec::new(),
        };
        let mut snapshot = WorkerSnapshot {
            worker: self.index,
            taken: Instant::now(),
            flows,
            connections: engine.connection_reports(),
            bonds: engine.bond_reports(),
            servers: Vec::new(),
            totals: engine.totals(),
            clients: Vec::new(),
            restart_cost: engine.restart_cost(),
            udp: self.port.udp.report(),
        };
        R::add_reports(engine, &mut snapshot);
        // The requester may have given up.
        if request.reply.send(snapshot).is_err() {
            debug!(target: "quictun", "snapshot dropped: its requester has given up");
        }
    }

    fn close(&mut self) {
        let now = Instant::now();
        let flows = self.port.engine.unconfirmed();
        if flows > 0 {
            // PROTOCOL CLOSE-13.
            warn!(target: "quictun", flows, "the other side has not confirmed that all data of these flows has arrived, although they have ended on this side");
            self.role.handle_unconfirmed();
        }
        self.port.engine.close(now);
        self.port.forget_blocked();
        while self.transmit() {}
        self.handle_events(now);
        self.with_role(now, WorkerPart::flush);
    }

    /// Hands the flows over if another process asks for them, and the flows of all workers have settled.
    fn hand_over_if_settled(&mut self) {
        let Some((order, again)) = self.order.take() else {
            return;
        };
        let now = Instant::now();
        if !self.settled && self.with_role(now, |role, cx| role.has_settled(cx)) {
            self.settled = true;
            order.note_settled();
        }
        if order.is_due(now) {
            return self.hand_over(order);
        }
        let again = if again <= now {
            now + SETTLING_CHECK
        } else {
            again
        };
        self.order = Some((order, again));
    }

    /// Hands the flows over to another process, and waits until it has taken them, or has not. Nothing moves meanwhile:
    /// what arrives waits in the sockets, which both processes have.
    fn hand_over(&mut self, order: HandoverOrder) {
        if order.is_over() {
            return;
        }
        let now = Instant::now();
        let RestartCost {
            continuing,
            without_bond,
            half_reset,
            unanswered,
            own_socket,
        } = self.port.engine.restart_cost();
        info!(target: "quictun", worker = self.index, continuing, without_bond, half_reset, unanswered, own_socket, "flows that can continue in the other process, and flows that it will reset");
        self.port.engine.detach_all(now);
        self.handle_events(now);
        self.with_role(now, WorkerPart::flush);
        let handed = self.with_role(now, |role, cx| role.hand_over(cx));
        let sockets: Vec<_> = handed
            .iter()
            .flat_map(|(_, flows)| flows)
            .filter_map(|&flow| self.port.engine.socket(flow)?.descriptor())
            .collect();
        let udp = self.role.hands_over_udp().then(|| self.port.udp.as_fd());
        let sent = order.send_sockets(self.index, udp, &sockets);
        let (bonds, ids): (Vec<_>, Vec<_>) = handed.into_iter().unzip();
        let verdict = order.answer(self.index, sent.map(|()| bonds));
        let now = Instant::now();
        self.leaves_at = Some(now + self.role.leaving_time());
        if verdict == Verdict::Released {
            self.with_role(now, WorkerRole::release);
            self.port.engine.close_rest(now, &ids.concat());
            self.released = true;
            while self.transmit() {}
            self.pause_until_leaving();
        }
    }

    /// Closes the connections whose flows were detached, once the peers have had time to move the flows away from them.
    /// Without such a time this is at once, but not before the verdict: clients dial once they read that their connection
    /// has ended, and no process would answer.
    fn leave_if_due(&mut self) {
        let now = Instant::now();
        if self.leaves_at.take_if(|at| *at <= now).is_none() {
            return;
        }
        self.port.engine.close_detached(now);
        while self.transmit() {}
        self.handle_events(now);
        self.with_role(now, WorkerPart::flush);
    }

    fn pause_until_leaving(&mut self) {
        let until = self.leaves_at.unwrap_or_else(Instant::now);
        if let Err(cause) = quictun_sys::pause_until(until) {
            debug!(target: "quictun", %cause, "connections are closed before their flows have moved");
        }
        self.leaves_at = Some(Instant::now());
    }

    fn with_role<T>(
        &mut self,
        now: Instant,
        act: impl FnOnce(&mut R, &mut WorkerContext<'_, R::Role>) -> T,
    ) -> T {
        let mut cx = WorkerContext {
            now,
            engine: &mut self.port.engine,
            poller: &self.poller,
            udp: &self.port.udp,
        };
        act(&mut self.role, &mut cx)
    }
}

#[cfg(test)]
mod tests;
