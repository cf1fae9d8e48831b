//! Applications behind a device of the other process: its flows, as sockets.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::rc::Rc;

use bytes::Bytes;
use quictun_engine::Socket;
use quictun_netstack::FlowId;

use super::remote::RemoteStack;

/// One flow of the other process's stack. Dropped before both directions have ended, it is reset; before it was accepted,
/// refused.
#[derive(Debug)]
pub struct RemoteSocket {
    shared: Rc<RemoteStack>,
    flow: FlowId,
    /// The program that connected.
    pub client: SocketAddr,
    /// Both directions have ended.
    closed: bool,
}

impl RemoteSocket {
    /// The socket of a flow that the stack has told of.
    pub fn new(shared: Rc<RemoteStack>, flow: FlowId, client: SocketAddr) -> Self {
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
