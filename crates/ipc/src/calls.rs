//! The client's table of calls.

use std::task::Waker;

use quictun_shmq::{Allocation, BATCH, Channel, ChannelError, INLINE, Message, SLOTS, Violation};

use crate::executor::ROOM;
use crate::message::{BUFFER, REPLY, is_sound, kind, senseless};
use crate::pace::FlushPacer;
use crate::schedule::{Queues, Scheduler, TaskId, WakeTarget};
use crate::waiters::{WaiterKey, Waiters};

/// Largest number of calls under way at a time: as many as there is room for answers.
pub const MAX_CALLS: usize = SLOTS;

/// Largest number of answers taken before coroutines run.
const PUMP: usize = 256;

/// With at least this many calls under way, the server has calls to handle while the client writes a full batch. With
/// fewer, and on two processors, a batch has half of the calls.
const TWO_BATCHES: usize = 2 * BATCH;

/// Number of low bits of a call id that hold the call's place. The other bits distinguish successive calls in the same
/// place.
const PLACE_BITS: u32 = 12;

const _: () = assert!(MAX_CALLS == 1 << PLACE_BITS);

#[derive(Debug, Default)]
pub(crate) struct CallTable {
    places: Vec<CallPlace>,
    cold_state: Vec<ColdState>,
    free: Vec<u32>,
    /// Calls that found no room in the ring.
    pub(crate) waiting_for_room: Waiters,
    /// Calls that found no place in the table.
    pub(crate) waiting_for_place: Waiters,
    pub(crate) over: Option<ChannelError>,
    /// Number of staged calls after which the client publishes them, so that both sides work at the same time. The ring
    /// publishes calls in batches of eight. If fewer than two batches are under way, the client publishes half of them.
    /// If the server shares this processor, it cannot run at the same time, and the batch stays at eight.
    batch: usize,
    /// Number of calls begun so far; each of them gets one answer.
    pub(crate) begun: u64,
    pub(crate) pace: FlushPacer,
}

#[derive(Debug)]
struct CallPlace {
    /// The answer, once it has arrived. Separate from the state, so that the answer is written once and nothing else is
    /// moved with it.
    answer: Message,
    /// Id of the call that occupies the place, or that occupied it last.
    cid: u32,
    /// The task that waits for the answer: a coroutine, [`VIA_WAKER`] or [`NO_TASK`].
    waiting: TaskId,
    state: State,
}

/// Value of `CallPlace::waiting` if a waker is to be called. The waker is stored separately, because the waiting task
/// is nearly always a coroutine itself.
const VIA_WAKER: TaskId = TaskId::MAX - 1;
/// Value of `CallPlace::waiting` if no task waits.
const NO_TASK: TaskId = TaskId::MAX;

#[derive(Clone, Copy, Debug)]
pub(crate) enum Blocked {
    Room(WaiterKey),
    Place(WaiterKey),
}

#[derive(Debug, Default)]
struct ColdState {
    /// The waker to call if `CallPlace::waiting` is [`VIA_WAKER`].
    waker: Option<Waker>,
    /// The buffer to free when the answer to an abandoned call arrives.
    buffer: Option<Allocation>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Free,
    Waiting,
    Answered,
    /// The caller has dropped the call and does not want the answer.
    Abandoned,
}

