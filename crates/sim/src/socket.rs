//! An in-memory connection between an application and an engine; it fails in the ways TCP does.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::rc::Rc;

use quictun_flow::Socket;

/// The queues of sockets with activity on one host: for the engine and for the applications.
#[derive(Debug, Default)]
pub(crate) struct Board {
    pub(crate) for_engine: VecDeque<usize>,
    pub(crate) for_apps: VecDeque<usize>,
}

#[derive(Debug)]
struct Wire {
    /// Number of the socket on its host.
    index: usize,
    board: Rc<RefCell<Board>>,
    to_engine: Pipe,
    to_app: Pipe,
    /// Bytes that each direction buffers.
    capacity: usize,
    /// Maximum bytes that one call of the engine moves.
    call_max: usize,
    app: End,
    engine: End,
    news: News,
    /// Set if the socket is already queued on the board, for the engine and for the application.
    engine_told: bool,
    app_told: bool,
}

#[derive(Debug, Default)]
struct Pipe {
    data: VecDeque<u8>,
    fin: bool,
    /// Set once the reader has seen the FIN.
    fin_read: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Open,
    /// Closed: data that arrives for this end is answered with a reset.
    Closed,
    Reset,
}

/// Socket readiness that the engine has not been notified of yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct News {
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    pub(crate) failed: bool,
}

/// The engine's end of a connection.
#[derive(Debug)]
pub struct MemSocket {
    wire: Rc<RefCell<Wire>>,
    /// Set if both directions have ended, so that dropping the socket is not a reset.
    closed: bool,
}

#[derive(Debug)]
pub(crate) struct AppSocket {
    wire: Rc<RefCell<Wire>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AppRead {
    Bytes(usize),
    Blocked,
    Fin,
    Reset,
}

/// Creates connection number `index` of a host. Each direction buffers `capacity` bytes, and each call of the engine
/// moves at most `call_max` bytes.
pub(crate) fn pair(
    index: usize,
    board: &Rc<RefCell<Board>>,
    capacity: usize,
    call_max: usize,
) -> (MemSocket, AppSocket) {
    let wire = Rc::new(RefCell::new(Wire {
        index,
        board: board.clone(),
        to_engine: Pipe::default(),
        to_app: Pipe::default(),
        capacity,
        call_max: call_max.max(1),
        app: End::Open,
        engine: End::Open,
        news: News::default(),
        engine_told: false,
        app_told: false,
    }));
    let socket = MemSocket {
        wire: wire.clone(),
        closed: false,
    };
    (socket, AppSocket { wire })
}

impl Wire {
    fn tell_engine(&mut self, readable: bool, writable: bool, failed: bool) {
        self.news.readable |= readable;
        self.news.writable |= writable;
        self.news.failed |= failed;
        if !std::mem::replace(&mut self.engine_told, true) {
            self.board.borrow_mut().for_engine.push_back(self.index);
        }
    }

    fn tell_app(&mut self) {
        if !std::mem::replace(&mut self.app_told, true) {
            self.board.borrow_mut().for_apps.push_back(self.index);
        }
    }

