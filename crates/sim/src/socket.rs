//! An in-memory connection between an application and an engine; it fails in the ways TCP does.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::rc::Rc;

use bytes::Bytes;
use quictun_flow::Socket;

/// The queues of sockets with activity on one host: for the engine and for the applications.
#[derive(Debug, Default)]
pub(crate) struct ActivityQueues {
    pub(crate) for_engine: VecDeque<usize>,
    pub(crate) for_apps: VecDeque<usize>,
}

#[derive(Debug)]
struct SharedConnection {
    /// Number of the socket on its host.
    index: usize,
    activity: Rc<RefCell<ActivityQueues>>,
    to_engine: ByteQueue,
    to_app: ByteQueue,
    /// The datagrams of both directions, if the application exchanges datagrams.
    datagrams: Option<DatagramQueues>,
    /// Bytes that each direction buffers.
    capacity: usize,
    /// Bytes that the direction to the application buffers, if the engine has limited them.
    to_app_max: usize,
    /// Maximum bytes that one call of the engine moves.
    call_max: usize,
    app: EndState,
    engine: EndState,
    readiness: PendingReadiness,
    /// Set if the socket is already queued in `activity`, for the engine and for the application.
    engine_notified: bool,
    app_notified: bool,
}

#[derive(Debug, Default)]
struct ByteQueue {
    data: VecDeque<u8>,
    fin: bool,
    /// Set once the reader has seen the FIN.
    fin_read: bool,
}

#[derive(Debug, Default)]
struct DatagramQueues {
    to_engine: VecDeque<Bytes>,
    to_app: VecDeque<Bytes>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EndState {
    Open,
    /// Closed: data that arrives for this end is answered with a reset.
    Closed,
    Reset,
}

/// Socket readiness that the engine has not been notified of yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PendingReadiness {
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    pub(crate) failed: bool,
}

/// The engine's end of a connection.
#[derive(Debug)]
pub struct MemSocket {
    connection: Rc<RefCell<SharedConnection>>,
    /// Set if both directions have ended, so that dropping the socket is not a reset.
    closed: bool,
    /// Set once another engine has a copy of the socket, so that dropping this one does nothing.
    handed_over: Cell<bool>,
}

#[derive(Clone, Debug)]
pub(crate) struct AppEnd {
    connection: Rc<RefCell<SharedConnection>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AppRead {
    Bytes(usize),
    Blocked,
    Fin,
    Reset,
}

/// Datagrams that a socket holds; later ones are lost.
const DATAGRAMS_MAX: usize = 100;

/// Creates connection number `index` of a host. Each direction buffers `capacity` bytes, and each call of the engine
/// moves at most `call_max` bytes.
pub(crate) fn pair(
    index: usize,
    activity: &Rc<RefCell<ActivityQueues>>,
    capacity: usize,
    call_max: usize,
) -> (MemSocket, AppEnd) {
    let connection = Rc::new(RefCell::new(SharedConnection {
        index,
        activity: activity.clone(),
        to_engine: ByteQueue::default(),
        to_app: ByteQueue::default(),
        datagrams: None,
        capacity,
        to_app_max: capacity,
        call_max: call_max.max(1),
        app: EndState::Open,
        engine: EndState::Open,
        readiness: PendingReadiness::default(),
        engine_notified: false,
        app_notified: false,
    }));
    let socket = MemSocket {
        connection: connection.clone(),
        closed: false,
        handed_over: Cell::new(false),
    };
    (socket, AppEnd { connection })
}

impl MemSocket {
    /// Returns a copy of the socket for another engine, as another process has after a hand-over.
    pub(crate) fn hand_over(&self) -> Self {
        Self {
            connection: self.connection.clone(),
            closed: self.closed,
            handed_over: Cell::new(false),
        }
    }

