//! The calling end of a channel.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use quictun_shmq::{Allocation, Channel, ChannelError, Counters, Interest, Message, Violation};

use crate::calls::{Blocked, CallTable};
use crate::executor::{ChannelEnd, Executor};
use crate::message::{BUFFER, CALL, SEND};
use crate::schedule::Scheduler;
use crate::silence_limit::{Outstanding, SilenceLimit};
use crate::wait::WaitPolicy;
use crate::waiters::WaiterKey;

/// A handle that makes calls to the server. Clones share the same channel.
#[derive(Clone, Debug)]
pub struct Client(Rc<ClientInner>);

#[derive(Debug)]
struct ClientInner {
    channel: Rc<RefCell<Channel>>,
    schedule: Rc<Scheduler>,
    calls: RefCell<CallTable>,
    silence_limit: Option<RefCell<SilenceLimit>>,
}

impl Client {
    /// Creates a client on the channel, and the executor that runs its coroutines.
    pub fn new(channel: Channel, policy: WaitPolicy) -> (Self, Executor) {
        Self::with_silence_limit(channel, policy, None)
    }

    /// Like [`new`](Self::new), with a limit on the server's silence. The channel ends if the server leaves all calls
    /// unanswered for `silence_limit`, or if it makes no room in the ring for as long.
    pub fn with_silence_limit(
        channel: Channel,
        policy: WaitPolicy,
        silence_limit: Option<Duration>,
    ) -> (Self, Executor) {
        let schedule = Rc::new(Scheduler::new(channel.alarm()));
        let channel = Rc::new(RefCell::new(channel));
        let shared = Rc::new(ClientInner {
            channel: channel.clone(),
            schedule: schedule.clone(),
            calls: RefCell::default(),
            silence_limit: silence_limit.map(SilenceLimit::new).map(RefCell::new),
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
            state: CallState::New,
            blocked: None,
            buffer: None,
        }
    }

    /// Calls the server with a buffer ([`reserve`](Self::reserve)), which the server reads and may overwrite with its
    /// answer. [`Call::buffer`] returns the buffer after the answer has arrived.
    pub fn call_with(&self, message: Message, buffer: Allocation) -> Call<'_> {
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
                    let wake_target = self.0.schedule.wake_target(context.waker());
                    waiting.ticket =
                        Some(calls.waiting_for_room.enter(waiting.ticket, wake_target));
                    Poll::Pending
                }
                Err(error) => Poll::Ready(Err(error)),
            }
        })
        .await
    }

    /// Allocates a contiguous buffer of `len` bytes in the arena, if there is one.
    pub fn reserve(&self, len: u32) -> Option<Allocation> {
        self.0.channel.borrow_mut().reserve(len)
    }

    /// Frees a buffer that was reserved and not sent.
    pub fn release(&self, buffer: Allocation) {
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
    ticket: Option<WaiterKey>,
}

impl Drop for WaitingToSend<'_> {
    fn drop(&mut self) {
        // If the borrow fails, all waiters are being woken, and there is no entry left to remove.
        if let Some(ticket) = self.ticket
            && let Ok(mut calls) = self.client.0.calls.try_borrow_mut()
        {
            calls.waiting_for_room.leave(ticket);
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
    state: CallState,
    /// The queue in which the call waits before it is sent.
    blocked: Option<Blocked>,
    buffer: Option<Allocation>,
}

#[derive(Clone, Copy, Debug)]
enum CallState {
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
        if let CallState::Sent(cid) = self.state {
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
        matches!(self.state, CallState::Sent(_))
    }

    /// Returns the buffer, once the call has ended.
    pub fn buffer(&mut self) -> Option<Allocation> {
        matches!(self.state, CallState::Done)
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
        let wake_target = || shared.schedule.wake_target(context.waker());
        match self.state {
            CallState::Sent(cid) => {
                if let Some(answer) = calls.take(cid) {
                    self.state = CallState::Done;
                    return Poll::Ready(Ok(answer));
                }
                if calls.over.is_none() {
                    calls.wait(cid, wake_target());
                    return Poll::Pending;
                }
            }
            CallState::New => {
                let this = &mut *self;
                if let Some(blocked) = this.blocked.take() {
                    calls.leave(blocked);
                }
                let channel = &mut *shared.channel.borrow_mut();
                let (message, schedule) = (&this.message, &*shared.schedule);
                let blocked = &mut this.blocked;
                match calls.start(message, this.flags, channel, schedule, blocked, wake_target) {
                    Ok(Some(cid)) => {
                        self.state = CallState::Sent(cid);
                        return Poll::Pending;
                    }
                    Ok(None) => return Poll::Pending,
                    Err(error) => {
                        self.state = CallState::Done;
                        return Poll::Ready(Err(error));
                    }
                }
            }
            CallState::Done => {}
        }
        self.state = CallState::Done;
        Poll::Ready(Err(calls.end_reason()))
    }
}

impl Drop for Call<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        if matches!(self.state, CallState::Sent(_))
            || self.buffer.is_some()
            || self.blocked.is_some()
        {
            self.forget();
        }
    }
}

impl ChannelEnd for ClientInner {
    fn pump(&self, schedule: &Scheduler) {
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

    fn interest(&self) -> Interest {
        let calls = self.calls.borrow();
        // After the end of the channel, every waiter has been notified.
        let is_on = calls.over.is_none();
        Interest {
            messages: is_on,
            room: is_on && !calls.waiting_for_room.is_empty(),
        }
    }

    fn can_proceed(&self) -> bool {
        self.calls.borrow().has_place_for_blocked()
    }

    fn silence_left(&self, channel: &Channel) -> Option<Duration> {
        let mut limit = self.silence_limit.as_ref()?.borrow_mut();
        let (calls, counters) = (self.calls.borrow(), channel.counters());
        let is_on = calls.over.is_none();
        let answers = Outstanding {
            any: is_on && calls.begun > counters.popped,
            provided: counters.popped,
        };
        let room = Outstanding {
            any: is_on && !calls.waiting_for_room.is_empty(),
            provided: counters.pushed,
        };
        limit.left(answers, room, Instant::now())
    }

    fn give_up(&self, channel: &mut Channel) {
        let silence_limit = self.silence_limit.as_ref();
        let limit = silence_limit.map(|limit| limit.borrow().limit);
        channel.reject(Violation::Silent(limit.unwrap_or_default()));
    }
}