impl CallTable {
    /// Sends a call and returns its id. If the call has to wait for a place or for room, returns `None` and sets
    /// `blocked`.
    // The message is passed by reference and read last, so that the rare paths do not move it.
    #[inline(always)]
    pub(crate) fn start(
        &mut self,
        message: &Message,
        flags: u16,
        channel: &mut Channel,
        schedule: &Scheduler,
        blocked: &mut Option<Blocked>,
        wake_target: impl FnOnce() -> WakeTarget,
    ) -> Result<Option<u32>, ChannelError> {
        if self.over.is_some() {
            return Err(self.end_reason());
        }
        let Some(room) = channel.room()? else {
            *blocked = Some(Blocked::Room(
                self.waiting_for_room.enter(None, wake_target()),
            ));
            return Ok(None);
        };
        let Some(place) = self.free.pop().or_else(|| self.new_place()) else {
            *blocked = Some(Blocked::Place(
                self.waiting_for_place.enter(None, wake_target()),
            ));
            return Ok(None);
        };
        let entry = &mut self.places[place as usize];
        let cid = entry.cid.wrapping_add(1 << PLACE_BITS);
        entry.cid = cid;
        entry.state = State::Waiting;
        self.begun += 1;
        match wake_target() {
            WakeTarget::Task(task) => entry.waiting = task,
            other => self.set_waiting(place, other),
        }
        room.put(message.whole().with_call(cid, flags));
        if flags & BUFFER != 0 || channel.staged() >= self.batch as u64 || !schedule.has_ready() {
            // A payload by reference takes long to process, and the server can start while the next call is written. A
            // call with no further calls to wait for does not need to be held back, either.
            channel.publish();
        }
        if self.pace.is_late() {
            channel.flush();
        }
        Ok(Some(cid))
    }

    fn set_waiting(&mut self, place: u32, wake_target: WakeTarget) {
        let (waiting, waker) = match wake_target {
            WakeTarget::Task(task) => (task, None),
            WakeTarget::Other(waker) => (VIA_WAKER, Some(waker)),
            WakeTarget::None => (NO_TASK, None),
        };
        let at = place as usize;
        if let (Some(place), Some(cold_state)) =
            (self.places.get_mut(at), self.cold_state.get_mut(at))
        {
            place.waiting = waiting;
            cold_state.waker = waker;
        }
    }

    #[cold]
    #[inline(never)]
    pub(crate) fn end_reason(&self) -> ChannelError {
        self.over.unwrap_or(ChannelError::Closed)
    }

    #[cold]
    fn new_place(&mut self) -> Option<u32> {
        let place = u32::try_from(self.places.len())
            .ok()
            .filter(|place| *place < 1 << PLACE_BITS)?;
        self.places.push(CallPlace {
            answer: Message::default(),
            cid: place,
            waiting: NO_TASK,
            state: State::Free,
        });
        self.cold_state.push(ColdState::default());
        Some(place)
    }

    #[inline(always)]
    fn place(&mut self, cid: u32) -> Option<&mut CallPlace> {
        self.places
            .get_mut(place_of(cid) as usize)
            .filter(|place| place.cid == cid)
    }

    /// Takes the answer if it has arrived, and frees its place.
    #[inline(always)]
    pub(crate) fn take(&mut self, cid: u32) -> Option<Message> {
        let place = self.place(cid)?;
        if place.state != State::Answered {
            return None;
        }
        place.state = State::Free;
        let answer = place.answer.whole();
        self.free.push(place_of(cid));
        Some(answer)
    }

    pub(crate) fn wait(&mut self, cid: u32, wake_target: WakeTarget) {
        if self.place(cid).is_some() {
            self.set_waiting(place_of(cid), wake_target);
        }
    }

    pub(crate) fn abandon(&mut self, cid: u32, buffer: Option<Allocation>) {
        let Some(place) = self.place(cid) else { return };
        place.state = State::Abandoned;
        place.waiting = NO_TASK;
        if let Some(cold_state) = self.cold_state.get_mut(place_of(cid) as usize) {
            *cold_state = ColdState {
                waker: None,
                buffer,
            };
        }
    }

    #[inline]
    pub(crate) fn pump(
        &mut self,
        channel: &mut Channel,
        schedule: &Scheduler,
    ) -> Result<(), ChannelError> {
        let queues = &mut *schedule.queues();
        self.batch = match self.under_way() {
            calls @ 2..TWO_BATCHES if !channel.shares_cpu() => calls / 2,
            _ => BATCH,
        };
        for _ in 0..PUMP {
            let message = match channel.arrived() {
                Some(arrived) => arrived.take(),
                None => match channel.pop_other()? {
                    Some(message) => message,
                    None => return Ok(()),
                },
            };
            if !self.complete(message, queues) {
                let taken = self.complete_other(message, channel, queues);
                taken.map_err(|violation| channel.reject(violation))?;
            }
        }
        Ok(())
    }

