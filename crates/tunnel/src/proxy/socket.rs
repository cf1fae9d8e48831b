//! The application's side of a flow that it requested from a proxy.

use std::cell::{Cell, RefCell};
use std::io::{self, IoSlice};
use std::rc::Rc;

use quictun_engine::{FlowId, Socket};
use quictun_wire::proxy::Dialect;

use crate::app_socket::AppSocket;

/// A socket that the engine returned before it was answered.
#[derive(Debug)]
pub(super) struct ReturnedSocket {
    flow: Option<FlowId>,
    pub(super) socket: AppSocket,
    pub(super) dialect: Dialect,
}

/// Returned sockets, kept from the end of their flow until the engine reports the reason.
#[derive(Clone, Debug, Default)]
pub(super) struct ReturnedSockets(Rc<RefCell<Vec<ReturnedSocket>>>);

/// The application's socket. It reads the bytes after the request first, and writes the answer before anything else.
#[derive(Debug)]
pub(crate) struct ProxiedSocket {
    /// `None` once the socket was returned.
    socket: Option<AppSocket>,
    flow: Cell<Option<FlowId>>,
    dialect: Dialect,
    answered: Cell<bool>,
    early: Vec<u8>,
    /// Number of early bytes that were read.
    taken: usize,
    /// The last read took everything from the application's connection. Early bytes say nothing about it: more may have
    /// arrived since they were read.
    drained: bool,
    returns: ReturnedSockets,
}

impl ReturnedSockets {
    pub(super) fn take(&self, flow: FlowId) -> Option<ReturnedSocket> {
        self.find(|it| it.flow == Some(flow))
    }

    /// Takes a returned socket that has no flow.
    pub(super) fn take_nameless(&self) -> Option<ReturnedSocket> {
        self.find(|it| it.flow.is_none())
    }

    /// Assigns a flow that is already over to the returned socket that has no flow.
    pub(super) fn name(&self, flow: FlowId) {
        let mut all = self.0.borrow_mut();
        if let Some(nameless) = all.iter_mut().find(|it| it.flow.is_none()) {
            nameless.flow = Some(flow);
        }
    }

    /// Resets the socket of a flow, if it was returned.
    pub(super) fn forget(&self, flow: FlowId) {
        drop(self.take(flow));
    }

    fn find(&self, is: impl Fn(&ReturnedSocket) -> bool) -> Option<ReturnedSocket> {
        let mut all = self.0.borrow_mut();
        let at = all.iter().position(is)?;
        Some(all.swap_remove(at))
    }
}

impl ProxiedSocket {
    pub(super) fn new(
        socket: AppSocket,
        dialect: Dialect,
        early: Vec<u8>,
        returns: ReturnedSockets,
    ) -> Self {
        Self {
            socket: Some(socket),
            flow: Cell::new(None),
            dialect,
            answered: Cell::new(false),
            early,
            taken: 0,
            drained: false,
            returns,
        }
    }

    /// Assigns the flow of this socket.
    pub(crate) fn name(&self, flow: FlowId) {
        self.flow.set(Some(flow));
    }

    /// Reports to the application that its target is connected, unless this was done before.
    pub(super) fn accept(&self) -> io::Result<()> {
        if self.answered.replace(true) {
            return Ok(());
        }
        match &self.socket {
            Some(socket) => socket.say(self.dialect.accepted()),
            None => Ok(()),
        }
    }

    /// Returns the application's connection.
    pub(crate) fn inner(&self) -> Option<&AppSocket> {
        self.socket.as_ref()
    }

    /// Returns the application's connection if the request is over: the application has its answer, and the flow all bytes
    /// that came with the request.
    pub(crate) fn answered(&self) -> Option<&AppSocket> {
        let is_over = self.answered.get() && self.early.is_empty();
        self.inner().filter(|_| is_over)
    }

    fn socket(&mut self) -> io::Result<&mut AppSocket> {
        self.socket
            .as_mut()
            .ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
}

impl Socket for ProxiedSocket {
    fn read(&mut self, into: &mut Vec<u8>) -> io::Result<usize> {
        let rest = &self.early[self.taken..];
        if rest.is_empty() {
            let socket = self.socket()?;
            let read = socket.read(into)?;
            self.drained = socket.is_drained();
            return Ok(read);
        }
        let length = rest.len().min(into.capacity() - into.len());
        into.extend_from_slice(&rest[..length]);
        self.taken += length;
        if self.taken == self.early.len() {
            self.early = Vec::new();
            self.taken = 0;
        }
        Ok(length)
    }

    fn is_drained(&self) -> bool {
        self.drained
    }

    fn write(&mut self, chunks: &[IoSlice<'_>]) -> io::Result<usize> {
        // The engine may deliver bytes before its event that the flow is established.
        self.accept()?;
        self.socket()?.write(chunks)
    }

    fn finish(&mut self) -> io::Result<()> {
        self.accept()?;
        self.socket()?.finish()
    }

    fn has_unread(&self) -> bool {
        self.taken < self.early.len() || self.socket.as_ref().is_some_and(AppSocket::has_unread)
    }

    fn unsent(&self) -> usize {
        self.socket.as_ref().map_or(0, AppSocket::unsent)
    }

    fn abort(&mut self) {
        // An application without an answer must still get one: the socket is returned when this is dropped.
        if let (true, Some(socket)) = (self.answered.get(), &mut self.socket) {
            socket.abort();
        }
    }

    fn close(&mut self) {
        if let Some(socket) = &mut self.socket {
            socket.close();
        }
    }
}

impl Drop for ProxiedSocket {
    fn drop(&mut self) {
        if let (false, Some(socket)) = (self.answered.get(), self.socket.take()) {
            self.returns.0.borrow_mut().push(ReturnedSocket {
                flow: self.flow.get(),
                socket,
                dialect: self.dialect,
            });
        }
    }
}
