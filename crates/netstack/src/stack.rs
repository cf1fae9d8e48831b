//! The stack itself: received frames, frames to send, deadlines and events.

use std::collections::VecDeque;
use std::time::Instant;

use fxhash::{FxBuildHasher, FxHashMap};
use slab::Slab;

use crate::config::{Config, ConfigError};
use crate::counters::Counters;
use crate::craft::ShortFrame;
use crate::datagram::DatagramQueues;
use crate::event::{Event, FlowEnding, FlowError, StackFlowId};
use crate::flow::{Flow, FlowState, FourTuple};
use crate::interface::SharedInterface;
use crate::offload::FRAME_MAX;
use crate::socket_pool::SocketPool;
use crate::timers::Timers;

/// A TCP/IP stack that answers for every address and port. The crate documentation explains its use.
#[derive(Debug)]
pub struct Stack {
    pub(crate) config: Config,
    pub(crate) interface: SharedInterface,
    pub(crate) flows: Slab<Flow>,
    pub(crate) by_tuple: FxHashMap<FourTuple, usize>,
    /// Number of flows whose handshake is not complete.
    pub(crate) opening: usize,
    pub(crate) pool: SocketPool,
    /// Flows that wait for a socket in order to be written to.
    pub(crate) starved: VecDeque<StackFlowId>,
    /// Index at which the search for a flow that can spare its socket continues.
    pub(crate) clock_hand: usize,
    pub(crate) timers: Timers,
    /// Flows that may have something to send.
    dirty: VecDeque<usize>,
    /// Short frames that are sent before all others.
    replies: VecDeque<ShortFrame>,
    pub(crate) datagrams: DatagramQueues,
    pub(crate) events: VecDeque<Event>,
    pub(crate) counters: Counters,
    generation: u32,
}

/// The resources that a stack uses at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StackUsage {
    /// Number of flows, in whatever state.
    pub flows: usize,
    /// Number of flows whose handshake is not complete.
    pub opening: usize,
    /// Number of bytes in buffers, including those of free sockets.
    pub buffer_bytes: usize,
}

impl Stack {
    /// Creates a stack. Its sequence numbers are derived from `seed`, which must not be guessable.
    pub fn new(config: Config, seed: u64, now: Instant) -> Result<Self, ConfigError> {
        config.check()?;
        Ok(Self {
            interface: SharedInterface::new(&config, seed, now),
            flows: Slab::new(),
            by_tuple: FxHashMap::with_hasher(FxBuildHasher),
            opening: 0,
            pool: SocketPool::new(config.window, config.memory),
            starved: VecDeque::new(),
            clock_hand: 0,
            timers: Timers::default(),
            dirty: VecDeque::new(),
            replies: VecDeque::new(),
            datagrams: DatagramQueues::default(),
            events: VecDeque::new(),
            counters: Counters::default(),
            generation: 0,
            config,
        })
    }

    /// Handles a frame from the device, which is translated in place.
    ///
    /// Every frame, whatever it contains, is used, answered, or refused and counted.
    pub fn handle_frame(&mut self, now: Instant, frame: &mut [u8]) {
        self.counters.received += 1;
        if let Err(refusal) = self.inbound(now, frame) {
            self.counters.refuse(refusal);
        }
        let flows = &self.flows;
        let alarm = |index| flows.get(index).map(|flow| flow.alarm);
        self.timers.remove_outdated(flows.len(), alarm);
    }

    /// Writes the next frame for the device into `frame` and returns its length.
    ///
    /// Call it after every other operation, until it returns `None`.
    pub fn poll_transmit(&mut self, now: Instant, frame: &mut [u8; FRAME_MAX]) -> Option<usize> {
        if let Some(reply) = self.replies.pop_front() {
            let length = reply.frame().len();
            frame[..length].copy_from_slice(reply.frame());
            self.counters.sent += 1;
            return Some(length);
        }
        if let Some(length) = self.datagrams.poll_transmit(frame) {
            self.counters.sent += 1;
            return Some(length);
        }
        while let Some(index) = self.dirty.pop_front() {
            let Some(flow) = self.flows.get_mut(index) else {
                continue;
            };
            if !std::mem::take(&mut flow.dirty) {
                continue;
            }
            if let Some(length) = self.outbound(now, index, frame) {
                // A flow with more to send waits until the others have had their turn.
                self.mark(index);
                self.counters.sent += 1;
                return Some(length);
            }
            self.settle(now, index);
        }
        None
    }

