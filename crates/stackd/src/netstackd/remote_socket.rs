//! Sockets for flows of the stack in the other process: the applications behind its device.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::rc::Rc;

use bytes::Bytes;
use quictun_engine::Socket;
use quictun_netstack::StackFlowId;

use super::remote::RemoteStack;

/// The socket of one flow of the other process's stack. Dropping it resets the flow, unless both directions have ended.
/// Dropping it before the flow was accepted refuses the flow.
#[derive(Debug)]
pub struct RemoteSocket {
    shared: Rc<RemoteStack>,
    flow: StackFlowId,
    /// The address of the program that connected.
    pub client: SocketAddr,
    /// True if both directions have ended.
    closed: bool,
}

impl RemoteSocket {
    /// Creates a socket for a flow that the stack has offered.
    pub fn new(shared: Rc<RemoteStack>, flow: StackFlowId, client: SocketAddr) -> Self {
        Self {
            shared,
            flow,
            client,
            closed: false,
        }
    }

    fn take(&mut self, max: usize) -> io::Result<Bytes> {
        self.shared.take(self.flow, max)
    }
}

impl Socket for RemoteSocket {
    fn read(&mut self, into: &mut Vec<u8>) -> io::Result<usize> {
        let piece = self.take(into.capacity() - into.len())?;
        into.extend_from_slice(&piece);
        Ok(piece.len())
    }

    fn lend(&mut self, max: usize) -> Option<io::Result<Bytes>> {
        Some(self.take(max))
    }

    fn has_unread(&self) -> bool {
        self.shared.has_unread(self.flow)
    }

    fn unsent(&self) -> usize {
        self.shared.unsent(self.flow)
    }

    fn write(&mut self, chunks: &[IoSlice<'_>]) -> io::Result<usize> {
        self.shared.write(self.flow, chunks)
    }

    fn finish(&mut self) -> io::Result<()> {
        self.shared.finish(self.flow)
    }

    fn abort(&mut self) {
        self.closed = false;
    }

    fn close(&mut self) {
        self.closed = true;
    }
}

impl Drop for RemoteSocket {
    fn drop(&mut self) {
        self.shared.leave(self.flow, self.closed);
    }
}
