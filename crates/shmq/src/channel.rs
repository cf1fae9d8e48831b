//! One end of a region: the rings, arenas and doorbells as one process uses them.

mod end;
pub(crate) mod payload;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use crate::alarm::Alarm;
use crate::arena::Arena;
use crate::atomic::Ended;
use crate::bytes::Shared;
use crate::doorbell::{Doorbell, Sleep};
use crate::layout::{Layout, Side};
use crate::message::Message;
use crate::peer_watch::PeerWatch;
use crate::region::{Region, RegionError, RegionRing};
use crate::ring_pair::{Doorbells, RingPair, Wants};
use crate::violation::{ChannelError, Violation};

/// What has happened on a channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Messages written.
    pub pushed: u64,
    /// Messages read.
    pub popped: u64,
    /// Times that we woke the peer.
    pub notifications: u64,
    /// Times that we did not although there was news, since it was awake.
    pub suppressed: u64,
    /// Times that we slept and were woken.
    pub wakes: u64,
    /// Wake-ups among them without a reason.
    pub empty_wakes: u64,
}

/// Room for a message; see [`Channel::room`].
#[derive(Debug)]
#[must_use = "it stays empty until something is put there"]
pub struct Room<'a>(&'a mut Channel);

impl Room<'_> {
    /// Writes a message, as [`Channel::stage`] does.
    #[inline(always)]
    pub fn put(self, message: Message) {
        self.0.ring_pair.stage(message);
    }
}

/// A message that is there; see [`Channel::arrived`].
#[derive(Debug)]
#[must_use = "it stays in the ring until it is taken"]
pub struct Arrived<'a>(&'a mut Channel);

impl Arrived<'_> {
    /// A copy of it: the room is the peer's again.
    #[inline(always)]
    pub fn take(self) -> Message {
        self.0.ring_pair.take()
    }
}

/// See the crate's documentation.
#[derive(Debug)]
pub struct Channel {
    ring_pair: RingPair<RegionRing, RegionDoorbells>,
    arena: Arena,
    ours: Shared,
    theirs: Shared,
    /// The peer is gone, for this reason; what it sent before is still read.
    leaving: Option<ChannelError>,
    /// Nothing more is written, and where the peer broke the rules nothing read.
    broken: Option<Violation>,
    /// The peer is gone or the channel is broken.
    is_over: bool,
    /// Waited for the descriptor, which then has something to read.
    on_descriptor: bool,
    /// What it sleeps, or slept last, until there is.
    wants: Wants,
    empty_wakes: u32,
    alarm: Alarm,
    /// Times that they had done that by the last wake-up.
    alarms: u64,
    counters: Counters,
}

// SAFETY: `ours` and `theirs` point into the region, which any thread may use and which lives as long as this.
unsafe impl Send for Channel {}

impl Channel {
    /// Makes a region with arenas of `arena` bytes for each side (whole pages). Its memory goes to the peer as a
    /// descriptor ([`memory`](Self::memory)); `generation` tells it from others.
    pub fn create(arena: u32, generation: u64) -> Result<Self, RegionError> {
        let region = Region::create(Layout::new(arena, generation)?)?;
        Ok(Self::new(region, Side::First))
    }

    /// Takes part in a region that a peer made. One process in one place: the rings have one reader and one writer each.
    pub fn open(memory: OwnedFd) -> Result<Self, RegionError> {
        Ok(Self::new(Region::open(memory)?, Side::Second))
    }

    fn new(region: Region, side: Side) -> Self {
        let region = Arc::new(region);
        let bytes = |side| {
            let (base, len) = (region.arena(side), region.layout().arena);
            // SAFETY: the layout puts an arena of this length there, inside the mapping, which the channel keeps; no
            // reference to its bytes is ever made.
            unsafe { Shared::new(base, len as usize) }
        };
        let (tx, rx) = (region.ring(side), region.ring(side.peer()));
        let (arena, ours, theirs) = (region.layout().arena, bytes(side), bytes(side.peer()));
        let alarm = Alarm::new(region.clone(), side);
        let doorbells = RegionDoorbells {
            region,
            side,
            peer_watch: None,
        };
        Self {
            ring_pair: RingPair::new(tx, rx, doorbells),
            arena: Arena::new(arena),
            ours,
            theirs,
            leaving: None,
            broken: None,
            is_over: false,
            on_descriptor: false,
            wants: Wants::default(),
            empty_wakes: 0,
            alarm,
            alarms: 0,
            counters: Counters::default(),
        }
    }

