//! The end that answers.

use std::cell::RefCell;
use std::fmt;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use quictun_shmq::{Channel, ChannelError, Counters, Item, Received};

use crate::executor::{Executor, Port};
use crate::message::{BUFFER, CALL, Message, REPLY, SEND, is_sound, kind, senseless};
use crate::schedule::{Schedule, Wakes};
use crate::wait::WaitPolicy;

/// Requests taken before other coroutines have their turn, and the client is told of answers if it sleeps.
const TURN: u32 = 256;

/// See the crate's documentation. Clones are the same server.
#[derive(Clone)]
pub struct Server(Rc<Shared>);

struct Shared {
    channel: Rc<RefCell<Channel>>,
    schedule: Rc<Schedule>,
    state: RefCell<State>,
}

#[derive(Default)]
struct State {
    /// Who waits for a request, or for room for an answer.
    waiting: Vec<Wakes>,
    /// Requests taken in this turn.
    taken: u32,
}

/// What a client asks for. A call is answered by [`Server::reply`]; one that is dropped stays without an answer.
#[derive(Debug)]
pub struct Request {
    message: Message,
    buffer: Option<Received>,
}

impl Request {
    /// What it carries itself.
    pub fn message(&self) -> &Message {
        &self.message
    }

    /// The client's buffer, to read and to write the answer into.
    pub fn buffer(&self) -> Option<Received> {
        self.buffer
    }

    /// Whether it wants an answer.
    pub fn is_call(&self) -> bool {
        kind(&self.message.item) == CALL
    }
}

impl Server {
    /// A server on the channel, and what runs its coroutines.
    pub fn new(channel: Channel, policy: WaitPolicy) -> (Self, Executor) {
        let schedule = Rc::new(Schedule::new(channel.alarm()));
        let channel = Rc::new(RefCell::new(channel));
        let shared = Rc::new(Shared {
            channel: channel.clone(),
            schedule: schedule.clone(),
            state: RefCell::default(),
        });
        let executor = Executor::new(channel, shared.clone(), schedule, policy);
        (Self(shared), executor)
    }

    /// The next request. Dropping it loses none.
    pub async fn recv(&self) -> Result<Request, ChannelError> {
        poll_fn(|context| self.poll_recv(context)).await
    }

    #[inline]
    fn poll_recv(&self, context: &Context<'_>) -> Poll<Result<Request, ChannelError>> {
        let state = &mut *self.0.state.borrow_mut();
        let channel = &mut *self.0.channel.borrow_mut();
        if state.taken < TURN {
            match channel.pop() {
                Ok(Some(item)) => {
                    state.taken += 1;
                    return Poll::Ready(request(item, channel));
                }
                Ok(None) => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        state.waiting.push(self.0.schedule.wakes(context.waker()));
        Poll::Pending
    }

    /// Answers a call; done once the answer is on its way. Requests that want no answer are fine, too. Dropping it leaves the
    /// call without one.
    pub async fn reply(&self, request: Request, message: Message) -> Result<(), ChannelError> {
        if !request.is_call() {
            return Ok(());
        }
        let mut item = message.item;
        item.flags = REPLY;
        item.cid = request.message.item.cid;
        poll_fn(|context| self.poll_reply(&item, context)).await
    }

    #[inline]
    fn poll_reply(&self, item: &Item, context: &Context<'_>) -> Poll<Result<(), ChannelError>> {
        match self.0.channel.borrow_mut().push(item) {
            Ok(true) => Poll::Ready(Ok(())),
            Ok(false) => {
                let wakes = self.0.schedule.wakes(context.waker());
                self.0.state.borrow_mut().waiting.push(wakes);
                Poll::Pending
            }
            Err(error) => Poll::Ready(Err(error)),
        }
    }

    /// The channel, for access to buffers. Not across an `await`.
    pub fn with_channel<T>(&self, action: impl FnOnce(&mut Channel) -> T) -> T {
        action(&mut self.0.channel.borrow_mut())
    }

    /// What has happened so far.
    pub fn counters(&self) -> Counters {
        self.0.channel.borrow().counters()
    }
}

#[inline]
fn request(item: Item, channel: &mut Channel) -> Result<Request, ChannelError> {
    if !matches!(kind(&item), CALL | SEND) || !is_sound(&item) {
        return Err(channel.reject(senseless(&item)));
    }
    let buffer = if item.flags & BUFFER == 0 {
        None
    } else {
        channel.received(&item)?
    };
    Ok(Request {
        message: Message { item },
        buffer,
    })
}

impl Port for Shared {
    fn pump(&self, schedule: &Schedule) {
        let state = &mut *self.state.borrow_mut();
        state.taken = 0;
        for wakes in state.waiting.drain(..) {
            schedule.wake(wakes);
        }
    }

    fn patience(&self) -> Option<Duration> {
        None
    }

    fn give_up(&self, _channel: &mut Channel) {}
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").finish_non_exhaustive()
    }
}
