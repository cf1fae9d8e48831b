//! The end that calls.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use quictun_shmq::{Channel, ChannelError, Counters, Line, Reserved, SLOTS, Violation};

use crate::executor::{Executor, Port};
use crate::message::{BUFFER, CALL, Message, REPLY, SEND, is_sound, kind, senseless};
use crate::pace::Pace;
use crate::schedule::{Schedule, Wakes};
use crate::wait::WaitPolicy;

/// Calls under way at a time: as many as answers find room for.
pub const MAX_CALLS: usize = SLOTS;

/// Answers taken before coroutines have their turn.
const PUMP: usize = 256;

/// The part of a call's number that says which place it has; the rest tells calls in the same place apart.
const PLACE_BITS: u32 = 12;

const _: () = assert!(MAX_CALLS == 1 << PLACE_BITS);

/// See the crate's documentation. Clones are the same client.
#[derive(Clone)]
pub struct Client(Rc<Shared>);

struct Shared {
    channel: Rc<RefCell<Channel>>,
    schedule: Rc<Schedule>,
    calls: RefCell<Calls>,
    patience: Option<Duration>,
}

#[derive(Default)]
struct Calls {
    places: Vec<Place>,
    free: Vec<u32>,
    /// Who found no place, or no room in the ring.
    blocked: VecDeque<Wakes>,
    over: Option<ChannelError>,
    pace: Pace,
}

struct Place {
    /// Of the call that has it, or had it last.
    cid: u32,
    state: State,
    /// Who waits for the answer, while that is so.
    wakes: Wakes,
    /// What is still to be freed when an answer comes that nobody wants.
    buffer: Option<Reserved>,
    /// The answer, once there is one. Apart from the state, so that it is written once and nothing else is moved with it.
    answer: Line,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Free,
    Waiting,
    Answered,
    /// Nobody wants the answer.
    Abandoned,
}

impl Client {
    /// A client on the channel, and what runs its coroutines.
    pub fn new(channel: Channel, policy: WaitPolicy) -> (Self, Executor) {
        Self::with_patience(channel, policy, None)
    }

    /// The same, and a server that leaves all calls without an answer for as long as `patience` ends the channel.
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
            patience,
        });
        let executor = Executor::new(channel, shared.clone(), schedule, policy);
        (Self(shared), executor)
    }

    /// Calls the server; the answer. Dropping it forgets the call, which the server may still do.
    #[inline]
    pub fn call(&self, message: Message) -> Call<'_> {
        Call {
            client: self,
            message,
            flags: CALL,
            stage: Stage::New,
            buffer: None,
        }
    }

    /// Calls the server with a buffer ([`reserve`](Self::reserve)) that it reads from and may write its answer into. The
    /// buffer comes back by [`Call::buffer`].
    pub fn call_with(&self, message: Message, buffer: Reserved) -> Call<'_> {
        let line = message.line.with_payload(buffer.off(), buffer.len());
        Call {
            client: self,
            message: Message { line },
            flags: CALL | BUFFER,
            stage: Stage::New,
            buffer: Some(buffer),
        }
    }

    /// Sends a message that has no answer; done once it is on its way. Dropping it sends nothing.
    pub async fn send(&self, message: Message) -> Result<(), ChannelError> {
        let line = message.line.with_call(0, SEND);
        poll_fn(|context| {
            let calls = &mut *self.0.calls.borrow_mut();
            if let Some(error) = calls.over {
                return Poll::Ready(Err(error));
            }
            let channel = &mut *self.0.channel.borrow_mut();
            match channel.stage(line) {
                Ok(true) => {
                    if calls.pace.is_late() {
                        channel.flush();
                    }
                    Poll::Ready(Ok(()))
                }
                Ok(false) => {
                    calls
                        .blocked
                        .push_back(self.0.schedule.wakes(context.waker()));
                    Poll::Pending
                }
                Err(error) => Poll::Ready(Err(error)),
            }
        })
        .await
    }

    /// Part of the arena, if there is as much in one piece.
    pub fn reserve(&self, len: u32) -> Option<Reserved> {
        self.0.channel.borrow_mut().reserve(len)
    }

    /// Gives it back.
    pub fn release(&self, buffer: Reserved) {
        self.0.channel.borrow_mut().release(buffer);
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

/// A call under way; ends with its answer.
#[must_use = "nothing is called until it is polled"]
pub struct Call<'a> {
    client: &'a Client,
    message: Message,
    flags: u16,
    stage: Stage,
    buffer: Option<Reserved>,
}