    /// Discards the buffered bytes of both directions, as a reset by either end does.
    fn clear(&mut self) {
        self.to_engine.data.clear();
        self.to_app.data.clear();
    }
}

impl Pipe {
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
    fn read(&mut self, into: &mut Vec<u8>) -> io::Result<usize> {
        let mut wire = self.wire.borrow_mut();
        if wire.app == End::Reset {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        let most = (into.capacity() - into.len()).min(wire.call_max);
        let was_full = wire.to_engine.data.len() >= wire.capacity;
        let taken = wire.to_engine.take(into, most);
        if taken == 0 {
            let fin = wire.to_engine.fin;
            return if fin {
                Ok(0)
            } else {
                Err(io::ErrorKind::WouldBlock.into())
            };
        }
        if was_full {
            wire.tell_app();
        }
        Ok(taken)
    }

    fn write(&mut self, chunks: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut wire = self.wire.borrow_mut();
        match wire.app {
            End::Open => {}
            End::Closed => {
                // The kernel of the application's host answers with a reset.
                wire.app = End::Reset;
                wire.clear();
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            End::Reset => return Err(io::ErrorKind::ConnectionReset.into()),
        }
        let (capacity, mut most) = (wire.capacity, wire.call_max);
        let mut written = 0;
        for chunk in chunks {
            let taken = wire.to_app.put(chunk, capacity, most);
            written += taken;
            most -= taken;
            if taken < chunk.len() {
                break;
            }
        }
        if written == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        wire.tell_app();
        Ok(written)
    }

    fn finish(&mut self) -> io::Result<()> {
        let mut wire = self.wire.borrow_mut();
        if wire.app == End::Reset {
            return Err(io::ErrorKind::NotConnected.into());
        }
        wire.to_app.fin = true;
        wire.tell_app();
        Ok(())
    }

    fn is_sent(&self) -> bool {
        // In this model a reset discards everything that the application has not read.
        let wire = self.wire.borrow();
        let to_app = &wire.to_app;
        wire.app != End::Open || to_app.data.is_empty() && (to_app.fin_read || !to_app.fin)
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
        let mut wire = self.wire.borrow_mut();
        // A kernel also resets the connection if unread bytes are left.
        if !self.closed || !wire.to_engine.data.is_empty() {
            wire.engine = End::Reset;
            wire.clear();
        } else {
            wire.engine = End::Closed;
            wire.to_app.fin = true;
        }
        wire.tell_app();
    }
}

impl AppSocket {
    pub(crate) fn take_news(&self) -> News {
        let mut wire = self.wire.borrow_mut();
        wire.engine_told = false;
        std::mem::take(&mut wire.news)
    }

    pub(crate) fn woken(&self) {
        self.wire.borrow_mut().app_told = false;
    }

    /// Reads at most `most` bytes into `into`, or discards them if `into` is `None`.
    pub(crate) fn read(&self, into: Option<&mut Vec<u8>>, most: usize) -> AppRead {
        let mut wire = self.wire.borrow_mut();
        if wire.engine == End::Reset {
            return AppRead::Reset;
        }
        let was_full = wire.to_app.data.len() >= wire.capacity;
        let taken = match into {
            Some(into) => wire.to_app.take(into, most),
            None => wire.to_app.skip(most),
        };
        if taken > 0 {
            if was_full {
                wire.tell_engine(false, true, false);
            }
            return AppRead::Bytes(taken);
        }
        if wire.to_app.fin && most > 0 {
            wire.to_app.fin_read = true;
            AppRead::Fin
        } else {
            AppRead::Blocked
        }
    }

    /// Returns the number of bytes accepted, or `None` if the engine's end no longer accepts any.
    pub(crate) fn write(&self, bytes: &[u8]) -> Option<usize> {
        let mut wire = self.wire.borrow_mut();
        if wire.engine != End::Open {
            return None;
        }
        let capacity = wire.capacity;
        let taken = wire.to_engine.put(bytes, capacity, usize::MAX);
        if taken > 0 {
            wire.tell_engine(true, false, false);
        }
        Some(taken)
    }

    pub(crate) fn is_reset(&self) -> bool {
        self.wire.borrow().engine == End::Reset
    }

    pub(crate) fn finish(&self) {
        let mut wire = self.wire.borrow_mut();
        wire.to_engine.fin = true;
        wire.tell_engine(true, false, false);
    }

    pub(crate) fn abort(&self) {
        let mut wire = self.wire.borrow_mut();
        wire.app = End::Reset;
        wire.clear();
        wire.tell_engine(true, true, true);
    }

    /// Closes both directions: with a FIN if everything was read, with a reset otherwise.
    pub(crate) fn close(&self) {
        let mut wire = self.wire.borrow_mut();
        if wire.app != End::Open {
            return;
        }
        if wire.to_app.data.is_empty() {
            wire.app = End::Closed;
            wire.to_engine.fin = true;
            wire.tell_engine(true, true, false);
        } else {
            drop(wire);
            self.abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(capacity: usize) -> (MemSocket, AppSocket, Rc<RefCell<Board>>) {
        let board = Rc::new(RefCell::new(Board::default()));
        let (socket, app) = pair(0, &board, capacity, usize::MAX);
        (socket, app, board)
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
    fn an_end_in_order_is_seen_as_a_fin_and_any_other_drop_as_a_reset() {
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
    fn a_full_pipe_blocks_and_room_is_announced() {
        let (mut socket, app, board) = ends(2);
        assert_eq!(socket.write(&[IoSlice::new(b"abc")]).expect("has room"), 2);
        let error = socket.write(&[IoSlice::new(b"c")]).expect_err("full pipe");
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        assert_eq!(app.read(None, 1), AppRead::Bytes(1));
        assert_eq!(board.borrow_mut().for_engine.pop_front(), Some(0));
        assert!(app.take_news().writable);
    }
}
