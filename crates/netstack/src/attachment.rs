//! Attaches a socket to a flow, exchanges it for one with other buffers, and detaches it.
//!
//! While nothing is under way, a TCP connection is only a few numbers: the next sequence number of either side, the
//! peer's window, and the options of both SYNs. A simulated handshake, which only the socket sees, puts a new socket
//! into that state. From then on, the stack translates the sequence numbers that the socket has chosen.

use std::time::Instant;

use smoltcp::socket::tcp::State;
use smoltcp::wire::IpListenEndpoint;

use crate::craft::{EmptySegment, ShortFrame};
use crate::event::{Event, FlowEnding};
use crate::flow::{Flow, FlowState};
use crate::interface::SharedInterface;
use crate::segment::{ACK, FIN, SYN, Segment};
use crate::socket_pool::{BufferSize, PooledSocket};
use crate::stack::Stack;

impl Flow {
    /// Returns whether writes must wait until the flow has its large buffers. The exchange needs a moment in which
    /// nothing is under way. If the user does not read, that moment may never come, so writes do not wait then.
    pub(crate) fn is_held(&self) -> bool {
        let FlowState::Awake(socket) = &self.state else {
            return false;
        };
        self.outgrown && self.size == BufferSize::Small && socket.tcp().recv_queue() == 0
    }
}

impl Stack {
    pub(crate) fn admit(&mut self, now: Instant, index: usize) -> bool {
        let Some(mut socket) = self.take_socket(now, BufferSize::Small) else {
            return false;
        };
        let flow = &mut self.flows[index];
        listen(&mut self.interface, now, &mut socket, flow, 1);
        flow.size = BufferSize::Small;
        flow.heard = now;
        flow.used = now;
        flow.state = FlowState::Awake(socket);
        self.mark(index);
        true
    }

    pub(crate) fn wake(&mut self, now: Instant, index: usize) -> bool {
        let size = self.flows[index].size;
        // The application may still rely on the larger window that was announced, but TCP works with less, too.
        let socket = self.take_socket(now, size);
        let Some(socket) = socket.or_else(|| self.take_socket(now, BufferSize::Small)) else {
            return false;
        };
        self.install(now, index, socket, false)
    }

    pub(crate) fn sleep(&mut self, index: usize) {
        let flow = &mut self.flows[index];
        let state = std::mem::replace(&mut flow.state, FlowState::Asleep);
        flow.outgrown = false;
        self.timers.set(index, &mut flow.alarm, None);
        self.counters.slept += 1;
        if let FlowState::Awake(socket) = state {
            self.give_back(socket);
        }
    }

    /// Exchanges small buffers for large ones if nothing is under way.
    pub(crate) fn grow(&mut self, now: Instant, index: usize) {
        let FlowState::Awake(socket) = &self.flows[index].state else {
            return;
        };
        let tcp = socket.tcp();
        let half_closed = tcp.state() == State::CloseWait;
        let still = tcp.send_queue() == 0 && tcp.recv_queue() == 0;
        if !still || !(half_closed || tcp.state() == State::Established) {
            return;
        }
        let Some(large) = self.take_socket(now, BufferSize::Large) else {
            // The flow works with small buffers, too.
            self.flows[index].outgrown = false;
            return;
        };
        // `take_socket` may have put another flow to sleep, but this flow still has its socket.
        let state = std::mem::replace(&mut self.flows[index].state, FlowState::Asleep);
        if let FlowState::Awake(small) = state {
            self.give_back(small);
        }
        if self.install(now, index, large, half_closed) {
            self.counters.grown += 1;
            let window = self.pool.window(BufferSize::Large);
            let reply = self.flows[index].empty_segment(ACK, window);
            self.reply(reply);
        }
    }

