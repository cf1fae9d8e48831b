//! The calling end of a channel.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use quictun_shmq::{Channel, ChannelError, Counters, Message, Reserved, Violation, Wants};

use crate::calls::{Blocked, Calls};
use crate::executor::{Executor, Port};
use crate::message::{BUFFER, CALL, SEND};
use crate::patience::{Owed, Patience};
use crate::schedule::Schedule;
use crate::wait::WaitPolicy;
use crate::waiters::Ticket;

/// A handle that makes calls to the server. Clones share the same channel.
#[derive(Clone, Debug)]
pub struct Client(Rc<Shared>);

#[derive(Debug)]
struct Shared {
    channel: Rc<RefCell<Channel>>,
    schedule: Rc<Schedule>,
    calls: RefCell<Calls>,
    patience: Option<RefCell<Patience>>,
}

impl Client {
    /// Creates a client on the channel, and the executor that runs its coroutines.
    pub fn new(channel: Channel, policy: WaitPolicy) -> (Self, Executor) {
        Self::with_patience(channel, policy, None)
    }

    /// Like [`new`](Self::new), with a limit on the server's silence. The channel ends if the server leaves all calls
    /// unanswered for `patience`, or if it makes no room in the ring for as long.
    pub fn with_patience(
        channel: Channel,
        policy: WaitPolicy,
        patience: Option<Duration>,
    ) -> (Self, Executor) {
        let schedule = Rc::new(Schedule::new(channel.alarm()));
        let channel = Rc::new(RefCell::new(channel));
        let shared = Rc::new(Shared {
            channel: channel.clone(),
            schedule: schedule.clone(),
            calls: RefCell::default(),
            patience: patience.map(Patience::new).map(RefCell::new),
        });
        let executor = Executor::new(channel, shared.clone(), schedule, policy);
        (Self(shared), executor)
    }

    /// Calls the server and returns the answer. Dropping the future abandons the call, which the server may still
    /// execute.
    #[inline]
    pub fn call(&self, message: Message) -> Call<'_> {
        Call {
            client: self,
            message,
            flags: CALL,
            stage: Stage::New,
            blocked: None,
            buffer: None,
        }
    }

    /// Calls the server with a buffer ([`reserve`](Self::reserve)), which the server reads and may overwrite with its
    /// answer. [`Call::buffer`] returns the buffer after the answer has arrived.
    pub fn call_with(&self, message: Message, buffer: Reserved) -> Call<'_> {
        let mut call = self.call(message.with_payload(buffer.off(), buffer.len()));
        (call.flags, call.buffer) = (CALL | BUFFER, Some(buffer));
        call
    }

    /// Sends a message that has no answer. Completes once the message is in the ring. Dropping the future before that
    /// sends nothing.
    pub async fn send(&self, message: Message) -> Result<(), ChannelError> {
        let message = message.with_call(0, SEND);
        let mut waiting = WaitingToSend {
            client: self,
            ticket: None,
        };
        poll_fn(|context| {
            let calls = &mut *self.0.calls.borrow_mut();
            if let Some(error) = calls.over {
                return Poll::Ready(Err(error));
            }
            let channel = &mut *self.0.channel.borrow_mut();
            match channel.stage(message) {
                Ok(true) => {
                    if calls.pace.is_late() {
                        channel.flush();
                    }
                    Poll::Ready(Ok(()))
                }
                Ok(false) => {
                    let wakes = self.0.schedule.wakes(context.waker());
                    waiting.ticket = Some(calls.roomless.enter(waiting.ticket, wakes));
                    Poll::Pending
                }
                Err(error) => Poll::Ready(Err(error)),
            }
        })
        .await
    }

    /// Allocates a contiguous buffer of `len` bytes in the arena, if there is one.
    pub fn reserve(&self, len: u32) -> Option<Reserved> {
        self.0.channel.borrow_mut().reserve(len)
    }

    /// Frees a buffer that was reserved and not sent.
    pub fn release(&self, buffer: Reserved) {
        self.0.channel.borrow_mut().release(buffer);
    }

    /// Calls `action` with the channel, for access to buffers. `action` must not use this client.
    pub fn with_channel<T>(&self, action: impl FnOnce(&mut Channel) -> T) -> T {
        action(&mut self.0.channel.borrow_mut())
    }

    /// Returns the channel's statistics.
    pub fn counters(&self) -> Counters {
        self.0.channel.borrow().counters()
    }
}

/// Cancels the wait for room when it is dropped.
struct WaitingToSend<'a> {
    client: &'a Client,
    ticket: Option<Ticket>,
}

impl Drop for WaitingToSend<'_> {
    fn drop(&mut self) {
        // If the borrow fails, all waiters are being woken, and there is no entry left to remove.
        if let Some(ticket) = self.ticket
            && let Ok(mut calls) = self.client.0.calls.try_borrow_mut()
        {
            calls.roomless.leave(ticket);
        }
    }
}