#[derive(Clone, Copy)]
enum Stage {
    New,
    Sent(u32),
    Done,
}

impl Call<'_> {
    pub(crate) fn is_under_way(&self) -> bool {
        matches!(self.stage, Stage::Sent(_))
    }

    /// The buffer, once there is an answer.
    pub fn buffer(&mut self) -> Option<Reserved> {
        matches!(self.stage, Stage::Done)
            .then(|| self.buffer.take())
            .flatten()
    }
}

impl Future for Call<'_> {
    type Output = Result<Message, ChannelError>;

    // Inlined, and the usual ways first and by themselves: an answer that shared its place in memory with errors would be
    // copied in pieces that are no whole moves (see `Line`).
    #[inline(always)]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let shared = &*self.client.0;
        let calls = &mut *shared.calls.borrow_mut();
        let wakes = || shared.schedule.wakes(context.waker());
        match self.stage {
            Stage::Sent(cid) => {
                if let Some(line) = calls.take(cid) {
                    self.stage = Stage::Done;
                    return Poll::Ready(Ok(Message { line }));
                }
                if calls.over.is_none() {
                    calls.wait(cid, wakes());
                    return Poll::Pending;
                }
            }
            Stage::New => match calls.start(self.message.line, self.flags, shared, wakes) {
                Ok(Some(cid)) => {
                    self.stage = Stage::Sent(cid);
                    return Poll::Pending;
                }
                Ok(None) => return Poll::Pending,
                Err(error) => {
                    self.stage = Stage::Done;
                    return Poll::Ready(Err(error));
                }
            },
            Stage::Done => {}
        }
        self.stage = Stage::Done;
        Poll::Ready(Err(calls.why_over()))
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        let shared = &*self.client.0;
        let mut buffer = self.buffer.take();
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
}

impl Calls {
    /// Sends a call; its number, or nothing where it has to wait for a place.
    #[inline(always)]
    fn start(
        &mut self,
        line: Line,
        flags: u16,
        shared: &Shared,
        wakes: impl Fn() -> Wakes,
    ) -> Result<Option<u32>, ChannelError> {
        if self.over.is_some() {
            return Err(self.why_over());
        }
        let Some(place) = self.free_place() else {
            self.blocked.push_back(wakes());
            return Ok(None);
        };
        let entry = &mut self.places[place as usize];
        let cid = entry.cid.wrapping_add(1 << PLACE_BITS);
        let line = line.with_call(cid, flags);
        let channel = &mut *shared.channel.borrow_mut();
        let pushed = channel.stage(line);
        if pushed != Ok(true) {
            self.free.push(place);
            pushed?;
            self.blocked.push_back(wakes());
            return Ok(None);
        }
        entry.cid = cid;
        entry.state = State::Waiting;
        entry.wakes = wakes();
        if flags & BUFFER != 0 {
            // What is by reference takes long: the server can begin while the next one is written.
            channel.publish();
        }
        if self.pace.is_late() {
            channel.flush();
        }
        Ok(Some(cid))
    }

    #[cold]
    #[inline(never)]
    fn why_over(&self) -> ChannelError {
        self.over.unwrap_or(ChannelError::Closed)
    }

    #[inline]
    fn free_place(&mut self) -> Option<u32> {
        if let Some(place) = self.free.pop() {
            return Some(place);
        }
        let place = u32::try_from(self.places.len())
            .ok()
            .filter(|place| *place < 1 << PLACE_BITS)?;
        self.places.push(Place {
            cid: place,
            state: State::Free,
            wakes: Wakes::Nobody,
            buffer: None,
            answer: Line::default(),
        });
        Some(place)
    }

