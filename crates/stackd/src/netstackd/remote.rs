//! The client's side: the stack in the other process, as far as the engine's loop sees it.
//!
//! ```text
//!  from the application   Readable ─► RECV ─► a piece kept here ─► the engine takes it ─► RECV ...
//!  to the application     the engine writes ─► SEND ─► taken: the engine may write again
//!                                                 └─► not all: the rest is kept here, SEND again after Writable
//! ```
//!
//! One call of each kind is under way for a flow, so that nothing is overtaken. Buffers in shared memory are taken for
//! the length of a call; what waits for somebody waits in memory of our own, a bounded piece for each flow and direction.

use std::cell::{Cell, RefCell, RefMut};
use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use quictun_ipc::{Advance, Client, Executor, Message, Spawner, WaitPolicy};
use quictun_netstack::{Datagram, Event, FlowId};

use super::message::{self, ACCEPT, CALLS, DATAGRAM_MAX, EVENTS, OK, RESET, SEND_DATAGRAM};

/// How long the two processes wait for each other at their start: either may be one of many that a busy machine starts.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// Shared memory for payload under way: enough for many times what two processors can move between two turns.
const ARENA: u32 = 16 << 20;

/// What is received in one call at first, and the most that is moved in one where there are many flows: what the stack takes
/// from a super-packet or two.
pub(super) const PIECE: u32 = 128 * 1024;

/// Most of a flow's bytes in one call: as much as the stack has of it. Of each kind only one is under way for a flow, so that
/// nobody moves anything while a process is woken; and who calls seldom leaves the other time to gather.
pub const PIECE_MOST: u32 = 4 * PIECE;

/// Flows of which as much is moved: of more, the arena has no room for so much, nor should memory be kept for it.
pub(super) const FEW: usize = (ARENA / PIECE_MOST) as usize;

/// Where the arena has no room for more, a piece is still worth a call.
pub(super) const PIECE_MIN: u32 = 4 * 1024;

/// Pieces of a flow that wait for the engine.
pub(super) const PIECES: usize = 2;

/// Events that are asked for before there are any.
pub(super) const AHEAD: usize = 64;

/// Datagrams that are asked for before there are any.
const ASKED: usize = 4;

/// Turns of the coroutines in one turn of the engine's loop.
const TURNS: usize = 8;

/// The other process. See the module documentation.
#[derive(Debug)]
pub struct Remote {
    executor: Executor,
    wakes: OwnedFd,
    /// The descriptor was readable.
    rang: bool,
    shared: Rc<RemoteStack>,
}

/// The part that its sockets share.
#[derive(Debug)]
pub struct RemoteStack {
    pub(super) client: Client,
    pub(super) spawner: Spawner,
    pub(super) flows: RefCell<BTreeMap<FlowId, Flow>>,
    pub(super) events: RefCell<VecDeque<Event>>,
    pub(super) datagrams: RefCell<VecDeque<Datagram>>,
    /// Flows that found no room in the arena, each once.
    pub(super) starved: RefCell<VecDeque<FlowId>>,
    /// Coroutines were spawned.
    pub(super) stirred: Cell<bool>,
    pub(super) over: Cell<bool>,
}

#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "independent of each other")]
pub(super) struct Flow {
    pub(super) accepted: bool,
    pub(super) failed: bool,
    pub(super) ended: bool,
    /// Its socket is gone, in good order.
    pub(super) dropped: bool,
    pub(super) receiving: bool,
    /// The application has sent more.
    pub(super) more: bool,
    /// The application has finished behind what was received.
    pub(super) end: bool,
    pub(super) received: VecDeque<Bytes>,
    /// How often calls have come back half full or more rather than nearly empty, as far as that matters.
    pub(super) full: u32,
    /// ACCEPT, SEND or FINISH is under way.
    pub(super) sending: bool,
    /// The stack has room, as far as is known.
    pub(super) room: bool,
    /// Bytes for the application that the stack had no room for.
    pub(super) rest: Bytes,
    /// The engine has more to write.
    pub(super) waiting: bool,
    pub(super) starved: bool,
    pub(super) finish: Finish,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Finish {
    #[default]
    No,
    Wanted,
    Done,
}

impl Flow {
    pub(super) fn piece(&self) -> u32 {
        (PIECE << self.full).min(PIECE_MOST)
    }