    /// Takes an ordinary answer that a coroutine waits for. Returns false for all others, which
    /// [`complete_other`](Self::complete_other) handles.
    #[inline(always)]
    fn complete(&mut self, message: Message, queues: &mut Queues) -> bool {
        let cid = message.cid();
        let Some(place) = self.places.get_mut(place_of(cid) as usize) else {
            return false;
        };
        let is_usual = message.flags() == REPLY && message.len() as usize <= INLINE;
        if !is_usual
            || place.cid != cid
            || place.state != State::Waiting
            || place.waiting >= VIA_WAKER
        {
            return false;
        }
        place.state = State::Answered;
        place.answer = message;
        queues.push(std::mem::replace(&mut place.waiting, NO_TASK));
        true
    }

    /// Takes any other answer: the last answer of a stream, the answer to an abandoned call, or an answer for a waker.
    /// Any other message is a violation.
    #[cold]
    #[inline(never)]
    fn complete_other(
        &mut self,
        message: Message,
        channel: &mut Channel,
        queues: &mut Queues,
    ) -> Result<(), Violation> {
        let sound = kind(&message) == REPLY && is_sound(&message);
        let place = self.place(message.cid()).filter(|_| sound);
        let place = place.ok_or_else(|| senseless(&message))?;
        let waiting = std::mem::replace(&mut place.waiting, NO_TASK);
        match place.state {
            State::Waiting => {
                place.state = State::Answered;
                place.answer = message;
                // The queues ignore [`VIA_WAKER`] and [`NO_TASK`], which are not coroutines.
                queues.push(waiting);
            }
            State::Abandoned => {
                place.state = State::Free;
                self.free.push(place_of(message.cid()));
            }
            State::Free | State::Answered => return Err(senseless(&message)),
        }
        let cold_state = self.cold_state.get_mut(place_of(message.cid()) as usize);
        let ColdState { waker, buffer } = cold_state.map(std::mem::take).unwrap_or_default();
        if let Some(waker) = waker.filter(|_| waiting == VIA_WAKER) {
            waker.wake();
        }
        if let Some(buffer) = buffer {
            channel.release(buffer);
        }
        Ok(())
    }

    pub(crate) fn end(&mut self, error: ChannelError, schedule: &Scheduler) {
        self.over = Some(error);
        for (place, cold_state) in self.places.iter_mut().zip(&mut self.cold_state) {
            if place.state == State::Waiting {
                place.state = State::Free;
            }
            match std::mem::replace(&mut place.waiting, NO_TASK) {
                NO_TASK => {}
                VIA_WAKER => schedule.wake(
                    cold_state
                        .waker
                        .take()
                        .map_or(WakeTarget::None, WakeTarget::Other),
                ),
                task => schedule.wake(WakeTarget::Task(task)),
            }
        }
        self.waiting_for_room.wake_all(schedule);
        self.waiting_for_place.wake_all(schedule);
    }

    /// Returns the number of calls whose answers have not arrived or have not been taken.
    pub(crate) fn under_way(&self) -> usize {
        self.places.len() - self.free.len()
    }

    #[inline]
    pub(crate) fn unblock(&mut self, channel: &mut Channel, schedule: &Scheduler) {
        if !self.waiting_for_room.is_empty() && channel.has_work_for(ROOM) {
            self.waiting_for_room.wake_all(schedule);
        }
        if self.has_place_for_blocked() {
            self.waiting_for_place.wake_all(schedule);
        }
    }

    #[inline]
    pub(crate) fn has_place_for_blocked(&self) -> bool {
        !self.waiting_for_place.is_empty() && self.under_way() < MAX_CALLS
    }

    #[cold]
    pub(crate) fn leave(&mut self, blocked: Blocked) {
        match blocked {
            Blocked::Room(ticket) => self.waiting_for_room.leave(ticket),
            Blocked::Place(ticket) => self.waiting_for_place.leave(ticket),
        }
    }
}

#[inline(always)]
fn place_of(cid: u32) -> u32 {
    cid & ((1 << PLACE_BITS) - 1)
}
