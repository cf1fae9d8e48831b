//! The client's side: the stack in the other process, as the engine's loop sees it.
//!
//! ```text
//!  from the application   Readable ─► RECV ─► a piece kept here ─► the engine takes it ─► RECV ...
//!  to the application     the engine writes ─► SEND ─► taken: the engine may write again
//!                                                 └─► not all: the rest is kept here, SEND again after Writable
//! ```
//!
//! At most one call of each kind is under way for a flow, so that bytes cannot overtake each other. A buffer in shared
//! memory is allocated only for the duration of a call. Bytes that have to wait are kept in private memory, in a
//! bounded number of pieces for each flow and direction.

use std::cell::{Cell, RefCell, RefMut};
use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use quictun_ipc::{Advance, Allocation, Client, Executor, Message, Spawner, WaitPolicy};
use quictun_netstack::{Datagram, Event, MAX_PACKET, StackFlowId};

use super::message::{self, ACCEPT, CALLS, DATAGRAMS_ROOM, EVENTS, OK, REFUSE_DATAGRAM, RESET};

/// Limit for the two processes to set up their channel. A busy machine may start many processes at the same time.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// Length of the shared memory for payload, in bytes: many times what two processors can move between two turns.
const ARENA: u32 = 16 << 20;

/// Length of the first receive call of a flow, and the limit of a call if there are many flows. The stack takes as much
/// from one or two super-packets.
pub(super) const PIECE: u32 = 128 * 1024;

/// Largest number of a flow's bytes in one call: as much as the stack holds for it. A flow has one call of each kind
/// under way, so nothing moves while a process is being woken. Fewer and longer calls give the other side time to
/// gather bytes.
pub const PIECE_MOST: u32 = 4 * PIECE;

/// Largest number of flows that use the longest calls. With more flows, the arena has no room for them, and the kept
/// pieces would take too much memory.
pub(super) const FEW: usize = (ARENA / PIECE_MOST) as usize;

/// The shortest call that is worthwhile if the arena has little room.
pub(super) const PIECE_MIN: u32 = 4 * 1024;

/// Largest number of a flow's received pieces that wait for the engine.
pub(super) const PIECES: usize = 2;

/// Number of calls for events that are under way in advance.
pub(super) const AHEAD: usize = 64;

/// Number of calls for datagrams that are under way in advance: the other process fills one while this one reads another.
const ASKED: usize = 2;

/// Number of datagrams of programs that wait for the engine, from which on no more are called for. The stack keeps them.
pub(super) const DATAGRAMS_MANY: usize = 64;

/// Bytes of datagrams to programs that wait for the call before them. Chosen for a few calls.
const DATAGRAMS_WAITING: usize = 512 * 1024;

/// Largest number of calls under way that refuse datagrams: as many ICMP errors as the stack sends at once.
const REFUSALS: usize = 50;

/// Largest number of executor turns in one turn of the engine's loop.
const TURNS: usize = 8;

/// The other process with the network stack, driven by the engine's loop.
#[derive(Debug)]
pub struct NetstackProcess {
    executor: Executor,
    wakes: OwnedFd,
    /// True if the descriptor was readable.
    rung: bool,
    shared: Rc<RemoteStack>,
}

/// The part of [`NetstackProcess`] that its sockets share.
#[derive(Debug)]
pub struct RemoteStack {
    pub(super) client: Client,
    pub(super) spawner: Spawner,
    pub(super) flows: RefCell<BTreeMap<StackFlowId, RemoteFlow>>,
    pub(super) events: RefCell<VecDeque<Event>>,
    /// Datagrams of programs that wait for the engine.
    pub(super) datagrams: RefCell<VecDeque<Datagram>>,
    /// Number of datagrams that the stack has dropped, as it last told.
    pub(super) dropped_before: Cell<u32>,
    /// The part of them that [`Self::take_dropped`] has not returned.
    pub(super) dropped: Cell<u64>,
    /// The buffers of calls for datagrams that are not under way.
    pub(super) unused: RefCell<Vec<Allocation>>,
    /// Datagrams to programs that wait for a call, and their bytes.
    pub(super) replies: RefCell<VecDeque<Datagram>>,
    pub(super) reply_bytes: Cell<usize>,
    /// The buffer of the calls that send them. `None` while a coroutine has it.
    pub(super) reply_buffer: RefCell<Option<Allocation>>,
    /// Number of calls under way that refuse datagrams.
    refusals: Cell<usize>,
    /// Flows that found no room in the arena, each listed once.
    pub(super) starved: RefCell<VecDeque<StackFlowId>>,
    /// True if coroutines were spawned since the last turn.
    pub(super) spawned: Cell<bool>,
    pub(super) over: Cell<bool>,
}

