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
pub(crate) struct RemoteSocket {
    shared: Rc<RemoteStack>,
    flow: FlowId,
    client: SocketAddr,
    read_end: bool,
    finished: bool,
    aborted: bool,
}

impl RemoteSocket {
    pub(crate) fn new(shared: Rc<RemoteStack>, flow: FlowId, client: SocketAddr) -> Self {
        Self {
            shared,
            flow,
            client,
            read_end: false,
            finished: false,
            aborted: false,
        }
    }

    pub(crate) fn client(&self) -> SocketAddr {
        self.client
    }

    fn take(&mut self, max: usize) -> io::Result<Bytes> {
        let piece = self.shared.take(self.flow, max)?;
        self.read_end |= piece.is_empty() && max > 0;
        Ok(piece)
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
        self.shared.finish(self.flow)?;
        self.finished = true;
        Ok(())
    }

    fn abort(&mut self) {
        self.aborted = true;
    }
}

impl Drop for RemoteSocket {
    fn drop(&mut self) {
        let in_order = !self.aborted && self.read_end && self.finished;
        self.shared.leave(self.flow, in_order);
    }
}
