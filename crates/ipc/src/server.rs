//! The answering end of a channel.

use std::cell::RefCell;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use quictun_shmq::{Channel, ChannelError, Counters, Interest, Message, PeerPayload};

use crate::executor::{ChannelEnd, Executor, MESSAGES, ROOM};
use crate::message::{BUFFER, CALL, LAST, REPLY, SEND, is_sound, kind, senseless};
use crate::pace::FlushPacer;
use crate::schedule::Scheduler;
use crate::wait::WaitPolicy;
use crate::waiters::{WaiterKey, Waiters};

/// Largest number of requests taken before other coroutines run and a sleeping client is notified of answers.
const TURN: u32 = 256;

/// A handle that receives and answers requests. Clones share the same channel.
#[derive(Clone, Debug)]
pub struct Server(Rc<ServerInner>);

#[derive(Debug)]
struct ServerInner {
    channel: Rc<RefCell<Channel>>,
    schedule: Rc<Scheduler>,
    state: RefCell<State>,
}

#[derive(Debug, Default)]
struct State {
    receivers: Waiters,
    repliers: Waiters,
    /// Number of requests taken in this turn.
    taken: u32,
    pace: FlushPacer,
}

/// A request from the client. [`Server::reply`] answers a call; a call whose request is dropped gets no answer.
#[derive(Debug)]
pub struct Request {
    message: Message,
    buffer: Option<PeerPayload>,
}

impl Request {
    /// Returns the request's message, with its inline payload.
    #[inline]
    pub fn message(&self) -> &Message {
        &self.message
    }

    /// Returns the client's buffer, from which to read and into which to write the answer.
    pub fn buffer(&self) -> Option<PeerPayload> {
        self.buffer
    }
}

impl Server {
    /// Creates a server on the channel, and the executor that runs its coroutines.
    pub fn new(channel: Channel, policy: WaitPolicy) -> (Self, Executor) {
        let schedule = Rc::new(Scheduler::new(channel.alarm()));
        let channel = Rc::new(RefCell::new(channel));
        let shared = Rc::new(ServerInner {
            channel: channel.clone(),
            schedule: schedule.clone(),
            state: RefCell::default(),
        });
        let executor = Executor::new(channel, shared.clone(), schedule, policy);
        (Self(shared), executor)
    }

    /// Receives the next request. Dropping the future loses no request.
    #[inline]
    pub fn recv(&self) -> Recv<'_> {
        Recv {
            server: self,
            ticket: None,
        }
    }

    /// Answers a call. Completes once the answer is in the ring. A request that wants no answer completes at once.
    /// Dropping the future before that leaves the call unanswered.
    #[inline(always)]
    #[expect(
        clippy::needless_pass_by_value,
        reason = "a request is answered at most once"
    )]
    pub fn reply(&self, request: Request, message: Message) -> Reply<'_> {
        let flags = REPLY | message.flags() & LAST;
        let message = message.with_call(request.message.cid(), flags);
        Reply {
            server: self,
            message,
            wanted: kind(&request.message) == CALL,
            by_reference: request.buffer.is_some(),
            ticket: None,
        }
    }

    /// Calls `action` with the channel, for access to buffers. `action` must not use this server.
    pub fn with_channel<T>(&self, action: impl FnOnce(&mut Channel) -> T) -> T {
        action(&mut self.0.channel.borrow_mut())
    }

    /// Returns the channel's statistics.
    pub fn counters(&self) -> Counters {
        self.0.channel.borrow().counters()
    }
}

/// A pending receive of the next request; see [`Server::recv`].
#[must_use = "nothing is received until it is polled"]
#[derive(Debug)]
pub struct Recv<'a> {
    server: &'a Server,
    ticket: Option<WaiterKey>,
}