#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "independent of each other")]
pub(super) struct RemoteFlow {
    pub(super) accepted: bool,
    pub(super) failed: bool,
    pub(super) ended: bool,
    /// The socket was dropped after both directions had ended.
    pub(super) dropped: bool,
    pub(super) receiving: bool,
    /// The stack has more bytes from the application.
    pub(super) more: bool,
    /// The application has finished after the received bytes.
    pub(super) end: bool,
    pub(super) received: VecDeque<Bytes>,
    /// Doublings of the length of receive calls. Rises if a call returns at least half full, and falls if it returns
    /// less than a quarter full.
    pub(super) full: u32,
    /// ACCEPT, SEND or FINISH is under way.
    pub(super) sending: bool,
    /// The stack has reported room since the last call.
    pub(super) room: bool,
    /// Bytes for the application that the stack had no room for.
    pub(super) rest: Bytes,
    /// The engine has more to write.
    pub(super) waiting: bool,
    pub(super) starved: bool,
    pub(super) finish: FinishState,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum FinishState {
    #[default]
    No,
    Wanted,
    Done,
}

impl RemoteFlow {
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

impl NetstackProcess {
    /// Connects to the process at the other end of the socket.
    pub fn new(socket: OwnedFd) -> io::Result<Self> {
        Self::with_arena(socket, ARENA)
    }

    pub(super) fn with_arena(socket: OwnedFd, arena: u32) -> io::Result<Self> {
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
            dropped_before: Cell::new(0),
            dropped: Cell::new(0),
            unused: RefCell::default(),
            replies: RefCell::default(),
            reply_bytes: Cell::new(0),
            reply_buffer: RefCell::default(),
            refusals: Cell::new(0),
            starved: RefCell::default(),
            spawned: Cell::new(true),
            over: Cell::new(false),
        });
        shared.spawn(EVENTS, shared.clone().listen());
        // There is room for these buffers at the start, and perhaps never again.
        *shared.reply_buffer.borrow_mut() = shared.client.reserve(DATAGRAMS_ROOM);
        for _ in 0..ASKED {
            if let Some(buffer) = shared.client.reserve(DATAGRAMS_ROOM) {
                shared.spawn(CALLS, shared.clone().receive_datagrams(buffer));
            }
        }
        Ok(Self {
            wakes: executor.descriptor()?,
            executor,
            rung: true,
            shared,
        })
    }

    /// Returns the stack as its sockets share it.
    pub fn shared(&self) -> &Rc<RemoteStack> {
        &self.shared
    }

    /// Returns the descriptor that is readable when there is something to do.
    pub fn wakes(&self) -> &OwnedFd {
        &self.wakes
    }

    /// Records that the descriptor is readable.
    pub fn handle_ready(&mut self) {
        self.rung = true;
    }

    /// Does the pending work. Returns whether there is more, or an error once the other process is gone.
    pub fn advance(&mut self) -> io::Result<bool> {
        if self.shared.over.get() {
            for flow in self.shared.flows.borrow_mut().values_mut() {
                flow.failed = true;
            }
            return Err(io::Error::other(
                "the process with the network stack is gone",
            ));
        }
        let spawned = self.shared.spawned.take();
        if !std::mem::take(&mut self.rung) && !spawned {
            return Ok(false);
        }
        for _ in 0..TURNS {
            match self.executor.advance() {
                Advance::Ready => {}
                Advance::Ended => self.shared.over.set(true),
                Advance::Asleep(_) if self.shared.spawned.take() => {}
                Advance::Asleep(_) => return Ok(self.shared.over.get()),
            }
        }
        self.rung = true;
        Ok(true)
    }
}

impl RemoteStack {
    pub(super) fn spawn(&self, priority: usize, future: impl Future<Output = ()> + 'static) {
        // There are only a few coroutines for each flow, unless the other process answers nothing. Such a process is as
        // good as gone.
        if !self.spawner.spawn(priority, future) {
            self.over.set(true);
        }
        self.spawned.set(true);
    }

    pub(super) fn most(&self) -> u32 {
        if self.flows.borrow().len() <= FEW {
            PIECE_MOST
        } else {
            PIECE
        }
    }

