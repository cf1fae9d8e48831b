//! Tests of a flow between a fake socket and a fake stream that the test controls.

mod arriving;
mod ending;
mod legs;
mod lost;
mod placement;
mod reset;
mod sending;

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::io::{self, IoSlice};
use std::rc::Rc;

use bytes::{Buf, Bytes};
use quictun_wire::code::FlowCode;

use crate::{Flow, Inlet, ReadBuffer, ReadEnd, Socket, Stream, ToAppStop, ToTunnelStop, WriteEnd};

/// The application's side of the bridge.
#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "independent of each other")]
struct FakeApp {
    /// Pieces that the application sends; an empty piece is its FIN.
    sends: VecDeque<Vec<u8>>,
    received: Vec<u8>,
    /// Number of bytes that the application takes before it blocks.
    room: usize,
    /// Maximum number of bytes that the application takes in one call.
    call_max: usize,
    finished: bool,
    aborted: bool,
    closed: bool,
    broken: bool,
    /// The application's system has not yet received everything that was written.
    unsent: bool,
    /// The socket tells when a read has drained it.
    tells: bool,
    /// Number of calls of `read`.
    reads: usize,
}

#[derive(Clone, Debug)]
struct FakeSocket(Rc<RefCell<FakeApp>>);

impl Socket for FakeSocket {
    fn read(&mut self, into: &mut Vec<u8>) -> io::Result<usize> {
        let mut app = self.0.borrow_mut();
        app.reads += 1;
        let broken = app.broken;
        let Some(piece) = app.sends.front_mut() else {
            return Err(if broken {
                io::ErrorKind::ConnectionReset.into()
            } else {
                io::ErrorKind::WouldBlock.into()
            });
        };
        let count = piece.len().min(into.capacity() - into.len());
        into.extend(piece.drain(..count));
        if piece.is_empty() && count > 0 {
            app.sends.pop_front();
        }
        Ok(count)
    }

    fn is_drained(&self) -> bool {
        let app = self.0.borrow();
        app.tells && app.sends.is_empty()
    }

    fn write(&mut self, chunks: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut app = self.0.borrow_mut();
        if app.broken {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let most = app.room.min(app.call_max);
        let bytes = chunks.iter().flat_map(|chunk| chunk.iter().copied());
        let before = app.received.len();
        app.received.extend(bytes.take(most));
        let written = app.received.len() - before;
        app.room -= written;
        if written == 0 {
            Err(io::ErrorKind::WouldBlock.into())
        } else {
            Ok(written)
        }
    }

    fn finish(&mut self) -> io::Result<()> {
        let mut app = self.0.borrow_mut();
        if app.broken {
            return Err(io::ErrorKind::NotConnected.into());
        }
        app.finished = true;
        Ok(())
    }

    fn has_unread(&self) -> bool {
        !self.0.borrow().sends.is_empty()
    }

    fn unsent(&self) -> usize {
        usize::from(self.0.borrow().unsent)
    }

    fn abort(&mut self) {
        self.0.borrow_mut().aborted = true;
    }

    fn close(&mut self) {
        self.0.borrow_mut().closed = true;
    }
}

/// The tunnel's side of the bridge.
#[derive(Debug, Default)]
struct FakeStream {
    sent: Vec<u8>,
    credit: usize,
    fin_sent: bool,
    reset_sent: Option<FlowCode>,
    stop_sent: Option<FlowCode>,
    stopped: Option<u64>,
    /// Chunks that have arrived but were not read, by offset.
    arrived: BTreeMap<u64, Bytes>,
    read: u64,
    unordered: bool,
    fin_at: Option<u64>,
    reset: Option<u64>,
    reads: usize,
}

impl Stream for FakeStream {
    fn write(&mut self, chunk: &mut Bytes) -> WriteEnd {
        assert!(
            !self.fin_sent && self.reset_sent.is_none(),
            "bytes were written after the end"
        );
        if let Some(code) = self.stopped {
            return WriteEnd::Stopped(code);
        }
        if self.credit == 0 {
            return WriteEnd::Blocked;
        }
        let count = chunk.len().min(self.credit);
        self.credit -= count;
        self.sent.extend_from_slice(&chunk.split_to(count));
        if chunk.is_empty() {
            WriteEnd::Taken
        } else {
            WriteEnd::Blocked
        }
    }