    pub(super) fn note_received(&mut self, asked: u32, came: u32) {
        if came >= asked / 2 {
            self.full = (self.full + 1).min((PIECE_MOST / PIECE).ilog2());
        } else if came < asked / 4 {
            self.full = self.full.saturating_sub(1);
        }
    }
}

impl Remote {
    /// Meets the process at the other end of the socket.
    pub fn new(socket: OwnedFd, names: bool) -> io::Result<Self> {
        Self::with_arena(socket, names, ARENA)
    }

    pub(super) fn with_arena(socket: OwnedFd, names: bool, arena: u32) -> io::Result<Self> {
        let generation = u64::from(std::process::id());
        let channel = quictun_ipc::connect(socket, arena, generation, PATIENCE);
        let channel = channel.map_err(io::Error::other)?;
        let (client, executor) = Client::new(channel, WaitPolicy::Hybrid);
        let shared = Rc::new(RemoteStack {
            client,
            spawner: executor.spawner(),
            flows: RefCell::default(),
            events: RefCell::default(),
            datagrams: RefCell::default(),
            starved: RefCell::default(),
            stirred: Cell::new(true),
            over: Cell::new(false),
        });
        shared.spawn(EVENTS, shared.clone().listen());
        for _ in 0..if names { ASKED } else { 0 } {
            shared.spawn(CALLS, shared.clone().receive_datagrams());
        }
        Ok(Self {
            wakes: executor.descriptor()?,
            executor,
            rang: true,
            shared,
        })
    }

    /// The stack, as its sockets share it.
    pub fn shared(&self) -> &Rc<RemoteStack> {
        &self.shared
    }

    /// Readable when there is something to do.
    pub fn wakes(&self) -> &OwnedFd {
        &self.wakes
    }

    /// Notes that the descriptor is readable.
    pub fn handle_ready(&mut self) {
        self.rang = true;
    }

    /// Does what there is to do; whether there is more. An error once the other process is gone.
    pub fn advance(&mut self) -> io::Result<bool> {
        if self.shared.over.get() {
            for flow in self.shared.flows.borrow_mut().values_mut() {
                flow.failed = true;
            }
            return Err(io::Error::other(
                "the process with the network stack is gone",
            ));
        }
        let stirred = self.shared.stirred.take();
        if !std::mem::take(&mut self.rang) && !stirred {
            return Ok(false);
        }
        for _ in 0..TURNS {
            match self.executor.advance() {
                Advance::Ready => {}
                Advance::Ended => self.shared.over.set(true),
                Advance::Asleep(_) if self.shared.stirred.take() => {}
                Advance::Asleep(_) => return Ok(self.shared.over.get()),
            }
        }
        self.rang = true;
        Ok(true)
    }
}

impl RemoteStack {
    pub(super) fn spawn(&self, priority: usize, future: impl Future<Output = ()> + 'static) {
        // There are never as many, a few for each flow, unless the other process answers nothing: then it is as good as
        // gone.
        if !self.spawner.spawn(priority, future) {
            self.over.set(true);
        }
        self.stirred.set(true);
    }

    pub(super) fn most(&self) -> u32 {
        if self.flows.borrow().len() <= FEW {
            PIECE_MOST
        } else {
            PIECE
        }
    }

    pub(super) fn flow(&self, id: FlowId) -> Option<RefMut<'_, Flow>> {
        RefMut::filter_map(self.flows.borrow_mut(), |flows| flows.get_mut(&id)).ok()
    }

