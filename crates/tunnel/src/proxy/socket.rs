//! The application's side of a flow that it has asked a proxy for.

use std::cell::{Cell, RefCell};
use std::io::{self, IoSlice};
use std::rc::Rc;

use quictun_engine::{FlowId, Socket};
use quictun_wire::proxy::Dialect;

use crate::app_socket::AppSocket;

/// A socket that the engine has given back without an answer.
#[derive(Debug)]
pub(super) struct Returned {
    flow: Option<FlowId>,
    pub(super) socket: AppSocket,
    pub(super) dialect: Dialect,
}

/// Sockets on their way back, between the end of their flow and the engine's word about it.
#[derive(Clone, Debug, Default)]
pub(super) struct Returns(Rc<RefCell<Vec<Returned>>>);

/// Reads what followed the request before anything else, and writes the answer to it first.
#[derive(Debug)]
pub(crate) struct Proxied {
    /// Gone once it was given back.
    socket: Option<AppSocket>,
    flow: Cell<Option<FlowId>>,
    dialect: Dialect,
    answered: Cell<bool>,
    early: Vec<u8>,
    /// How much of it was read.
    taken: usize,
    returns: Returns,
}

impl Returns {
    pub(super) fn take(&self, flow: FlowId) -> Option<Returned> {
        self.find(|it| it.flow == Some(flow))
    }

    /// One that has not become a flow.
    pub(super) fn take_nameless(&self) -> Option<Returned> {
        self.find(|it| it.flow.is_none())
    }

    /// One that has not become a flow has, and its flow is over.
    pub(super) fn name(&self, flow: FlowId) {
        let mut all = self.0.borrow_mut();
        if let Some(nameless) = all.iter_mut().find(|it| it.flow.is_none()) {
            nameless.flow = Some(flow);
        }
    }

    /// Resets the socket of a flow, if it came back.
    pub(super) fn forget(&self, flow: FlowId) {
        drop(self.take(flow));
    }

    fn find(&self, is: impl Fn(&Returned) -> bool) -> Option<Returned> {
        let mut all = self.0.borrow_mut();
        let at = all.iter().position(is)?;
        Some(all.swap_remove(at))
    }
}

impl Proxied {
    pub(super) fn new(
        socket: AppSocket,
        dialect: Dialect,
        early: Vec<u8>,
        returns: Returns,
    ) -> Self {
        Self {
            socket: Some(socket),
            flow: Cell::new(None),
            dialect,
            answered: Cell::new(false),
            early,
            taken: 0,
            returns,
        }
    }

    /// Which flow it has become.
    pub(crate) fn name(&self, flow: FlowId) {
        self.flow.set(Some(flow));
    }

    /// Tells the application that its target is connected, unless it knows.
    pub(super) fn accept(&self) -> io::Result<()> {
        if self.answered.replace(true) {
            return Ok(());
        }
        match &self.socket {
            Some(socket) => socket.say(self.dialect.accepted()),
            None => Ok(()),
        }
    }

    /// The application's connection.
    pub(crate) fn inner(&self) -> Option<&AppSocket> {
        self.socket.as_ref()
    }

    fn socket(&mut self) -> io::Result<&mut AppSocket> {
        self.socket
            .as_mut()
            .ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
}

impl Socket for Proxied {
    fn read(&mut self, into: &mut Vec<u8>) -> io::Result<usize> {
        let rest = &self.early[self.taken..];
        if rest.is_empty() {
            return self.socket()?.read(into);
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

    fn write(&mut self, chunks: &[IoSlice<'_>]) -> io::Result<usize> {
        // The engine may have bytes before its word that the flow is established is heard.
        self.accept()?;
        self.socket()?.write(chunks)
    }

    fn finish(&mut self) -> io::Result<()> {
        self.accept()?;
        self.socket()?.finish()
    }

    fn is_sent(&self) -> bool {
        self.socket.as_ref().is_none_or(AppSocket::is_sent)
    }

    fn abort(&mut self) {
        // Without an answer it is to have one, and comes back when it is dropped.
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

impl Drop for Proxied {
    fn drop(&mut self) {
        if let (false, Some(socket)) = (self.answered.get(), self.socket.take()) {
            self.returns.0.borrow_mut().push(Returned {
                flow: self.flow.get(),
                socket,
                dialect: self.dialect,
            });
        }
    }
}
