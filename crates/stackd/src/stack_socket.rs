//! Sockets for flows of the user-space stack: the applications behind a TUN device.

use std::cell::{Cell, RefCell};
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Instant;

use quictun_engine::Socket;
use quictun_netstack::{FlowError, Stack, StackFlowId, StackRead};

/// The stack, with the state that all its sockets share.
#[derive(Debug)]
pub struct SharedStack {
    /// The user-space TCP/IP stack.
    pub stack: RefCell<Stack>,
    /// Time of the loop's current turn.
    pub now: Cell<Instant>,
    /// Flows that could not be finished for lack of memory. The attempt is repeated when there is room.
    pub unfinished: RefCell<Vec<StackFlowId>>,
}

/// The socket of one flow of the stack. Dropping it resets the flow, unless both directions have ended. Dropping it
/// before the flow was accepted refuses the flow.
#[derive(Debug)]
pub struct StackSocket {
    shared: Rc<SharedStack>,
    flow: StackFlowId,
    /// The address of the program that connected.
    pub client: SocketAddr,
    /// True if both directions have ended.
    closed: bool,
}

impl StackSocket {
    /// Creates a socket for a flow that the stack has offered.
    pub fn new(shared: Rc<SharedStack>, flow: StackFlowId, client: SocketAddr) -> Self {
        Self {
            shared,
            flow,
            client,
            closed: false,
        }
    }
}

impl Socket for StackSocket {
    fn read(&mut self, into: &mut Vec<u8>) -> io::Result<usize> {
        let spare = into.capacity() - into.len();
        let read = self
            .shared
            .stack
            .borrow_mut()
            .read(self.shared.now.get(), self.flow, |bytes| {
                let length = bytes.len().min(spare);
                into.extend_from_slice(&bytes[..length]);
                length
            });
        match read {
            Ok(StackRead::Data(length)) => Ok(length),
            Ok(StackRead::Empty) | Err(FlowError::NotAccepted) => {
                Err(io::ErrorKind::WouldBlock.into())
            }
            Ok(StackRead::Finished) => Ok(0),
            Err(_) => Err(io::ErrorKind::ConnectionReset.into()),
        }
    }

    fn write(&mut self, chunks: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut stack = self.shared.stack.borrow_mut();
        let mut taken = 0;
        for chunk in chunks {
            let written = match stack.write(self.shared.now.get(), self.flow, chunk) {
                Ok(written) => written,
                Err(FlowError::NotAccepted) => 0,
                Err(FlowError::Finished) => return Err(io::ErrorKind::BrokenPipe.into()),
                Err(_) => return Err(io::ErrorKind::ConnectionReset.into()),
            };
            taken += written;
            if written < chunk.len() {
                break;
            }
        }
        if taken == 0 && chunks.iter().any(|chunk| !chunk.is_empty()) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(taken)
    }

    fn finish(&mut self) -> io::Result<()> {
        let finished = self
            .shared
            .stack
            .borrow_mut()
            .finish(self.shared.now.get(), self.flow);
        match finished {
            Ok(()) => {}
            Err(FlowError::NoMemory) => self.shared.unfinished.borrow_mut().push(self.flow),
            Err(_) => return Err(io::ErrorKind::ConnectionReset.into()),
        }
        Ok(())
    }

    fn has_unread(&self) -> bool {
        let queued = self.shared.stack.borrow().queued(self.flow);
        queued.is_ok_and(|(_, unread)| unread > 0)
    }

    fn unsent(&self) -> usize {
        let queued = self.shared.stack.borrow().queued(self.flow);
        // A flow that no longer exists has nothing left to send.
        queued.map_or(0, |(unsent, _)| unsent)
    }

    fn abort(&mut self) {
        self.closed = false;
    }

    fn close(&mut self) {
        self.closed = true;
    }
}

impl Drop for StackSocket {
    fn drop(&mut self) {
        if !self.closed && self.shared.stack.borrow_mut().reset(self.flow).is_err() {
            // The flow no longer exists, so there is nothing to reset.
        }
    }
}