impl Future for Recv<'_> {
    type Output = Result<Request, ChannelError>;

    // As in `Call`, the usual path is separate.
    #[inline(always)]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let shared = &*self.server.0;
        let state = &mut *shared.state.borrow_mut();
        let channel = &mut *shared.channel.borrow_mut();
        if state.taken < TURN {
            if let Some(arrived) = channel.arrived() {
                state.taken += 1;
                let message = arrived.take();
                return Poll::Ready(request(message, channel));
            }
            // The staged answers need not be held back for further ones.
            channel.publish();
            if let Some(message) = channel.pop_other()? {
                return Poll::Ready(request(message, channel));
            }
        }
        let wake_target = shared.schedule.wake_target(context.waker());
        self.ticket = Some(state.receivers.enter(self.ticket, wake_target));
        Poll::Pending
    }
}

impl Drop for Recv<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        // If the borrow fails, all waiters are being woken, and there is no entry left to remove.
        if let Some(ticket) = self.ticket
            && let Ok(mut state) = self.server.0.state.try_borrow_mut()
        {
            state.receivers.leave(ticket);
        }
    }
}

#[inline(always)]
fn request(message: Message, channel: &mut Channel) -> Result<Request, ChannelError> {
    if message.flags() == CALL && is_sound(&message) {
        let buffer = None;
        return Ok(Request { message, buffer });
    }
    unusual(message, channel)
}

/// Handles a request that is not a call, that has a buffer, or that is invalid.
#[cold]
#[inline(never)]
fn unusual(mut message: Message, channel: &mut Channel) -> Result<Request, ChannelError> {
    if !matches!(kind(&message), CALL | SEND) || !is_sound(&message) {
        return Err(channel.reject(senseless(&message)));
    }
    let buffer = if message.flags() & BUFFER == 0 {
        None
    } else {
        let buffer = channel.received_at(message.off(), message.len())?;
        // Clear the buffer's place: an answer made from this message would take it for the length of an inline payload.
        message = message.with_payload(0, 0);
        buffer
    };
    Ok(Request { message, buffer })
}

/// A pending answer to a call; see [`Server::reply`].
#[must_use = "nothing is sent until the reply is polled"]
#[derive(Debug)]
pub struct Reply<'a> {
    server: &'a Server,
    message: Message,
    wanted: bool,
    /// The call has a payload by reference. Such calls take long, so the client need not wait for the next answer to
    /// see this one.
    by_reference: bool,
    ticket: Option<WaiterKey>,
}

impl Future for Reply<'_> {
    type Output = Result<(), ChannelError>;

    #[inline(always)]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if !self.wanted {
            return Poll::Ready(Ok(()));
        }
        let shared = &*self.server.0;
        let state = &mut *shared.state.borrow_mut();
        let channel = &mut *shared.channel.borrow_mut();
        match channel.stage(self.message) {
            Ok(true) => {
                if self.by_reference {
                    channel.publish();
                }
                if state.pace.is_late() {
                    channel.flush();
                }
                Poll::Ready(Ok(()))
            }
            Ok(false) => {
                let wake_target = shared.schedule.wake_target(context.waker());
                self.ticket = Some(state.repliers.enter(self.ticket, wake_target));
                Poll::Pending
            }
            Err(error) => Poll::Ready(Err(error)),
        }
    }
}

impl Drop for Reply<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        // As in `Recv`.
        if let Some(ticket) = self.ticket
            && let Ok(mut state) = self.server.0.state.try_borrow_mut()
        {
            state.repliers.leave(ticket);
        }
    }
}

impl ChannelEnd for ServerInner {
    fn pump(&self, schedule: &Scheduler) {
        let state = &mut *self.state.borrow_mut();
        state.taken = 0;
        state.pace.begin();
        let channel = &mut *self.channel.borrow_mut();
        if !state.receivers.is_empty() && channel.has_work_for(MESSAGES) {
            state.receivers.wake_all(schedule);
        }
        if !state.repliers.is_empty() && channel.has_work_for(ROOM) {
            state.repliers.wake_all(schedule);
        }
    }

    fn interest(&self) -> Interest {
        let state = self.state.borrow();
        Interest {
            messages: !state.receivers.is_empty(),
            room: !state.repliers.is_empty(),
        }
    }

    fn can_proceed(&self) -> bool {
        false
    }

    fn silence_left(&self, _channel: &Channel) -> Option<Duration> {
        None
    }

    fn give_up(&self, _channel: &mut Channel) {}
}