    /// Handles deadlines that have passed. Call it at [`Self::next_timeout`]; calling it earlier does no harm.
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some(entry) = self.timers.pop(now) {
            let Some(flow) = self.flows.get_mut(entry.index) else {
                continue;
            };
            if self.timers.is_due(&mut flow.alarm, entry, now) {
                self.flow_timeout(now, entry.index);
            }
        }
    }

    /// Returns the latest time for the next call of [`Self::handle_timeout`].
    pub fn next_timeout(&self) -> Option<Instant> {
        self.timers.next()
    }

    /// Returns the next event, if there is one.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Returns all flows that can be reset.
    pub fn flow_ids(&self) -> Vec<StackFlowId> {
        let alive = self.flows.iter().map(|(_, flow)| flow);
        let alive = alive.filter(|flow| !matches!(flow.state, FlowState::Lingering));
        alive.map(|flow| flow.id).collect()
    }

    /// Returns totals since the stack was created.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Returns the resources that the stack uses now.
    pub fn usage(&self) -> StackUsage {
        StackUsage {
            flows: self.flows.len(),
            opening: self.opening,
            buffer_bytes: self.pool.bytes,
        }
    }

    #[cfg(any(test, feature = "check"))]
    pub(crate) fn is_bounded(&self) -> bool {
        let flows = self.flows.len();
        flows <= self.config.max_flows
            && self.opening <= self.config.max_opening.min(flows)
            && self.by_tuple.len() == flows
            && self.pool.bytes <= self.config.memory
            && self.timers.len() <= 2 * self.config.max_flows + 2048
            && self.replies.len() <= REPLIES_MAX
            && self.datagrams.is_bounded()
    }

    /// Marks a flow that may have something to send.
    pub(crate) fn mark(&mut self, index: usize) {
        if let Some(flow) = self.flows.get_mut(index)
            && !std::mem::replace(&mut flow.dirty, true)
        {
            self.dirty.push_back(index);
        }
    }

    /// Queues a short frame to be sent before all others.
    pub(crate) fn reply(&mut self, reply: ShortFrame) {
        if self.replies.len() < REPLIES_MAX {
            self.replies.push_back(reply);
        } else {
            self.counters.replies_dropped += 1;
        }
    }

    pub(crate) fn next_id(&mut self) -> StackFlowId {
        self.generation = self.generation.wrapping_add(1);
        // The index is below 2^20, as `Config::check` guarantees.
        let index = u32::try_from(self.flows.vacant_key()).unwrap_or(u32::MAX);
        StackFlowId {
            index,
            generation: self.generation,
        }
    }

    /// Finds a flow that the user has not reset.
    pub(crate) fn find(&self, id: StackFlowId) -> Result<usize, FlowError> {
        let index = self.find_alive(id)?;
        match self.flows[index].doomed {
            None => Ok(index),
            Some(_) => Err(FlowError::Gone),
        }
    }

    pub(crate) fn find_alive(&self, id: StackFlowId) -> Result<usize, FlowError> {
        let index = usize::try_from(id.index).map_err(|_| FlowError::Gone)?;
        match self.flows.get(index) {
            Some(flow) if flow.id == id && !matches!(flow.state, FlowState::Lingering) => Ok(index),
            _ => Err(FlowError::Gone),
        }
    }

    /// Ends a flow and reports its end to the user. With `reset`, also sends a reset to the application.
    pub(crate) fn end(&mut self, index: usize, ending: FlowEnding, reset: bool) {
        if reset {
            let reply =
                self.flows[index].empty_segment(crate::segment::RST | crate::segment::ACK, 0);
            self.reply(reply);
        }
        let flow = &self.flows[index];
        if flow.doomed.is_none() {
            let flow = flow.id;
            self.events.push_back(Event::Ended { flow, ending });
        }
        self.remove(index);
    }

    pub(crate) fn remove(&mut self, index: usize) {
        let flow = self.flows.remove(index);
        self.by_tuple
            .remove(&FourTuple::new(flow.client, flow.target));
        if !flow.open {
            self.opening -= 1;
        }
        if let FlowState::Awake(socket) = flow.state {
            self.give_back(socket);
        }
    }

    fn flow_timeout(&mut self, now: Instant, index: usize) {
        let flow = &self.flows[index];
        match &flow.state {
            FlowState::Offered => self.end(index, FlowEnding::TimedOut, true),
            FlowState::Lingering => self.remove(index),
            FlowState::Asleep => {}
            FlowState::Awake(_) if flow.reset.is_some_and(|reset| reset.until <= now) => {
                self.end(index, FlowEnding::Reset, false);
            }
            FlowState::Awake(socket) => {
                let patience = if flow.open {
                    let waits = socket.tcp().send_queue() > 0 || flow.awaits_fin_ack();
                    waits.then_some(self.config.stall_timeout)
                } else {
                    Some(self.config.open_timeout)
                };
                if patience.is_some_and(|patience| now >= flow.heard + patience) {
                    self.end(index, FlowEnding::TimedOut, true);
                    return;
                }
                if flow.awaits_fin_ack() && self.interface.poll_at(now, socket).is_none() {
                    // smoltcp 0.14 forgets a FIN that it fast-retransmits when nothing else is in flight.
                    let end = flow.repeated_fin();
                    self.reply(end);
                }
                self.mark(index);
            }
        }
    }
}

/// Largest number of queued replies; chosen arbitrarily, to bound the memory that a storm of stray segments takes.
const REPLIES_MAX: usize = 4096;