    /// Watches the peer, which holds the other end of `socket` (connected, of any kind) for as long as it lives. The
    /// socket also wakes a peer that sleeps on it ([`Sleep::Descriptor`]), and so is nobody else's from now on.
    pub fn watch(&mut self, socket: OwnedFd) -> std::io::Result<()> {
        let life = PeerWatch::watch(socket, self.alarm.clone())?;
        self.alarm = self.alarm.clone().with_eventfd(life.alarm());
        self.ring_pair.doorbells.peer_watch = Some(life);
        Ok(())
    }

    /// The region's memory, for the peer.
    pub fn memory(&self) -> BorrowedFd<'_> {
        self.region().as_fd()
    }

    /// What is readable when [`arm`](Self::arm) with [`Sleep::Descriptor`] has been answered; there is none before
    /// [`watch`](Self::watch).
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.peer_watch().map(PeerWatch::descriptor)
    }

    /// For waking the thread that waits here; on the descriptor, too, where it was taken after [`watch`](Self::watch).
    pub fn alarm(&self) -> Alarm {
        self.alarm.clone()
    }

    /// What the maker calls the region.
    pub fn generation(&self) -> u64 {
        self.region().layout().generation
    }

    /// What has happened so far.
    pub fn counters(&self) -> Counters {
        Counters {
            pushed: self.ring_pair.tx.written(),
            popped: self.ring_pair.rx.consumed(),
            notifications: self.ring_pair.notifications,
            suppressed: self.ring_pair.suppressed,
            ..self.counters
        }
    }

    /// Writes a message, unless the ring is full. The peer sees it at once if it looks; if it sleeps, it is woken by the
    /// next [`flush`](Self::flush).
    #[inline]
    pub fn push(&mut self, message: Message) -> Result<bool, ChannelError> {
        let staged = self.stage(message);
        self.publish();
        staged
    }

    /// [`push`](Self::push) for many: the peer does not see it before [`publish`](Self::publish) or
    /// [`flush`](Self::flush), or a batch.
    #[inline(always)]
    pub fn stage(&mut self, message: Message) -> Result<bool, ChannelError> {
        let room = self.room()?;
        Ok(room.map(|room| room.put(message)).is_some())
    }

    /// Room for a message, unless the ring is full.
    // Apart from what is written: that takes no part in what is seldom, and stays in registers.
    #[inline(always)]
    pub fn room(&mut self) -> Result<Option<Room<'_>>, ChannelError> {
        if (self.is_over || !self.ring_pair.tx.has_known_room()) && !self.look_for_room()? {
            return Ok(None);
        }
        Ok(Some(Room(self)))
    }

    /// The next message, if there is one. Ends with an error once the peer is gone and its messages are read.
    #[inline(always)]
    pub fn pop(&mut self) -> Result<Option<Message>, ChannelError> {
        if let Some(arrived) = self.arrived() {
            return Ok(Some(arrived.take()));
        }
        self.pop_other()
    }

    /// The next message, if it is there; where it is not, [`pop_other`](Self::pop_other) says why.
    #[inline(always)]
    pub fn arrived(&mut self) -> Option<Arrived<'_>> {
        (self.broken.is_none() && self.ring_pair.rx.is_there()).then_some(Arrived(self))
    }

    /// [`pop`](Self::pop), where the next message was not there a moment ago.
    #[inline]
    pub fn pop_other(&mut self) -> Result<Option<Message>, ChannelError> {
        if !self.is_over && !self.has_news() && self.ring_pair.rx.check().is_ok() {
            return Ok(None);
        }
        self.pop_last()
    }

    /// Takes note of what the doorbell was rung for, and of the peer's end, as [`pop`](Self::pop) does: for who may sleep
    /// without taking messages.
    #[inline]
    pub fn notice(&mut self) {
        if self.has_news() {
            self.take_notice();
        }
    }

    /// The peer sees what was staged, if it looks.
    #[inline(always)]
    pub fn publish(&mut self) {
        self.ring_pair.tx.publish();
    }

    /// Messages staged that the peer cannot see yet.
    #[inline(always)]
    pub fn staged(&self) -> u64 {
        self.ring_pair.tx.staged()
    }

    /// Publishes, and wakes the peer if it sleeps and has not seen what was written. Once per batch: before waiting, or after as many
    /// messages as may be late.
    #[inline]
    pub fn flush(&mut self) {
        self.ring_pair.flush();
    }

    /// Messages written since the last [`flush`](Self::flush).
    #[inline]
    pub fn unflushed(&self) -> u64 {
        self.ring_pair.tx.unsettled()
    }

    /// Whether there is something to do: a message, room that was missing, or the peer's end.
    #[inline]
    pub fn has_work(&mut self) -> bool {
        self.ring_pair.has_work() || self.is_dead()
    }

    /// The same for one who does not want all that may come. A channel that is over has nothing but that to tell, to whoever
    /// wants something. What the doorbell was rung for counts until it is [noticed](Self::notice).
    #[inline]
    pub fn has_work_for(&mut self, wants: Wants) -> bool {
        if self.is_over {
            return self.is_work_at_the_end(wants);
        }
        self.ring_pair.has_work_for(wants) || self.is_dead()
    }

    /// Flushes and announces that this process is about to sleep. Where it says true, it may; where false, there is
    /// something to do after all, and [`disarm`](Self::disarm) comes next; otherwise [`wait`](Self::wait), or
    /// [`wake_up`](Self::wake_up) after a sleep elsewhere.
    pub fn arm(&mut self, sleep: Sleep) -> bool {
        self.wants = self.ring_pair.usual_wants();
        self.prepare(sleep);
        let idle = self.ring_pair.arm(sleep);
        idle && !self.is_over && !self.is_dead()
    }

    /// The same, to sleep until there is what one wants ([`has_work_for`](Self::has_work_for)).
    pub fn arm_for(&mut self, sleep: Sleep, wants: Wants) -> bool {
        self.wants = wants;
        self.prepare(sleep);
        let idle = self.ring_pair.arm_for(sleep, wants);
        if self.is_over {
            return !self.is_work_at_the_end(wants);
        }
        idle && !self.is_dead()
    }

    fn prepare(&mut self, sleep: Sleep) {
        self.on_descriptor = sleep == Sleep::Descriptor;
        self.ring_pair
            .doorbells
            .own()
            .set_cpu(rustix::thread::sched_getcpu());
    }

    /// Awake again after a sleep elsewhere, on the [`descriptor`](Self::descriptor), or for as long as somebody else liked.
    pub fn wake_up(&mut self) {
        let rung = !self.ring_pair.doorbells.own().is_armed();
        self.disarm();
        if rung {
            self.note_wake(Ended::Woken);
        }
    }

    /// Awake again, without having slept.
    pub fn disarm(&mut self) {
        self.ring_pair.doorbells.own().disarm();
        if self.on_descriptor {
            self.peer_watch().into_iter().for_each(PeerWatch::drain);
        }
    }

    /// Sleeps until the peer rings, is gone, or the time is over; after [`arm`](Self::arm) with [`Sleep::Futex`]. False
    /// where the time is over.
    pub fn wait(&mut self, timeout: Option<Duration>) -> bool {
        let bell = self.ring_pair.doorbells.own();
        let (futex, armed) = bell.sleep_on();
        let ended = futex.wait(armed, timeout);
        bell.disarm();
        self.note_wake(ended);
        ended != Ended::TimedOut
    }

    /// Whether the peer last said to be on the processor that we are on: then looking for its answer keeps it from
    /// giving one.
    pub fn shares_cpu(&self) -> bool {
        let peer = self.ring_pair.doorbells.peer().cpu();
        peer == Some(rustix::thread::sched_getcpu() as u64)
    }

    fn region(&self) -> &Region {
        &self.ring_pair.doorbells.region
    }

    fn peer_watch(&self) -> Option<&PeerWatch> {
        self.ring_pair.doorbells.peer_watch.as_ref()
    }
}

#[derive(Debug)]
struct RegionDoorbells {
    region: Arc<Region>,
    side: Side,
    peer_watch: Option<PeerWatch>,
}

impl Doorbells for RegionDoorbells {
    #[inline]
    fn own(&self) -> &Doorbell {
        self.region.doorbell(self.side)
    }

    #[inline]
    fn peer(&self) -> &Doorbell {
        self.region.doorbell(self.side.peer())
    }

    fn wake_peer(&self, sleep: Sleep) {
        match sleep {
            Sleep::Futex => self.peer().sleep_on().0.wake(),
            Sleep::Descriptor => self.peer_watch.iter().for_each(PeerWatch::wake_peer),
        }
    }
}