    /// Sets whether another engine has the socket from now on.
    pub(crate) fn set_handed_over(&self, handed_over: bool) {
        self.handed_over.set(handed_over);
    }
}

impl SharedConnection {
    fn notify_engine(&mut self, readable: bool, writable: bool, failed: bool) {
        self.readiness.readable |= readable;
        self.readiness.writable |= writable;
        self.readiness.failed |= failed;
        if !std::mem::replace(&mut self.engine_notified, true) {
            self.activity.borrow_mut().for_engine.push_back(self.index);
        }
    }

    fn notify_app(&mut self) {
        if !std::mem::replace(&mut self.app_notified, true) {
            self.activity.borrow_mut().for_apps.push_back(self.index);
        }
    }

    /// Discards the buffered bytes of both directions, as a reset by the engine does.
    fn clear(&mut self) {
        self.to_engine.data.clear();
        self.to_app.data.clear();
    }
}

impl ByteQueue {
    fn put(&mut self, bytes: &[u8], capacity: usize, most: usize) -> usize {
        let room = capacity.saturating_sub(self.data.len());
        let taken = bytes.len().min(room).min(most);
        self.data.extend(&bytes[..taken]);
        taken
    }

    fn take(&mut self, into: &mut Vec<u8>, most: usize) -> usize {
        let count = most.min(self.data.len());
        let (front, back) = self.data.as_slices();
        let first = count.min(front.len());
        into.extend_from_slice(&front[..first]);
        into.extend_from_slice(&back[..count - first]);
        self.data.drain(..count);
        count
    }

    fn skip(&mut self, most: usize) -> usize {
        let count = most.min(self.data.len());
        self.data.drain(..count);
        count
    }
}

impl Socket for MemSocket {
    fn set_unsent_max(&mut self, bytes: u32) {
        let mut connection = self.connection.borrow_mut();
        connection.to_app_max = bytes as usize;
        if connection.to_app.data.len() < connection.to_app_max {
            connection.notify_engine(false, true, false);
        }
    }

    fn read(&mut self, into: &mut Vec<u8>) -> io::Result<usize> {
        let mut connection = self.connection.borrow_mut();
        let most = (into.capacity() - into.len()).min(connection.call_max);
        let was_full = connection.to_engine.data.len() >= connection.capacity;
        let taken = connection.to_engine.take(into, most);
        if taken == 0 {
            return if connection.to_engine.fin {
                Ok(0)
            } else if connection.app == EndState::Reset {
                Err(io::ErrorKind::ConnectionReset.into())
            } else {
                Err(io::ErrorKind::WouldBlock.into())
            };
        }
        if was_full {
            connection.notify_app();
        }
        Ok(taken)
    }

    fn is_drained(&self) -> bool {
        let connection = self.connection.borrow();
        connection.app != EndState::Reset
            && connection.to_engine.data.is_empty()
            && !connection.to_engine.fin
    }

    fn has_unread(&self) -> bool {
        let to_engine = &self.connection.borrow().to_engine;
        !to_engine.data.is_empty() || to_engine.fin
    }