/// A call under way; resolves to its answer.
#[must_use = "nothing is sent until the call is polled"]
#[derive(Debug)]
pub struct Call<'a> {
    client: &'a Client,
    message: Message,
    flags: u16,
    stage: Stage,
    /// The queue in which the call waits before it is sent.
    blocked: Option<Blocked>,
    buffer: Option<Reserved>,
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    New,
    Sent(u32),
    Done,
}

impl Call<'_> {
    #[cold]
    #[inline(never)]
    fn forget(&mut self) {
        let shared = &*self.client.0;
        let mut buffer = self.buffer.take();
        if let Some(blocked) = self.blocked.take()
            && let Ok(mut calls) = shared.calls.try_borrow_mut()
        {
            calls.leave(blocked);
        }
        if let Stage::Sent(cid) = self.stage {
            let calls = &mut *shared.calls.borrow_mut();
            if calls.take(cid).is_none() && calls.over.is_none() {
                calls.abandon(cid, buffer.take());
            }
        }
        if let Some(buffer) = buffer {
            shared.channel.borrow_mut().release(buffer);
        }
    }

    pub(crate) fn is_under_way(&self) -> bool {
        matches!(self.stage, Stage::Sent(_))
    }

    /// Returns the buffer, once the call has ended.
    pub fn buffer(&mut self) -> Option<Reserved> {
        matches!(self.stage, Stage::Done)
            .then(|| self.buffer.take())
            .flatten()
    }
}

impl Future for Call<'_> {
    type Output = Result<Message, ChannelError>;

    // Inlined, with the usual paths first and separate. If the answer shared its place in memory with errors, it would
    // be copied in partial pieces (see `Message`).
    #[inline(always)]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let shared = &*self.client.0;
        let calls = &mut *shared.calls.borrow_mut();
        let wakes = || shared.schedule.wakes(context.waker());
        match self.stage {
            Stage::Sent(cid) => {
                if let Some(answer) = calls.take(cid) {
                    self.stage = Stage::Done;
                    return Poll::Ready(Ok(answer));
                }
                if calls.over.is_none() {
                    calls.wait(cid, wakes());
                    return Poll::Pending;
                }
            }
            Stage::New => {
                let this = &mut *self;
                if let Some(blocked) = this.blocked.take() {
                    calls.leave(blocked);
                }
                let channel = &mut *shared.channel.borrow_mut();
                let (message, schedule) = (&this.message, &*shared.schedule);
                let blocked = &mut this.blocked;
                match calls.start(message, this.flags, channel, schedule, blocked, wakes) {
                    Ok(Some(cid)) => {
                        self.stage = Stage::Sent(cid);
                        return Poll::Pending;
                    }
                    Ok(None) => return Poll::Pending,
                    Err(error) => {
                        self.stage = Stage::Done;
                        return Poll::Ready(Err(error));
                    }
                }
            }
            Stage::Done => {}
        }
        self.stage = Stage::Done;
        Poll::Ready(Err(calls.why_over()))
    }
}

impl Drop for Call<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        if matches!(self.stage, Stage::Sent(_)) || self.buffer.is_some() || self.blocked.is_some() {
            self.forget();
        }
    }
}

impl Port for Shared {
    fn pump(&self, schedule: &Schedule) {
        let calls = &mut *self.calls.borrow_mut();
        calls.pace.begin();
        if calls.over.is_some() {
            return;
        }
        let channel = &mut *self.channel.borrow_mut();
        if let Err(error) = calls.pump(channel, schedule) {
            return calls.end(error, schedule);
        }
        calls.unblock(channel, schedule);
    }

    fn wants(&self) -> Wants {
        let calls = self.calls.borrow();
        // After the end of the channel, every waiter has been notified.
        let is_on = calls.over.is_none();
        Wants {
            messages: is_on,
            room: is_on && !calls.roomless.is_empty(),
        }
    }

    fn can_go_on(&self) -> bool {
        self.calls.borrow().has_place_for_blocked()
    }

    fn patience(&self, channel: &Channel) -> Option<Duration> {
        let mut patience = self.patience.as_ref()?.borrow_mut();
        let (calls, counters) = (self.calls.borrow(), channel.counters());
        let is_on = calls.over.is_none();
        let answers = Owed {
            some: is_on && calls.begun > counters.popped,
            given: counters.popped,
        };
        let room = Owed {
            some: is_on && !calls.roomless.is_empty(),
            given: counters.pushed,
        };
        patience.left(answers, room, Instant::now())
    }

    fn give_up(&self, channel: &mut Channel) {
        let patience = self.patience.as_ref();
        let limit = patience.map(|patience| patience.borrow().limit);
        channel.reject(Violation::Silent(limit.unwrap_or_default()));
    }
}
