//! Runs the coroutines of one channel in one thread.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use quictun_shmq::{Channel, Interest, SleepMode, cycles};

use crate::schedule::{Scheduler, TaskId};
use crate::wait::{SpinBudget, WaitPolicy, wake_cost};

/// Largest number of coroutines at a time.
pub const MAX_COROUTINES: usize = 1 << 16;

/// Largest number of coroutines polled before the channel is checked again and the peer is shown new messages.
const TURN: usize = 128;

/// Largest number of messages about which a sleeping peer has not been notified, while there are more to take.
const UNFLUSHED_MAX: u64 = 256;

/// Number of checks of the channel between two readings of the clock.
const CHECKS_PER_CLOCK_READING: usize = 8;

pub(crate) const MESSAGES: Interest = Interest {
    messages: true,
    room: false,
};

pub(crate) const ROOM: Interest = Interest {
    messages: false,
    room: true,
};

pub(crate) trait ChannelEnd {
    /// Takes a bounded number of messages. Errors are delivered to the waiting tasks.
    fn pump(&self, schedule: &Scheduler);

    /// Returns the events of the channel that tasks wait for.
    fn interest(&self) -> Interest;

    /// Returns whether [`pump`](Self::pump) would wake a task that waits for no event of the channel.
    fn can_proceed(&self) -> bool;

    fn silence_left(&self, channel: &Channel) -> Option<Duration>;

    fn give_up(&self, channel: &mut Channel);
}

/// Counts how often the executor had nothing to do, and what it did then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct IdleCounters {
    /// Number of times that it polled for a while.
    pub spins: u64,
    /// Number of these times that ended because there was something to do.
    pub spins_won: u64,
    /// Number of times that it slept.
    pub sleeps: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TurnOutcome {
    /// Every coroutine has ended.
    Ended,
    /// A coroutine can continue, so another turn follows.
    Ready,
    Idle {
        /// True if a coroutine ran in this turn.
        ran: bool,
    },
}

type BoxedFuture = Pin<Box<dyn Future<Output = ()>>>;

struct Coroutine {
    future: BoxedFuture,
    waker: Waker,
}

/// An executor for the coroutines of one channel. [`crate::Client::new`] and [`crate::Server::new`] create it.
pub struct Executor {
    pub(crate) channel: Rc<RefCell<Channel>>,
    pub(crate) port: Rc<dyn ChannelEnd>,
    pub(crate) schedule: Rc<Scheduler>,
    spawned: Rc<SpawnQueue>,
    coroutines: Vec<Option<Coroutine>>,
    free: Vec<TaskId>,
    pub(crate) policy: WaitPolicy,
    pub(crate) idle: IdleCounters,
    budget: SpinBudget,
    /// The executor is asleep in the event loop that contains it.
    pub(crate) asleep: bool,
}

#[derive(Default)]
struct SpawnQueue {
    queue: RefCell<Vec<(usize, BoxedFuture)>>,
    alive: Cell<usize>,
}

/// Starts coroutines on an executor. Coroutines may use it, too.
#[derive(Clone)]
pub struct Spawner(Rc<SpawnQueue>);

impl Spawner {
    /// Starts a coroutine. Returns false if there are [`MAX_COROUTINES`] already, or if the executor is gone. Among
    /// coroutines that can continue, those with the lowest number of `priority` (below [`crate::PRIORITIES`]) run
    /// first.
    pub fn spawn(&self, priority: usize, future: impl Future<Output = ()> + 'static) -> bool {
        let alive = self.0.alive.get();
        if alive >= MAX_COROUTINES {
            return false;
        }
        self.0.alive.set(alive + 1);
        self.0.queue.borrow_mut().push((priority, Box::pin(future)));
        true
    }
}

impl Executor {
    pub(crate) fn new(
        channel: Rc<RefCell<Channel>>,
        port: Rc<dyn ChannelEnd>,
        schedule: Rc<Scheduler>,
        policy: WaitPolicy,
    ) -> Self {
        Self {
            channel,
            port,
            schedule,
            spawned: Rc::default(),
            coroutines: Vec::new(),
            free: Vec::new(),
            policy,
            idle: IdleCounters::default(),
            budget: SpinBudget::default(),
            asleep: false,
        }
    }

    /// Returns a handle that starts coroutines on this executor.
    pub fn spawner(&self) -> Spawner {
        Spawner(self.spawned.clone())
    }

    /// Returns what the executor did when there was nothing to do.
    pub fn idle_counters(&self) -> IdleCounters {
        self.idle
    }

    /// Runs until every coroutine has ended. Once the channel is over, every operation on it fails, so that coroutines
    /// can end.
    pub fn run(&mut self) {
        if self.policy == WaitPolicy::Hybrid {
            wake_cost();
        }
        self.wake_up();
        loop {
            match self.turn() {
                TurnOutcome::Ended => return,
                TurnOutcome::Ready => {}
                TurnOutcome::Idle { ran } => self.wait(ran),
            }
        }
    }

    /// Takes new messages, runs a bounded number of ready coroutines, and shows the peer the messages that they wrote.
    pub(crate) fn turn(&mut self) -> TurnOutcome {
        if !self.spawned.queue.borrow().is_empty() {
            self.start_spawned();
        }
        // Needed even if no task takes messages: a pending ring would keep the executor awake.
        self.channel.borrow_mut().notice();
        self.port.pump(&self.schedule);
        self.give_up_if_silent();
        self.schedule.collect();
        let mut ran = false;
        for _ in 0..TURN {
            let Some(task) = self.schedule.next() else {
                break;
            };
            ran = true;
            self.poll(task);
        }
        let channel = &mut *self.channel.borrow_mut();
        channel.publish();
        if self.spawned.alive.get() == 0 {
            channel.flush();
            TurnOutcome::Ended
        } else if self.schedule.has_ready()
            || !self.spawned.queue.borrow().is_empty()
            || self.port.can_proceed()
        {
            channel.flush();
            TurnOutcome::Ready
        } else {
            TurnOutcome::Idle { ran }
        }
    }