    fn finish(&mut self) {
        assert!(self.reset_sent.is_none() && !self.fin_sent);
        self.fin_sent = true;
    }

    fn reset(&mut self, code: FlowCode) {
        assert!(self.reset_sent.is_none());
        self.reset_sent = Some(code);
    }

    fn read(&mut self, ordered: bool, max: usize, sink: &mut dyn FnMut(u64, Bytes)) -> ReadEnd {
        assert!(
            !(ordered && self.unordered),
            "an ordered read after an unordered one"
        );
        self.unordered |= !ordered;
        self.reads += 1;
        if let Some(code) = self.reset {
            return ReadEnd::Reset(code);
        }
        let mut left = max;
        loop {
            if left == 0 {
                return ReadEnd::More;
            }
            let next = self.arrived.first_entry();
            let Some(entry) = next.filter(|entry| !ordered || *entry.key() == self.read) else {
                let end = self.fin_at == Some(self.read) && self.arrived.is_empty();
                return if end {
                    ReadEnd::Finished
                } else {
                    ReadEnd::Blocked
                };
            };
            let (offset, mut chunk) = entry.remove_entry();
            let part = chunk.split_to(chunk.len().min(left));
            if chunk.has_remaining() {
                self.arrived.insert(offset + part.len() as u64, chunk);
            }
            left -= part.len();
            self.read += part.len() as u64;
            sink(offset, part);
        }
    }

    fn stop(&mut self, code: FlowCode) {
        assert!(self.stop_sent.is_none());
        self.stop_sent = Some(code);
    }
}

/// A flow with its socket and its stream.
struct Bridge {
    flow: Flow<FakeSocket>,
    app: Rc<RefCell<FakeApp>>,
    stream: FakeStream,
    buffer: ReadBuffer,
}

impl Bridge {
    fn new() -> Self {
        let app = FakeApp {
            room: usize::MAX,
            call_max: usize::MAX,
            ..FakeApp::default()
        };
        let app = Rc::new(RefCell::new(app));
        Self {
            flow: Flow::new(FakeSocket(app.clone()), Inlet::new()),
            app,
            stream: FakeStream {
                credit: usize::MAX,
                ..FakeStream::default()
            },
            buffer: ReadBuffer::default(),
        }
    }

    fn app_sends(&mut self, bytes: &[u8]) {
        self.app.borrow_mut().sends.push_back(bytes.to_vec());
        self.flow.handle_socket_ready(true, false);
    }

    fn pump_out(&mut self, budget: usize) -> ToTunnelStop {
        let mut left = budget;
        self.flow
            .pump_to_tunnel(&mut self.stream, &mut self.buffer, &mut left)
    }

    fn arrives(&mut self, offset: u64, bytes: &[u8]) -> ToAppStop {
        self.stream
            .arrived
            .insert(offset, Bytes::copy_from_slice(bytes));
        self.flow.inlet().handle_readable(1500);
        self.pump_in()
    }

    fn fin_arrives(&mut self, at: u64) -> ToAppStop {
        self.stream.fin_at = Some(at);
        self.flow.inlet().handle_readable(1500);
        self.pump_in()
    }

    fn reset_arrives(&mut self, code: FlowCode) -> ToAppStop {
        self.stream.reset = Some(code.to_u64());
        self.flow.inlet().handle_readable(1500);
        self.pump_in()
    }

    fn poll_reset(&mut self, answered: bool) {
        let confirmed = self.flow.unconfirmed_chunks() == 0;
        self.flow.poll_reset(&mut self.stream, answered, confirmed);
    }

    fn lose(&mut self) {
        self.flow
            .handle_connection_lost(&mut self.stream, FlowCode::ConnectionLost);
    }

    fn pump_in(&mut self) -> ToAppStop {
        self.flow.pump_to_app(&mut self.stream)
    }

    fn has_room(&mut self, room: usize) -> ToAppStop {
        self.app.borrow_mut().room = room;
        self.flow.handle_socket_ready(false, true);
        self.pump_in()
    }
}

fn text(length: usize) -> Vec<u8> {
    (0..length)
        .map(|at| u8::try_from(at * 31 % 251).expect("below 251"))
        .collect()
}