    #[inline(always)]
    fn place(&mut self, cid: u32) -> Option<&mut Place> {
        let place = cid & ((1 << PLACE_BITS) - 1);
        self.places
            .get_mut(place as usize)
            .filter(|place| place.cid == cid)
    }

    /// The answer, if it is there; the place is free then.
    #[inline(always)]
    fn take(&mut self, cid: u32) -> Option<Line> {
        let place = self.place(cid)?;
        if place.state != State::Answered {
            return None;
        }
        place.state = State::Free;
        let answer = place.answer;
        self.free.push(cid & ((1 << PLACE_BITS) - 1));
        Some(answer)
    }

    fn wait(&mut self, cid: u32, wakes: Wakes) {
        if let Some(place) = self.place(cid) {
            place.wakes = wakes;
        }
    }

    fn abandon(&mut self, cid: u32, buffer: Option<Reserved>) {
        if let Some(place) = self.place(cid) {
            place.state = State::Abandoned;
            place.wakes = Wakes::Nobody;
            place.buffer = buffer;
        }
    }

    /// Takes an answer, which may be nonsense.
    #[inline(always)]
    fn complete(
        &mut self,
        line: Line,
        channel: &mut Channel,
        schedule: &Schedule,
    ) -> Result<(), Violation> {
        let sound = kind(&line) == REPLY && is_sound(&line);
        let place = self.place(line.cid()).filter(|_| sound);
        let place = place.ok_or_else(|| senseless(&line))?;
        match place.state {
            State::Waiting => {
                place.state = State::Answered;
                place.answer = line;
                schedule.wake(std::mem::replace(&mut place.wakes, Wakes::Nobody));
            }
            State::Abandoned => {
                place.state = State::Free;
                let buffer = place.buffer.take();
                self.free.push(line.cid() & ((1 << PLACE_BITS) - 1));
                if let Some(buffer) = buffer {
                    channel.release(buffer);
                }
            }
            State::Free | State::Answered => return Err(senseless(&line)),
        }
        Ok(())
    }

    /// Everybody hears of the end.
    fn end(&mut self, error: ChannelError, schedule: &Schedule) {
        self.over = Some(error);
        for place in &mut self.places {
            if place.state == State::Waiting {
                place.state = State::Free;
            }
            schedule.wake(std::mem::replace(&mut place.wakes, Wakes::Nobody));
        }
        self.unblock(schedule);
    }

    fn unblock(&mut self, schedule: &Schedule) {
        for wakes in self.blocked.drain(..) {
            schedule.wake(wakes);
        }
    }
}

impl Port for Shared {
    fn pump(&self, schedule: &Schedule) {
        let calls = &mut *self.calls.borrow_mut();
        calls.pace.begin();
        if calls.over.is_some() {
            return calls.unblock(schedule);
        }
        let channel = &mut *self.channel.borrow_mut();
        for _ in 0..PUMP {
            let taken = match channel.pop_line() {
                Ok(None) => break,
                Ok(Some(line)) => calls
                    .complete(line, channel, schedule)
                    .map_err(|violation| channel.reject(violation)),
                Err(error) => Err(error),
            };
            if let Err(error) = taken {
                return calls.end(error, schedule);
            }
        }
        if !calls.blocked.is_empty() {
            calls.unblock(schedule);
        }
    }

    fn patience(&self) -> Option<Duration> {
        let calls = self.calls.borrow();
        self.patience
            .filter(|_| calls.free.len() < calls.places.len())
    }

    fn give_up(&self, channel: &mut Channel) {
        channel.reject(Violation::Silent(self.patience.unwrap_or_default()));
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").finish_non_exhaustive()
    }
}

impl fmt::Debug for Call<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call").finish_non_exhaustive()
    }
}