    fn write(&mut self, chunks: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut connection = self.connection.borrow_mut();
        match connection.app {
            EndState::Open => {}
            EndState::Closed => {
                // The kernel of the application's host answers with a reset.
                connection.app = EndState::Reset;
                connection.to_app.data.clear();
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            EndState::Reset => return Err(io::ErrorKind::ConnectionReset.into()),
        }
        let (capacity, mut most) = (connection.to_app_max, connection.call_max);
        let mut written = 0;
        for chunk in chunks {
            let taken = connection.to_app.put(chunk, capacity, most);
            written += taken;
            most -= taken;
            if taken < chunk.len() {
                break;
            }
        }
        if written == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        connection.notify_app();
        Ok(written)
    }

    fn finish(&mut self) -> io::Result<()> {
        let mut connection = self.connection.borrow_mut();
        if connection.app == EndState::Reset {
            return Err(io::ErrorKind::NotConnected.into());
        }
        connection.to_app.fin = true;
        if connection.datagrams.is_some() {
            connection.to_engine.fin = true;
        }
        connection.notify_app();
        Ok(())
    }

    fn carries_datagrams(&self) -> bool {
        self.connection.borrow().datagrams.is_some()
    }

    fn recv_datagram(&mut self) -> io::Result<Bytes> {
        let mut connection = self.connection.borrow_mut();
        let datagrams = connection.datagrams.as_mut();
        let next = datagrams.and_then(|datagrams| datagrams.to_engine.pop_front());
        next.ok_or_else(|| io::ErrorKind::WouldBlock.into())
    }

    fn send_datagram(&mut self, payload: &[u8]) -> io::Result<()> {
        let mut connection = self.connection.borrow_mut();
        if connection.app == EndState::Reset {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        match &mut connection.datagrams {
            Some(datagrams) if datagrams.to_app.len() < DATAGRAMS_MAX => {
                datagrams.to_app.push_back(Bytes::copy_from_slice(payload));
                connection.notify_app();
                Ok(())
            }
            _ => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    fn unsent(&self) -> usize {
        // In this model a reset by the engine discards everything that the application has not read.
        let connection = self.connection.borrow();
        if connection.app != EndState::Open {
            return 0;
        }
        let to_app = &connection.to_app;
        to_app.data.len() + usize::from(to_app.fin && !to_app.fin_read)
    }

    fn abort(&mut self) {
        self.closed = false;
    }

    fn close(&mut self) {
        self.closed = true;
    }
}

impl Drop for MemSocket {
    fn drop(&mut self) {
        if self.handed_over.get() {
            return;
        }
        let mut connection = self.connection.borrow_mut();
        // A kernel also resets the connection if unread bytes are left.
        if !self.closed || !connection.to_engine.data.is_empty() {
            connection.engine = EndState::Reset;
            connection.clear();
        } else {
            connection.engine = EndState::Closed;
            connection.to_app.fin = true;
        }
        connection.notify_app();
    }
}

impl AppEnd {
    /// Sets whether the connection carries datagrams, and no bytes.
    pub(crate) fn set_datagrams(&self, datagrams: bool) {
        self.connection.borrow_mut().datagrams = datagrams.then(DatagramQueues::default);
    }

    pub(crate) fn recv_datagram(&self) -> Option<Bytes> {
        let mut connection = self.connection.borrow_mut();
        connection.datagrams.as_mut()?.to_app.pop_front()
    }

    /// Sends a datagram, which is lost if the socket holds too many.
    pub(crate) fn send_datagram(&self, payload: Bytes) {
        let mut connection = self.connection.borrow_mut();
        if let Some(datagrams) = &mut connection.datagrams
            && datagrams.to_engine.len() < DATAGRAMS_MAX
        {
            datagrams.to_engine.push_back(payload);
            connection.notify_engine(true, false, false);
        }
    }

    pub(crate) fn take_readiness(&self) -> PendingReadiness {
        let mut connection = self.connection.borrow_mut();
        connection.engine_notified = false;
        std::mem::take(&mut connection.readiness)
    }

    pub(crate) fn clear_notified(&self) {
        self.connection.borrow_mut().app_notified = false;
    }

    /// Reads at most `most` bytes into `into`, or discards them if `into` is `None`.
    pub(crate) fn read(&self, into: Option<&mut Vec<u8>>, most: usize) -> AppRead {
        let mut connection = self.connection.borrow_mut();
        if connection.engine == EndState::Reset {
            return AppRead::Reset;
        }
        let was_full = connection.to_app.data.len() >= connection.to_app_max;
        let taken = match into {
            Some(into) => connection.to_app.take(into, most),
            None => connection.to_app.skip(most),
        };
        if taken > 0 {
            if was_full {
                connection.notify_engine(false, true, false);
            }
            return AppRead::Bytes(taken);
        }
        if connection.to_app.fin && most > 0 {
            connection.to_app.fin_read = true;
            AppRead::Fin
        } else {
            AppRead::Blocked
        }
    }

    /// Returns the number of bytes accepted, or `None` if the engine's end no longer accepts any.
    pub(crate) fn write(&self, bytes: &[u8]) -> Option<usize> {
        let mut connection = self.connection.borrow_mut();
        if connection.engine != EndState::Open {
            return None;
        }
        let capacity = connection.capacity;
        let taken = connection.to_engine.put(bytes, capacity, usize::MAX);
        if taken > 0 {
            connection.notify_engine(true, false, false);
        }
        Some(taken)
    }

    pub(crate) fn is_reset(&self) -> bool {
        self.connection.borrow().engine == EndState::Reset
    }

    /// Makes the connection one that the engine has reset.
    pub(crate) fn reset(&self) {
        let mut connection = self.connection.borrow_mut();
        connection.engine = EndState::Reset;
        connection.clear();
    }

    pub(crate) fn finish(&self) {
        let mut connection = self.connection.borrow_mut();
        connection.to_engine.fin = true;
        connection.notify_engine(true, false, false);
    }

    /// Resets the connection. What the application has sent before stays readable, as in Linux.
    pub(crate) fn abort(&self) {
        let mut connection = self.connection.borrow_mut();
        connection.app = EndState::Reset;
        connection.to_app.data.clear();
        connection.notify_engine(true, true, true);
    }

    /// Closes both directions: with a FIN if everything was read, with a reset otherwise.
    pub(crate) fn close(&self) {
        let mut connection = self.connection.borrow_mut();
        if connection.app != EndState::Open {
            return;
        }
        if connection.to_app.data.is_empty() {
            connection.app = EndState::Closed;
            connection.to_engine.fin = true;
            connection.notify_engine(true, true, false);
        } else {
            drop(connection);
            self.abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(capacity: usize) -> (MemSocket, AppEnd, Rc<RefCell<ActivityQueues>>) {
        let activity = Rc::new(RefCell::new(ActivityQueues::default()));
        let (socket, app) = pair(0, &activity, capacity, usize::MAX);
        (socket, app, activity)
    }

    #[test]
    fn bytes_then_fin_arrive_and_the_other_direction_lives_on() {
        let (mut socket, app, _board) = ends(4);
        assert_eq!(app.write(b"abcdef"), Some(4));
        app.finish();
        let mut got = Vec::with_capacity(16);
        assert_eq!(socket.read(&mut got).expect("the engine reads"), 4);
        assert_eq!(socket.read(&mut got).expect("the engine reads"), 0);
        assert_eq!(socket.write(&[IoSlice::new(b"ok")]).expect("must write"), 2);
        assert_eq!(app.read(Some(&mut got), 10), AppRead::Bytes(2));
        assert_eq!(got, b"abcdok");
    }

    #[test]
    fn an_orderly_close_is_read_as_a_fin_and_any_other_drop_as_a_reset() {
        let (mut socket, app, _board) = ends(4);
        socket.abort();
        drop(socket);
        assert_eq!(app.read(None, 1), AppRead::Reset);
        let (socket, app, _board) = ends(4);
        drop(socket);
        assert_eq!(app.read(None, 1), AppRead::Reset);
        let (mut socket, app, _board) = ends(4);
        socket.close();
        drop(socket);
        assert_eq!(app.read(None, 1), AppRead::Fin);
        assert_eq!(app.write(b"x"), None);
        let (mut socket, app, _board) = ends(4);
        app.abort();
        let error = socket
            .read(&mut Vec::with_capacity(8))
            .expect_err("the application has reset the connection");
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
        assert!(socket.finish().is_err());
    }

    #[test]
    fn a_full_queue_blocks_and_new_room_is_reported() {
        let (mut socket, app, activity) = ends(2);
        assert_eq!(socket.write(&[IoSlice::new(b"abc")]).expect("has room"), 2);
        let error = socket.write(&[IoSlice::new(b"c")]).expect_err("full pipe");
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        assert_eq!(app.read(None, 1), AppRead::Bytes(1));
        assert_eq!(activity.borrow_mut().for_engine.pop_front(), Some(0));
        assert!(app.take_readiness().writable);
    }
}