    /// Ends the channel if the peer has been silent for too long. Must run after new messages are taken: the peer may
    /// have answered while this thread had no processor.
    fn give_up_if_silent(&self) {
        let channel = &mut *self.channel.borrow_mut();
        if self.port.silence_left(channel) == Some(Duration::ZERO) {
            self.port.give_up(channel);
        }
    }

    #[cold]
    fn start_spawned(&mut self) {
        let mut queue = self.spawned.queue.borrow_mut();
        for (priority, future) in queue.drain(..) {
            let task = self.free.pop().unwrap_or_else(|| {
                self.coroutines.push(None);
                TaskId::try_from(self.coroutines.len() - 1).unwrap_or(TaskId::MAX)
            });
            let waker = self.schedule.enter(task, priority);
            self.coroutines[task as usize] = Some(Coroutine { future, waker });
        }
    }

    #[inline]
    fn poll(&mut self, task: TaskId) {
        // A coroutine that has ended may be woken once more.
        let Some(coroutine) = self
            .coroutines
            .get_mut(task as usize)
            .and_then(Option::as_mut)
        else {
            return;
        };
        self.schedule.set_running(task, &coroutine.waker);
        let mut context = Context::from_waker(&coroutine.waker);
        if coroutine.future.as_mut().poll(&mut context) == Poll::Ready(()) {
            self.coroutines[task as usize] = None;
            self.free.push(task);
            self.spawned.alive.set(self.spawned.alive.get() - 1);
        }
    }

    /// Returns whether there is nothing more to do for now; `ran` says whether a coroutine ran in the last turn.
    ///
    /// A peer that sends is awake, and a flush takes a fence, which waits until each of the local messages has reached
    /// the other processor. The flush is therefore delayed until there is nothing more to do. It happens at the latest
    /// after [`UNFLUSHED_MAX`] messages, or if the available messages make no coroutine run.
    pub(crate) fn is_last(&self, ran: bool) -> bool {
        let channel = &mut *self.channel.borrow_mut();
        !(ran && channel.unflushed() < UNFLUSHED_MAX && channel.has_work_for(self.port.interest()))
    }

    fn wait(&mut self, ran: bool) {
        if !self.is_last(ran) {
            return;
        }
        let channel = &mut *self.channel.borrow_mut();
        let interest = self.port.interest();
        let looks = match self.policy {
            WaitPolicy::Interrupt => false,
            WaitPolicy::Polling => true,
            WaitPolicy::Hybrid => !channel.shares_cpu(),
        };
        if looks {
            channel.flush();
            self.idle.spins += 1;
            let sleeps = self.policy != WaitPolicy::Polling;
            let silence_left = self.port.silence_left(channel);
            let until = silence_left.and_then(|left| Instant::now().checked_add(left));
            let budget = sleeps.then(|| self.budget.ticks(wake_cost()));
            if poll_for_work(channel, &self.schedule, interest, budget, until) {
                self.idle.spins_won += 1;
                return;
            }
            if !sleeps {
                // The next turn ends the channel with a silent peer.
                return;
            }
        }
        if !channel.arm_for(SleepMode::Futex, interest) || self.schedule.has_remote() {
            channel.disarm();
            return;
        }
        self.idle.sleeps += 1;
        let (silence_left, from) = (self.port.silence_left(channel), cycles());
        // If the time elapsed, the next turn notices that.
        channel.wait(silence_left);
        if looks {
            let slept = cycles().wrapping_sub(from);
            self.budget.note_sleep(slept, wake_cost());
        }
    }
}

impl Drop for Executor {
    fn drop(&mut self) {
        // No coroutine can start any more. Those that have not begun are dropped: like running ones, they may hold a
        // spawner, and with it the channel.
        self.spawned.alive.set(MAX_COROUTINES);
        drop(self.spawned.queue.take());
    }
}

/// Polls for something to do, for `budget` ticks and no longer than `until`. Returns whether there is something.
fn poll_for_work(
    channel: &mut Channel,
    schedule: &Scheduler,
    interest: Interest,
    budget: Option<u64>,
    until: Option<Instant>,
) -> bool {
    let (start, wake) = (cycles(), wake_cost());
    loop {
        for _ in 0..CHECKS_PER_CLOCK_READING {
            if channel.has_work_for(interest) || schedule.has_remote() {
                return true;
            }
        }
        let waited = cycles().wrapping_sub(start);
        if budget.is_some_and(|budget| waited > budget)
            || until.is_some_and(|until| Instant::now() >= until)
        {
            return false;
        }
        if waited > wake {
            // Give other threads a chance to run on this processor, perhaps the peer or a thread that the peer waits
            // for. Not earlier: a thread that gets the processor may keep it for a thousand times as long as an answer
            // takes.
            std::thread::yield_now();
        }
    }
}

impl fmt::Debug for Executor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Executor")
            .field("coroutines", &self.spawned.alive.get())
            .field("policy", &self.policy)
            .field("idle", &self.idle)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Spawner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Spawner").field(&self.0.alive.get()).finish()
    }
}
