//! Operations of the user on flows.

use std::time::Instant;

use smoltcp::socket::tcp::State;

use crate::event::{FlowError, StackFlowId, StackRead};
use crate::flow::FlowState;
use crate::segment::{ACK, RST};
use crate::socket_pool::{BufferSize, PooledSocket, SMALL};
use crate::stack::Stack;

impl Stack {
    /// Accepts an offered flow. Only now does the application get an answer.
    pub fn accept(&mut self, now: Instant, id: StackFlowId) -> Result<(), FlowError> {
        let index = self.offered(id)?;
        if self.admit(now, index) {
            Ok(())
        } else {
            Err(FlowError::NoMemory)
        }
    }

    /// Refuses an offered flow. The application sees a refused connection, and no event follows.
    pub fn refuse(&mut self, id: StackFlowId) -> Result<(), FlowError> {
        let index = self.offered(id)?;
        self.drop_flow(index);
        Ok(())
    }

    /// Reads bytes that the application has sent. `take` gets a contiguous part of them and returns how many it took.
    pub fn read(
        &mut self,
        now: Instant,
        id: StackFlowId,
        take: impl FnOnce(&[u8]) -> usize,
    ) -> Result<StackRead, FlowError> {
        let index = self.accepted(id)?;
        let flow = &mut self.flows[index];
        let FlowState::Awake(socket) = &mut flow.state else {
            flow.readable_reported = false;
            return Ok(StackRead::Empty);
        };
        let tcp = socket.tcp_mut();
        if tcp.recv_queue() == 0 {
            flow.readable_reported = false;
            if let Some(reset) = flow.reset {
                return self.end_unread(index, reset);
            }
            if !flow.open || tcp.may_recv() {
                return Ok(StackRead::Empty);
            }
            flow.read_end = true;
            self.mark(index);
            return Ok(StackRead::Finished);
        }
        let taken = tcp.recv(|bytes| {
            let taken = take(bytes).min(bytes.len());
            (taken, taken)
        });
        let taken = taken.unwrap_or(0);
        flow.used = now;
        flow.taken = flow.taken.saturating_add(taken);
        flow.outgrown |= flow.size == BufferSize::Small && flow.taken >= 2 * SMALL;
        // The window may have to be announced.
        self.mark(index);
        Ok(StackRead::Data(taken))
    }

    /// Writes bytes to be sent. `fill` gets contiguous room and returns how many bytes it wrote there, which is also
    /// the result. If there was less room than wanted, [`crate::Event::Writable`] reports when there is room again.
    pub fn write_with(
        &mut self,
        now: Instant,
        id: StackFlowId,
        fill: impl FnOnce(&mut [u8]) -> usize,
    ) -> Result<usize, FlowError> {
        let index = self.accepted(id)?;
        if self.flows[index].finished {
            return Err(FlowError::Finished);
        }
        if self.flows[index].reset.is_some() {
            return Err(FlowError::Gone);
        }
        if matches!(self.flows[index].state, FlowState::Asleep) && !self.wake(now, index) {
            self.starve(index);
            return Ok(0);
        }
        let flow = &mut self.flows[index];
        let held = flow.is_held();
        let FlowState::Awake(socket) = &mut flow.state else {
            return Err(FlowError::Gone);
        };
        let tcp = socket.tcp_mut();
        if held || !tcp.can_send() {
            flow.wants_room = true;
            flow.outgrown |= is_small(socket);
            self.mark(index);
            return Ok(0);
        }
        if tcp.send_queue() == 0 {
            // The time for the application to answer starts with the first unacknowledged byte.
            flow.heard = now;
        }
        let room = tcp.send(|room| {
            let used = fill(room).min(room.len());
            (used, (used, room.len()))
        });
        let (used, room) = room.unwrap_or((0, 0));
        if used == room {
            flow.wants_room = true;
            flow.outgrown |= is_small(socket);
        }
        flow.used = now;
        self.mark(index);
        Ok(used)
    }

    /// Like [`Self::write_with`], with the bytes to write. Returns how many were taken.
    pub fn write(
        &mut self,
        now: Instant,
        id: StackFlowId,
        text: &[u8],
    ) -> Result<usize, FlowError> {
        let mut rest = text;
        // The room may be in two pieces.
        for _ in 0..2 {
            let used = self.write_with(now, id, |room| {
                let length = room.len().min(rest.len());
                room[..length].copy_from_slice(&rest[..length]);
                length
            })?;
            rest = &rest[used..];
            if rest.is_empty() {
                let index = self.accepted(id)?;
                self.flows[index].wants_room = false;
                break;
            }
        }
        Ok(text.len() - rest.len())
    }

    /// Finishes the direction to the application, which reads an end after the written bytes. If there is no memory to
    /// wake the flow, fails with [`FlowError::NoMemory`]; try again after [`crate::Event::Writable`].
    pub fn finish(&mut self, now: Instant, id: StackFlowId) -> Result<(), FlowError> {
        let index = self.accepted(id)?;
        if self.flows[index].reset.is_some() {
            return Err(FlowError::Gone);
        }
        if matches!(self.flows[index].state, FlowState::Asleep) && !self.wake(now, index) {
            self.starve(index);
            return Err(FlowError::NoMemory);
        }
        let flow = &mut self.flows[index];
        if let FlowState::Awake(socket) = &mut flow.state
            && !flow.finished
        {
            flow.finished = true;
            flow.wants_room = false;
            flow.used = now;
            if socket.tcp().send_queue() == 0 {
                flow.heard = now;
            }
            socket.tcp_mut().close();
            self.mark(index);
        }
        Ok(())
    }

    /// Resets the flow. The application sees a reset, bytes that were not sent are lost, and no event follows.
    pub fn reset(&mut self, id: StackFlowId) -> Result<(), FlowError> {
        let index = self.find_alive(id)?;
        self.drop_flow(index);
        Ok(())
    }

    /// Returns the number of written bytes that the application has not acknowledged, and of received bytes that have
    /// not been read.
    pub fn queued(&self, id: StackFlowId) -> Result<(usize, usize), FlowError> {
        let index = self.accepted(id)?;
        Ok(match &self.flows[index].state {
            FlowState::Awake(socket) => (socket.tcp().send_queue(), socket.tcp().recv_queue()),
            _ => (0, 0),
        })
    }

    fn offered(&self, id: StackFlowId) -> Result<usize, FlowError> {
        let index = self.find(id)?;
        match self.flows[index].state {
            FlowState::Offered => Ok(index),
            _ => Err(FlowError::NotOffered),
        }
    }

    fn accepted(&self, id: StackFlowId) -> Result<usize, FlowError> {
        let index = self.find(id)?;
        match self.flows[index].state {
            FlowState::Offered => Err(FlowError::NotAccepted),
            _ => Ok(index),
        }
    }

    /// Ends a flow at the user's request. Only the application is notified.
    pub(crate) fn drop_flow(&mut self, index: usize) {
        let reply = self.flows[index].empty_segment(RST | ACK, 0);
        self.reply(reply);
        self.remove(index);
    }

    fn starve(&mut self, index: usize) {
        let flow = &mut self.flows[index];
        if !std::mem::replace(&mut flow.wants_room, true) {
            self.starved.push_back(flow.id);
        }
    }
}

/// Returns whether larger buffers would help. Before the handshake is complete, nothing can be sent anyway.
fn is_small(socket: &PooledSocket) -> bool {
    socket.size == BufferSize::Small && socket.tcp().state() != State::SynReceived
}
