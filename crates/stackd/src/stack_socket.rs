//! Applications behind a TUN device: flows of the user-space stack, as sockets.

use std::cell::{Cell, RefCell};
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Instant;

use quictun_engine::Socket;
use quictun_netstack::{FlowError, FlowId, Read, Stack};

/// The stack that all its sockets share, and what they need to use it.
#[derive(Debug)]
pub struct SharedStack {
    /// The stack.
    pub stack: RefCell<Stack>,
    /// As of the last turn of the loop.
    pub now: Cell<Instant>,
    /// Flows that could not be finished for want of memory: again when there is some.
    pub unfinished: RefCell<Vec<FlowId>>,
}

/// One flow of the stack. Dropped before both directions have ended, it is reset; before it was accepted, refused.
#[derive(Debug)]
pub struct StackSocket {
    shared: Rc<SharedStack>,
    flow: FlowId,
    /// The program that connected.
    pub client: SocketAddr,
    /// Both directions have ended.
    closed: bool,
}

impl StackSocket {
    /// The socket of a flow that the stack has told of.
    pub fn new(shared: Rc<SharedStack>, flow: FlowId, client: SocketAddr) -> Self {
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
            Ok(Read::Data(length)) => Ok(length),
            Ok(Read::Empty) | Err(FlowError::NotAccepted) => Err(io::ErrorKind::WouldBlock.into()),
            Ok(Read::Finished) => Ok(0),
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

    fn is_sent(&self) -> bool {
        let queued = self.shared.stack.borrow().queued(self.flow);
        // A flow that is gone sends nothing more.
        !queued.is_ok_and(|(unsent, _)| unsent > 0)
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
            // It is gone already: there is nothing left to reset.
        }
    }
}
