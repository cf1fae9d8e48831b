//! netstackd's side: the device, the stack, and the answers to the client's calls.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Instant;

use quictun_ipc::{
    Advance, Channel, Executor, HandshakeError, MAX_AHEAD, Message, PeerPayload, Request, Server,
    Spawner, WaitPolicy,
};
use quictun_netstack::{Event, FlowError, Stack, StackFlowId, StackRead};
use quictun_sys::Tun;
use quictun_sys::confine::ConfineError;

use super::message::{
    self, ACCEPT, CALLS, DATAGRAM_MAX, DATAGRAMS_ROOM, END, EVENTS, FINISH, GONE, LATER, LISTEN,
    MALFORMED, MORE, OK, RECV, RECV_DATAGRAMS, REFUSE_DATAGRAM, RESET, SEND, SEND_DATAGRAMS,
};
use crate::frames::{Frames, new_stack};
use quictun_io::poller::{Key, Poller, WaitPlan};
use quictun_io::spin::Spin;

/// Largest number of frames taken before their effects are handled. With more, short flows wait for bulk flows.
const FRAMES: usize = 32;

/// Number of flows to reset before the resets are sent. The stack queues no more than a few thousand of them.
const RESETS: usize = 1000;

/// The reason why the process could not serve, or why it ended.
#[derive(Debug, thiserror::Error)]
pub enum NetstackError {
    /// The channel to the client could not be set up.
    #[error("cannot set up the memory shared with the client")]
    Client(#[from] HandshakeError),
    /// A right could not be given up.
    #[error(transparent)]
    Confine(#[from] ConfineError),
    /// The device is gone, or waiting for it failed.
    #[error("cannot read, write or wait for the device")]
    Device(#[from] io::Error),
}

pub(super) struct StackServer {
    frames: Frames<Tun>,
    shared: Rc<ServingState>,
    executor: Executor,
    wakes: OwnedFd,
    poller: Poller,
    spin: Spin,
}

struct ServingState {
    stack: RefCell<Stack>,
    now: Cell<Instant>,
    server: Server,
    spawner: Spawner,
    listening: RefCell<VecDeque<Request>>,
    receiving: RefCell<VecDeque<Request>>,
    /// An event that no call has asked for yet. Further events stay in the stack.
    next: Cell<Option<Event>>,
    reporting: Cell<bool>,
    /// Number of bytes that calls have moved in this turn.
    moved: Cell<usize>,
}

impl StackServer {
    pub(super) fn new(tun: Tun, channel: Channel) -> io::Result<Self> {
        let now = Instant::now();
        let stack = new_stack(now)?;
        let (server, executor) = Server::new(channel, WaitPolicy::Hybrid);
        let wakes = executor.descriptor()?;
        let poller = Poller::new()?;
        poller.add_input(&tun, Key::Tun)?;
        poller.add_input(&wakes, Key::Wake)?;
        let shared = Rc::new(ServingState {
            stack: RefCell::new(stack),
            now: Cell::new(now),
            server,
            spawner: executor.spawner(),
            listening: RefCell::default(),
            receiving: RefCell::default(),
            next: Cell::new(None),
            reporting: Cell::new(false),
            moved: Cell::new(0),
        });
        shared
            .spawner
            .spawn(CALLS, ServingState::answer_all(shared.clone()));
        Ok(Self {
            frames: Frames::new(tun),
            shared,
            executor,
            wakes,
            poller,
            spin: Spin::default(),
        })
    }

    pub(super) fn run(mut self) -> io::Result<()> {
        let mut ready = Vec::new();
        loop {
            let before = Instant::now();
            self.shared.now.set(before);
            let mut busy = self.take_frames()?;
            let due = self.shared.stack.borrow().next_timeout();
            if due.is_some_and(|at| at <= before) {
                self.shared.stack.borrow_mut().handle_timeout(before);
            }
            self.shared.report_events();
            match self.executor.advance() {
                Advance::Ended => break,
                Advance::Ready => busy = true,
                Advance::Asleep(_) => {}
            }
            busy |= self.transmit()?;
            busy |= self.shared.report_events();
            self.spin.note_bulk(self.shared.moved.take());
            if busy {
                continue;
            }
            let until = self.shared.stack.borrow().next_timeout();
            let plan = WaitPlan {
                polling: self.spin.budget(),
                ..WaitPlan::default()
            };
            let start = Instant::now();
            self.poller.wait(until, plan, &mut ready)?;
            self.spin.note_wait(start.elapsed());
        }
        self.reset_all()
    }

    /// Takes a bounded number of frames. Returns whether there may be more.
    fn take_frames(&mut self) -> io::Result<bool> {
        let stack = &mut self.shared.stack.borrow_mut();
        let taken = self.frames.take(self.shared.now.get(), FRAMES, stack)?;
        Ok(taken == FRAMES)
    }

    /// Returns whether there is more to transmit.
    fn transmit(&mut self) -> io::Result<bool> {
        let stack = &mut self.shared.stack.borrow_mut();
        self.frames.transmit(self.shared.now.get(), stack)?;
        Ok(stack.has_outgoing_datagram())
    }

    /// Resets all flows, because the client is gone. The applications see a reset.
    fn reset_all(mut self) -> io::Result<()> {
        let flows = self.shared.stack.borrow().flow_ids();
        for some in flows.chunks(RESETS) {
            for flow in some {
                let gone = self.shared.stack.borrow_mut().reset(*flow).is_err();
                debug_assert!(!gone, "a listed flow no longer exists");
            }
            self.transmit()?;
        }
        drop(self.wakes);
        Ok(())
    }
}

impl ServingState {
    async fn answer_all(self: Rc<Self>) {
        while let Ok(request) = self.server.recv().await {
            let waiting = match request.message().op() {
                LISTEN => Some(&self.listening),
                RECV_DATAGRAMS if room(&request) >= DATAGRAM_MAX => Some(&self.receiving),
                _ => None,
            };
            if let Some(waiting) = waiting {
                let mut waiting = waiting.borrow_mut();
                if waiting.len() >= MAX_AHEAD {
                    // An honest client never asks for so many in advance.
                    return;
                }
                waiting.push_back(request);
                continue;
            }
            let answer = self.answer(&request);
            if self.server.reply(request, answer).await.is_err() {
                return;
            }
        }
    }

    fn answer(&self, request: &Request) -> Message {
        let message = request.message();
        let flow = StackFlowId::from_bits(message.arg());
        let now = self.now.get();
        let done = |outcome: Result<(), FlowError>| match outcome {
            Ok(()) => Message::new(OK),
            Err(FlowError::NoMemory) if message.op() == FINISH => Message::new(LATER),
            Err(_) => Message::new(GONE),
        };
        match (message.op(), request.buffer()) {
            (ACCEPT, _) => done(self.stack.borrow_mut().accept(now, flow)),
            (FINISH, _) => done(self.stack.borrow_mut().finish(now, flow)),
            (RESET, _) => done(self.stack.borrow_mut().reset_after_sent(now, flow)),
            (RECV, Some(buffer)) => self.receive(flow, buffer),
            (SEND, Some(buffer)) => self.send(flow, buffer),
            (SEND_DATAGRAMS, Some(buffer)) => {
                let length = message.arg().min(buffer.len().min(DATAGRAMS_ROOM).into());
                let mut bytes = vec![0; usize::try_from(length).unwrap_or_default()];
                self.server
                    .with_channel(|channel| channel.read(buffer, 0, &mut bytes));
                let mut rest = bytes.as_slice();
                while let Some(datagram) = message::next_datagram(&mut rest) {
                    // The stack counts those that it drops, and the answer tells that.
                    let _sent = self.stack.borrow_mut().send_datagram(&datagram);
                }
                self.moved.set(self.moved.get() + bytes.len());
                Message::new(OK).with_arg(self.with_dropped(0))
            }
            (REFUSE_DATAGRAM, _) => match message::ends_of(message) {
                Some((client, target)) => {
                    let stack = &mut self.stack.borrow_mut();
                    stack.refuse_datagram(now, client, target);
                    Message::new(OK)
                }
                None => Message::new(MALFORMED),
            },
            _ => Message::new(MALFORMED),
        }
    }

    /// Copies bytes from the stack's buffers into the client's.
    fn receive(&self, flow: StackFlowId, buffer: PeerPayload) -> Message {
        let stack = &mut *self.stack.borrow_mut();
        let (mut taken, mut flags) = (0, MORE);
        while taken < buffer.len() {
            let read = stack.read(self.now.get(), flow, |bytes| {
                let part = bytes.len().min((buffer.len() - taken) as usize);
                self.server
                    .with_channel(|channel| channel.answer(buffer, taken, &bytes[..part]));
                part
            });
            match read {
                // The length fits, because it does not exceed the buffer's.
                Ok(StackRead::Data(length)) => taken += u32::try_from(length).unwrap_or_default(),
                Ok(StackRead::Empty) => {
                    flags = 0;
                    break;
                }
                Ok(StackRead::Finished) => {
                    flags = END;
                    break;
                }
                // The next call reports the error, once the bytes before it have been read.
                Err(_) if taken > 0 => break,
                Err(_) => return Message::new(GONE),
            }
        }
        self.moved.set(self.moved.get() + taken as usize);
        Message::new(OK).with_arg(u64::from(taken) | flags)
    }

    /// Copies bytes from the client's buffers into the stack's.
    fn send(&self, flow: StackFlowId, buffer: PeerPayload) -> Message {
        let stack = &mut *self.stack.borrow_mut();
        let mut taken = 0;
        // The room may be in two pieces.
        for _ in 0..2 {
            let written = stack.write_with(self.now.get(), flow, |room| {
                let part = room.len().min((buffer.len() - taken) as usize);
                self.server
                    .with_channel(|channel| channel.read(buffer, taken, &mut room[..part]));
                part
            });
            match written {
                Ok(length) => taken += u32::try_from(length).unwrap_or_default(),
                Err(_) => return Message::new(GONE),
            }
            if taken == buffer.len() {
                break;
            }
        }
        self.moved.set(self.moved.get() + taken as usize);
        Message::new(OK).with_arg(u64::from(taken))
    }

    /// Makes sure that events and datagrams are delivered if calls wait for them. Returns whether there are any.
    fn report_events(self: &Rc<Self>) -> bool {
        let some = self.has_event() || self.has_datagram();
        if some && !self.reporting.replace(true) {
            self.spawner.spawn(EVENTS, self.clone().report_all());
        }
        some
    }

    fn has_event(&self) -> bool {
        if self.listening.borrow().is_empty() {
            return false;
        }
        let next = self
            .next
            .take()
            .or_else(|| self.stack.borrow_mut().poll_event());
        self.next.set(next);
        next.is_some()
    }

    fn has_datagram(&self) -> bool {
        !self.receiving.borrow().is_empty() && self.stack.borrow().next_datagram_len().is_some()
    }

    async fn report_all(self: Rc<Self>) {
        while self.has_event() {
            let (event, request) = (self.next.take(), self.listening.borrow_mut().pop_front());
            let (Some(event), Some(request)) = (event, request) else {
                break;
            };
            let told = self.server.reply(request, message::encode_event(event));
            if told.await.is_err() {
                break;
            }
        }
        while self.has_datagram() {
            let Some(request) = self.receiving.borrow_mut().pop_front() else {
                break;
            };
            let bytes = self.take_datagrams(room(&request));
            if let Some(buffer) = request.buffer() {
                self.server
                    .with_channel(|channel| channel.answer(buffer, 0, &bytes));
            }
            let length = self.with_dropped(bytes.len() as u64);
            let told = self
                .server
                .reply(request, Message::new(OK).with_arg(length));
            if told.await.is_err() {
                break;
            }
        }
        self.reporting.set(false);
    }

    fn with_dropped(&self, length: u64) -> u64 {
        let dropped = self.stack.borrow().counters().datagrams_dropped;
        message::with_dropped(length, dropped)
    }

    /// Takes as many datagrams from the stack as have room in a buffer.
    fn take_datagrams(&self, room: usize) -> Vec<u8> {
        let stack = &mut self.stack.borrow_mut();
        let mut bytes = Vec::new();
        while let Some(length) = stack.next_datagram_len()
            && bytes.len() + message::datagram_len(length) <= room
            && let Some(datagram) = stack.poll_datagram()
        {
            message::append_datagram(&mut bytes, &datagram);
        }
        self.moved.set(self.moved.get() + bytes.len());
        bytes
    }
}

fn room(request: &Request) -> usize {
    request.buffer().map_or(0, |buffer| buffer.len() as usize)
}