    pub(super) fn flow(&self, id: StackFlowId) -> Option<RefMut<'_, RemoteFlow>> {
        RefMut::filter_map(self.flows.borrow_mut(), |flows| flows.get_mut(&id)).ok()
    }

    /// Returns a flow that has not been reset.
    fn intact(&self, id: StackFlowId) -> io::Result<RefMut<'_, RemoteFlow>> {
        let flow = self.flow(id).filter(|flow| !flow.failed);
        Ok(flow.ok_or(io::ErrorKind::ConnectionReset)?)
    }

    /// Returns whether programs have not yet received or acknowledged everything sent to them.
    pub fn is_busy(&self) -> bool {
        !self.over.get() && !self.flows.borrow().is_empty()
    }

    /// Returns the next event, if there is one.
    pub fn poll_event(&self) -> Option<Event> {
        self.events.borrow_mut().pop_front()
    }

    /// Returns the next datagram, if there is one.
    pub fn poll_datagram(self: &Rc<Self>) -> Option<Datagram> {
        let mut datagrams = self.datagrams.borrow_mut();
        let next = datagrams.pop_front();
        if datagrams.len() < DATAGRAMS_MANY {
            for buffer in self.unused.take() {
                self.spawn(CALLS, self.clone().receive_datagrams(buffer));
            }
        }
        next
    }

    /// Returns how many datagrams the stack has dropped since the last call.
    pub fn take_dropped(&self) -> u64 {
        self.dropped.take()
    }

    /// Returns whether [`Self::poll_datagram`] would return a datagram.
    pub fn has_datagram(&self) -> bool {
        !self.datagrams.borrow().is_empty()
    }

    /// Sends a datagram to a program. Returns false, and drops it, if too many wait.
    pub fn send_datagram(self: &Rc<Self>, datagram: Datagram) -> bool {
        let bytes = self.reply_bytes.get() + message::datagram_len(datagram.payload.len());
        if bytes > DATAGRAMS_WAITING || datagram.payload.len() > MAX_PACKET {
            return false;
        }
        self.reply_bytes.set(bytes);
        self.replies.borrow_mut().push_back(datagram);
        let buffer = self.reply_buffer.borrow_mut().take();
        if let Some(buffer) = buffer {
            self.spawn(CALLS, self.clone().send_datagrams(buffer));
        }
        true
    }

    /// Tells a program that no datagram from `client` reaches `target`, unless many programs are being told.
    pub fn refuse_datagram(self: &Rc<Self>, client: SocketAddr, target: SocketAddr) {
        if self.refusals.get() >= REFUSALS {
            return;
        }
        self.refusals.set(self.refusals.get() + 1);
        let call = message::with_ends(Message::new(REFUSE_DATAGRAM), client, target);
        let this = self.clone();
        self.spawn(CALLS, async move {
            this.clone().tell(call).await;
            this.refusals.set(this.refusals.get() - 1);
        });
    }

    /// Makes a call whose answer does not matter. Without one, the other process is gone.
    async fn tell(self: Rc<Self>, call: Message) {
        if self.client.call(call).await.is_err() {
            self.over.set(true);
        }
    }

    /// Accepts the flow, because the server has reached the target.
    pub fn accept(self: &Rc<Self>, id: StackFlowId) {
        let Some(mut flow) = self.flow(id) else {
            return;
        };
        (flow.accepted, flow.sending) = (true, true);
        let this = self.clone();
        self.spawn(CALLS, async move {
            let answer = this.client.call(message::flow_message(ACCEPT, id)).await;
            if answer.is_ok_and(|answer| answer.op() == OK) {
                if let Some(mut flow) = this.flow(id) {
                    flow.sending = false;
                }
                this.write_more(id);
            } else if this
                .client
                .call(message::flow_message(RESET, id))
                .await
                .is_ok()
            {
                this.fail(id);
            }
        });
    }

    /// Takes at most `max` bytes of what the application sent. An empty result means that the application has finished.
    pub fn take(self: &Rc<Self>, id: StackFlowId, max: usize) -> io::Result<Bytes> {
        let mut flow = self.flow(id).ok_or(io::ErrorKind::ConnectionReset)?;
        let (end, failed) = (flow.end, flow.failed);
        // The answer to a call that is under way may bring bytes from before a reset.
        let waits = flow.receiving && !self.over.get();
        let Some(first) = flow.received.front_mut() else {
            return if end {
                Ok(Bytes::new())
            } else if failed && !waits {
                Err(io::ErrorKind::ConnectionReset.into())
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

    /// Returns whether bytes from the application wait, or may be on their way.
    pub(super) fn has_unread(&self, id: StackFlowId) -> bool {
        let flow = self.flow(id);
        flow.is_some_and(|flow| !flow.received.is_empty() || flow.receiving || flow.more)
    }

    /// Returns how many of the written bytes the stack has not taken, and one more if a call is under way.
    pub(super) fn unsent(&self, id: StackFlowId) -> usize {
        let flow = self.flow(id).filter(|flow| !flow.failed && !flow.ended);
        flow.map_or(0, |flow| flow.rest.len() + usize::from(flow.sending))
    }

    /// Sends bytes to the application. Returns how many were taken.
    pub fn write(self: &Rc<Self>, id: StackFlowId, chunks: &[IoSlice<'_>]) -> io::Result<usize> {
        let most = self.most();
        let mut flow = self.intact(id)?;
        if flow.finish != FinishState::No {
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

    /// Finishes the direction to the application, after everything that was written.
    pub fn finish(self: &Rc<Self>, id: StackFlowId) -> io::Result<()> {
        let mut flow = self.intact(id)?;
        flow.finish = FinishState::Wanted;
        drop(flow);
        self.write_more(id);
        Ok(())
    }

    /// Records that the flow's socket was dropped. Resets the flow, unless both directions had ended (`in_order`).
    pub fn leave(self: &Rc<Self>, id: StackFlowId, in_order: bool) {
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
            // The flow may no longer exist. Then there is nothing left to reset.
            self.spawn(CALLS, self.clone().tell(message::flow_message(RESET, id)));
        }
    }
}