    /// A flow that was not reset.
    fn intact(&self, id: FlowId) -> io::Result<RefMut<'_, Flow>> {
        let flow = self.flow(id).filter(|flow| !flow.failed);
        Ok(flow.ok_or(io::ErrorKind::ConnectionReset)?)
    }

    /// Whether programs have not got or acknowledged all that was sent to them.
    pub fn is_busy(&self) -> bool {
        !self.over.get() && !self.flows.borrow().is_empty()
    }

    /// The next event, if there is one.
    pub fn poll_event(&self) -> Option<Event> {
        self.events.borrow_mut().pop_front()
    }

    /// The next datagram, if there is one.
    pub fn poll_datagram(&self) -> Option<Datagram> {
        self.datagrams.borrow_mut().pop_front()
    }

    /// Sends a datagram to a program, or drops it.
    pub fn send_datagram(self: &Rc<Self>, datagram: &Datagram) {
        let bytes = message::encode_datagram(datagram);
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        if bytes.len() > DATAGRAM_MAX {
            return;
        }
        let Some(buffer) = self.client.reserve(length) else {
            return;
        };
        self.client
            .with_channel(|channel| channel.write(&buffer, 0, &bytes));
        let this = self.clone();
        self.spawn(CALLS, async move {
            this.call(Message::new(SEND_DATAGRAM), buffer, |_, _| ())
                .await;
        });
    }

    /// The server has reached the target.
    pub fn accept(self: &Rc<Self>, id: FlowId) {
        let Some(mut flow) = self.flow(id) else {
            return;
        };
        (flow.accepted, flow.sending) = (true, true);
        let this = self.clone();
        self.spawn(CALLS, async move {
            let answer = this.client.call(message::about(ACCEPT, id)).await;
            if answer.is_ok_and(|answer| answer.op() == OK) {
                if let Some(mut flow) = this.flow(id) {
                    flow.sending = false;
                }
                this.push_on(id);
            } else if this.client.call(message::about(RESET, id)).await.is_ok() {
                this.fail(id);
            }
        });
    }

    /// The next piece of what the application sends, at most so long; empty is its end.
    pub fn take(self: &Rc<Self>, id: FlowId, max: usize) -> io::Result<Bytes> {
        let mut flow = self.intact(id)?;
        let Some(first) = flow.received.front_mut() else {
            return if flow.end {
                Ok(Bytes::new())
            } else {
                Err(io::ErrorKind::WouldBlock.into())
            };
        };
        let piece = first.split_to(max.min(first.len()));
        if first.is_empty() {
            flow.received.pop_front();
        }
        drop(flow);
        self.fetch(id);
        Ok(piece)
    }

    /// Sends to the application; how many bytes were taken.
    pub fn write(self: &Rc<Self>, id: FlowId, chunks: &[IoSlice<'_>]) -> io::Result<usize> {
        let most = self.most();
        let mut flow = self.intact(id)?;
        if flow.finish != Finish::No {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let length: usize = chunks.iter().map(|chunk| chunk.len()).sum();
        if length == 0 {
            return Ok(0);
        }
        flow.waiting = true;
        if !flow.accepted || flow.sending || !flow.rest.is_empty() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let length = u32::try_from(length).unwrap_or(u32::MAX).min(most);
        let Some(buffer) = self.reserve(id, &mut flow, length) else {
            return Err(io::ErrorKind::WouldBlock.into());
        };
        let mut at = 0;
        self.client.with_channel(|channel| {
            for chunk in chunks {
                let part = chunk.len().min((buffer.len() - at) as usize);
                channel.write(&buffer, at, &chunk[..part]);
                at += u32::try_from(part).unwrap_or_default();
            }
        });
        flow.waiting = false;
        flow.sending = true;
        drop(flow);
        self.spawn(CALLS, self.clone().send(id, buffer));
        Ok(at as usize)
    }

    /// Finishes our direction, behind everything that was written.
    pub fn finish(self: &Rc<Self>, id: FlowId) -> io::Result<()> {
        let mut flow = self.intact(id)?;
        flow.finish = Finish::Wanted;
        drop(flow);
        self.push_on(id);
        Ok(())
    }

    /// The socket is gone; the flow as well, unless both directions had ended in good order.
    pub fn leave(self: &Rc<Self>, id: FlowId, in_order: bool) {
        let Some(mut flow) = self.flow(id) else {
            return;
        };
        let stays = in_order && !flow.failed && !flow.ended;
        flow.dropped = true;
        let known = !flow.failed && !flow.ended;
        drop(flow);
        if stays {
            return;
        }
        self.flows.borrow_mut().remove(&id);
        if known {
            let this = self.clone();
            self.spawn(CALLS, async move {
                // It may be gone: then there is nothing left to reset.
                if this.client.call(message::about(RESET, id)).await.is_err() {
                    this.over.set(true);
                }
            });
        }
    }
}
