//! What the user of a stack does with flows.

use std::time::Instant;

use smoltcp::socket::tcp::State;

use crate::event::{FlowError, FlowId, Read};
use crate::flow::Stage;
use crate::segment::{ACK, RST};
use crate::socket_pool::{PooledSocket, SMALL, Size};
use crate::stack::Stack;

impl Stack {
    /// Accepts an offered flow: the application gets its answer now.
    pub fn accept(&mut self, now: Instant, id: FlowId) -> Result<(), FlowError> {
        let index = self.offered(id)?;
        if self.admit(now, index) {
            Ok(())
        } else {
            Err(FlowError::NoMemory)
        }
    }

    /// Refuses an offered flow: the application sees a connection refused. No event follows.
    pub fn refuse(&mut self, id: FlowId) -> Result<(), FlowError> {
        let index = self.offered(id)?;
        self.drop_flow(index);
        Ok(())
    }

    /// Takes bytes that the application has sent: `take` sees those that lie together and says how many it took.
    pub fn read(
        &mut self,
        now: Instant,
        id: FlowId,
        take: impl FnOnce(&[u8]) -> usize,
    ) -> Result<Read, FlowError> {
        let index = self.accepted(id)?;
        let flow = &mut self.flows[index];
        let Stage::Awake(socket) = &mut flow.stage else {
            flow.told_readable = false;
            return Ok(Read::Empty);
        };
        let tcp = socket.tcp_mut();
        if tcp.recv_queue() == 0 {
            flow.told_readable = false;
            if !flow.open || tcp.may_recv() {
                return Ok(Read::Empty);
            }
            flow.read_end = true;
            self.mark(index);
            return Ok(Read::Finished);
        }
        let taken = tcp.recv(|bytes| {
            let taken = take(bytes).min(bytes.len());
            (taken, taken)
        });
        let taken = taken.unwrap_or(0);
        flow.used = now;
        flow.taken = flow.taken.saturating_add(taken);
        flow.outgrown |= flow.size == Size::Small && flow.taken >= 2 * SMALL;
        // There may be a window to announce.
        self.mark(index);
        Ok(Read::Data(taken))
    }

    /// Hands bytes over to be sent: `fill` sees room that lies together and says how much it used. Returns that;
    /// where it is less than it might have been, [`crate::Event::Writable`] tells when there is room again.
    pub fn write_with(
        &mut self,
        now: Instant,
        id: FlowId,
        fill: impl FnOnce(&mut [u8]) -> usize,
    ) -> Result<usize, FlowError> {
        let index = self.accepted(id)?;
        if self.flows[index].finished {
            return Err(FlowError::Finished);
        }
        if matches!(self.flows[index].stage, Stage::Asleep) && !self.wake(now, index) {
            self.starve(index);
            return Ok(0);
        }
        let flow = &mut self.flows[index];
        let held = flow.is_held();
        let Stage::Awake(socket) = &mut flow.stage else {
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
            // Patience begins with what there is to wait for.
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

    /// As [`Self::write_with`], from a text.
    pub fn write(&mut self, now: Instant, id: FlowId, text: &[u8]) -> Result<usize, FlowError> {
        let mut rest = text;
        // The room may lie in two pieces.
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

    /// Finishes our direction: the application reads an end once it has read what was written. Where there is no memory
    /// to wake it, do so again after [`crate::Event::Writable`].
    pub fn finish(&mut self, now: Instant, id: FlowId) -> Result<(), FlowError> {
        let index = self.accepted(id)?;
        if matches!(self.flows[index].stage, Stage::Asleep) && !self.wake(now, index) {
            self.starve(index);
            return Err(FlowError::NoMemory);
        }
        let flow = &mut self.flows[index];
        if let Stage::Awake(socket) = &mut flow.stage
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

    /// Resets the flow: the application sees a reset, and what was not sent is lost. No event follows.
    pub fn reset(&mut self, id: FlowId) -> Result<(), FlowError> {
        let index = self.find(id)?;
        self.drop_flow(index);
        Ok(())
    }

    /// Bytes written and not yet acknowledged by the application, and bytes it sent that were not yet read.
    pub fn queued(&self, id: FlowId) -> Result<(usize, usize), FlowError> {
        let index = self.accepted(id)?;
        Ok(match &self.flows[index].stage {
            Stage::Awake(socket) => (socket.tcp().send_queue(), socket.tcp().recv_queue()),
            _ => (0, 0),
        })
    }

    fn offered(&self, id: FlowId) -> Result<usize, FlowError> {
        let index = self.find(id)?;
        match self.flows[index].stage {
            Stage::Offered => Ok(index),
            _ => Err(FlowError::NotOffered),
        }
    }

    fn accepted(&self, id: FlowId) -> Result<usize, FlowError> {
        let index = self.find(id)?;
        match self.flows[index].stage {
            Stage::Offered => Err(FlowError::NotAccepted),
            _ => Ok(index),
        }
    }

    /// Ends a flow by our wish: nobody needs to be told but the application.
    fn drop_flow(&mut self, index: usize) {
        let reply = self.flows[index].bare(RST | ACK, 0);
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

/// Whether larger buffers would help: before the hand-shake is complete nothing can be sent anyway.
fn is_small(socket: &PooledSocket) -> bool {
    socket.size == Size::Small && socket.tcp().state() != State::SynReceived
}