    fn install(
        &mut self,
        now: Instant,
        index: usize,
        mut socket: Box<PooledSocket>,
        half_closed: bool,
    ) -> bool {
        let flow = &mut self.flows[index];
        let size = socket.size;
        let reached = simulate_handshake(&mut self.interface, now, &mut socket, flow, half_closed);
        flow.size = size;
        flow.used = now;
        flow.taken = 0;
        flow.state = FlowState::Awake(socket);
        if !reached {
            debug_assert!(false, "smoltcp did not complete the handshake");
            self.end(index, FlowEnding::Reset, true);
            return false;
        }
        self.mark(index);
        true
    }

    /// Takes a socket from the pool or, if there is none, from a flow that can spare its own.
    fn take_socket(&mut self, now: Instant, size: BufferSize) -> Option<Box<PooledSocket>> {
        let free = self.pool.take(size);
        if free.is_some() {
            return free;
        }
        for _ in 0..SEARCH.min(self.flows.capacity()) {
            let index = self.clock_hand;
            self.clock_hand = (index + 1) % self.flows.capacity();
            let Some(flow) = self.flows.get(index) else {
                continue;
            };
            // A flow that has something to send or was just busy would need its socket again at once.
            let spare = matches!(&flow.state, FlowState::Awake(socket) if socket.is_quiet())
                && !flow.dirty
                && now > flow.used + self.config.idle_after / 16;
            if spare {
                self.sleep(index);
                let freed = self.pool.take(size);
                if freed.is_some() {
                    return freed;
                }
            }
        }
        None
    }

    /// Returns a socket to the pool, and notifies a flow that waits for one.
    pub(crate) fn give_back(&mut self, socket: Box<PooledSocket>) {
        self.pool.put(socket);
        while let Some(id) = self.starved.pop_front() {
            if let Ok(index) = self.find(id)
                && std::mem::take(&mut self.flows[index].wants_room)
            {
                self.events.push_back(Event::Writable(id));
                break;
            }
        }
    }
}

/// Passes a SYN like the flow's to a socket, whose answer is not sent yet. The SYN's sequence number precedes the next
/// one by `before`.
fn listen(
    interface: &mut SharedInterface,
    now: Instant,
    socket: &mut PooledSocket,
    flow: &Flow,
    before: u32,
) {
    let endpoint = IpListenEndpoint {
        addr: Some(flow.target.ip().into()),
        port: flow.target.port(),
    };
    let listening = socket.tcp_mut().listen(endpoint);
    debug_assert!(
        listening.is_ok(),
        "a free socket must be able to listen on a port"
    );
    let syn = EmptySegment {
        seq: flow.wire.receive_next.wrapping_sub(before),
        flags: SYN,
        options: flow.wire.peer,
        ..flow.client_acknowledgement()
    };
    interface.ingress(now, socket, syn.frame().packet(), &mut []);
}

/// Takes a socket through a handshake with the flow's numbers, and through the application's FIN if it has arrived.
fn simulate_handshake(
    interface: &mut SharedInterface,
    now: Instant,
    socket: &mut PooledSocket,
    flow: &mut Flow,
    half_closed: bool,
) -> bool {
    let fin = u32::from(half_closed);
    listen(interface, now, socket, flow, 1 + fin);
    let mut scratch = [0; ShortFrame::CAPACITY];
    let sent = interface.egress(now, socket, &mut scratch);
    let Ok(answer) = Segment::parse(&scratch[..sent]) else {
        return false;
    };
    let begins = answer.seq.wrapping_add(1);
    flow.wire.rebase(begins);
    let ack = EmptySegment {
        seq: flow.wire.receive_next.wrapping_sub(fin),
        ack: begins,
        flags: if half_closed { ACK | FIN } else { ACK },
        ..flow.client_acknowledgement()
    };
    interface.ingress(now, socket, ack.frame().packet(), &mut scratch);
    let wanted = if half_closed {
        State::CloseWait
    } else {
        State::Established
    };
    socket.tcp().state() == wanted
}

/// Largest number of flows to examine for one that can spare its socket; chosen arbitrarily, to bound the cost of a
/// SYN.
const SEARCH: usize = 64;
