//! One end of a region: the rings, arenas and doorbells from the view of one process.

mod end;
pub(crate) mod payload;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use crate::alarm::Alarm;
use crate::arena::Arena;
use crate::atomic::WaitResult;
use crate::bytes::SharedBytes;
use crate::doorbell::{Doorbell, SleepMode};
use crate::layout::{Layout, RegionSide};
use crate::message::Message;
use crate::peer_watch::PeerWatch;
use crate::region::{Region, RegionError, RegionRing};
use crate::ring_pair::{Doorbells, Interest, RingPair};
use crate::violation::{ChannelError, Violation};

/// Statistics of a channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Messages that this side has written.
    pub pushed: u64,
    /// Messages that this side has read.
    pub popped: u64,
    /// Number of times that the local side woke the peer.
    pub notifications: u64,
    /// Number of times that the local side had news but did not notify the peer, because the peer was awake.
    pub suppressed: u64,
    /// Number of times that the local side slept and was woken.
    pub wakes: u64,
    /// Number of these wake-ups that had no reason.
    pub empty_wakes: u64,
}

/// Room for one message; see [`Channel::room`].
#[derive(Debug)]
#[must_use = "the slot stays empty until a message is put into it"]
pub struct FreeSlot<'a>(&'a mut Channel);

impl FreeSlot<'_> {
    /// Writes a message, as [`Channel::stage`] does.
    #[inline(always)]
    pub fn put(self, message: Message) {
        self.0.ring_pair.stage(message);
    }
}

/// A message that has arrived; see [`Channel::arrived`].
#[derive(Debug)]
#[must_use = "the message stays in the ring until it is taken"]
pub struct ArrivedMessage<'a>(&'a mut Channel);

impl ArrivedMessage<'_> {
    /// Copies the message out of the ring and frees its slot for the peer.
    #[inline(always)]
    pub fn take(self) -> Message {
        self.0.ring_pair.take()
    }
}

/// One process's end of a channel. The crate documentation explains its use.
#[derive(Debug)]
pub struct Channel {
    ring_pair: RingPair<RegionRing, RegionDoorbells>,
    arena: Arena,
    ours: SharedBytes,
    theirs: SharedBytes,
    /// The reason why the peer is gone, once known. Messages that it sent before are still read.
    leaving: Option<ChannelError>,
    /// The violation that broke the channel. Nothing more is written or read.
    broken: Option<Violation>,
    /// Set once the peer is gone or the channel is broken.
    is_over: bool,
    /// The last arming was for a sleep on the descriptor, which then may have something to read.
    on_descriptor: bool,
    /// The events that the current sleep waits for, or that the last one waited for.
    interest: Interest,
    empty_wakes: u32,
    alarm: Alarm,
    /// Number of alarms that had been rung at the last wake-up.
    alarms: u64,
    counters: Counters,
}

// SAFETY: `ours` and `theirs` point into the region, which any thread may use and which lives as long as this value.
unsafe impl Send for Channel {}

impl Channel {
    /// Creates a region with arenas of `arena` bytes for each side (whole pages). Its memory is passed to the peer as a
    /// descriptor ([`memory`](Self::memory)). `generation` distinguishes the region from others.
    pub fn create(arena: u32, generation: u64) -> Result<Self, RegionError> {
        let region = Region::create(Layout::new(arena, generation)?)?;
        Ok(Self::new(region, RegionSide::First))
    }

    /// Opens a region that the peer created. Only one process may open it, and only once: each ring has exactly one
    /// reader and one writer.
    pub fn open(memory: OwnedFd) -> Result<Self, RegionError> {
        Ok(Self::new(Region::open(memory)?, RegionSide::Second))
    }

    fn new(region: Region, side: RegionSide) -> Self {
        let region = Arc::new(region);
        let bytes = |side| {
            let (base, len) = (region.arena(side), region.layout().arena);
            // SAFETY: the layout places an arena of this length there, inside the mapping, which the channel keeps
            // alive. No reference to its bytes is ever created.
            unsafe { SharedBytes::new(base, len as usize) }
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
            interest: Interest::default(),
            empty_wakes: 0,
            alarm,
            alarms: 0,
            counters: Counters::default(),
        }
    }

    /// Watches the peer, which must hold the other end of `socket` (connected, of any kind) as long as it lives. The
    /// channel also uses the socket to wake a peer that sleeps on its descriptor ([`SleepMode::Descriptor`]), so no other
    /// code may use the socket from now on.
    pub fn watch(&mut self, socket: OwnedFd) -> std::io::Result<()> {
        let life = PeerWatch::watch(socket, self.alarm.clone())?;
        self.alarm = self.alarm.clone().with_eventfd(life.alarm());
        self.ring_pair.doorbells.peer_watch = Some(life);
        Ok(())
    }

    /// Returns the descriptor of the region's memory, to be passed to the peer.
    pub fn memory(&self) -> BorrowedFd<'_> {
        self.region().as_fd()
    }

    /// Returns the descriptor that becomes readable when the doorbell is rung after [`arm`](Self::arm) with
    /// [`SleepMode::Descriptor`]. Returns `None` before [`watch`](Self::watch).
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.peer_watch().map(PeerWatch::descriptor)
    }

    /// Returns a handle that wakes the thread waiting on this channel. It wakes a sleep on the descriptor, too, if it
    /// was taken after [`watch`](Self::watch).
    pub fn alarm(&self) -> Alarm {
        self.alarm.clone()
    }

    /// Returns the number that the creator gave to the region.
    pub fn generation(&self) -> u64 {
        self.region().layout().generation
    }

    /// Returns the channel's statistics.
    pub fn counters(&self) -> Counters {
        Counters {
            pushed: self.ring_pair.tx.written(),
            popped: self.ring_pair.rx.consumed(),
            notifications: self.ring_pair.notifications,
            suppressed: self.ring_pair.suppressed,
            ..self.counters
        }
    }

    /// Writes a message unless the ring is full; returns whether it was written. A peer that polls sees the message at
    /// once. A peer that sleeps is woken by the next [`flush`](Self::flush).
    #[inline]
    pub fn push(&mut self, message: Message) -> Result<bool, ChannelError> {
        let staged = self.stage(message);
        self.publish();
        staged
    }

    /// Like [`push`](Self::push), but for several messages: the peer sees them only after [`publish`](Self::publish) or
    /// [`flush`](Self::flush), or when a batch is complete.
    #[inline(always)]
    pub fn stage(&mut self, message: Message) -> Result<bool, ChannelError> {
        let room = self.room()?;
        Ok(room.map(|room| room.put(message)).is_some())
    }

    /// Returns room for a message, or `None` if the ring is full.
    // This is separate from writing the message: the message takes no part in the rare path and stays in registers.
    #[inline(always)]
    pub fn room(&mut self) -> Result<Option<FreeSlot<'_>>, ChannelError> {
        if (self.is_over || !self.ring_pair.tx.has_known_room()) && !self.check_for_room()? {
            return Ok(None);
        }
        Ok(Some(FreeSlot(self)))
    }

    /// Takes the next message, if there is one. Fails once the peer is gone and all its messages have been read.
    #[inline(always)]
    pub fn pop(&mut self) -> Result<Option<Message>, ChannelError> {
        if let Some(arrived) = self.arrived() {
            return Ok(Some(arrived.take()));
        }
        self.pop_other()
    }

    /// Returns the next message if it has arrived. If not, [`pop_other`](Self::pop_other) finds out why.
    #[inline(always)]
    pub fn arrived(&mut self) -> Option<ArrivedMessage<'_>> {
        (self.broken.is_none() && self.ring_pair.rx.has_message()).then_some(ArrivedMessage(self))
    }

    /// Like [`pop`](Self::pop), for use after [`arrived`](Self::arrived) returned `None`.
    #[inline]
    pub fn pop_other(&mut self) -> Result<Option<Message>, ChannelError> {
        if !self.is_over && !self.has_notice() && self.ring_pair.rx.check().is_ok() {
            return Ok(None);
        }
        self.pop_last()
    }

    /// Reads why the doorbell was rung and whether the peer is gone, as [`pop`](Self::pop) does. For callers that may
    /// sleep without taking messages.
    #[inline]
    pub fn notice(&mut self) {
        if self.has_notice() {
            self.take_notice();
        }
    }

    /// Makes all staged messages visible to the peer.
    #[inline(always)]
    pub fn publish(&mut self) {
        self.ring_pair.tx.publish();
    }

    /// Returns the number of staged messages that the peer cannot see yet.
    #[inline(always)]
    pub fn staged(&self) -> u64 {
        self.ring_pair.tx.staged()
    }

    /// Publishes staged messages, and wakes the peer if it sleeps and has not seen them. Call it once per batch: before
    /// waiting, or after as many messages as may be delayed.
    #[inline]
    pub fn flush(&mut self) {
        self.ring_pair.flush();
    }

    /// Returns the number of messages written since the last [`flush`](Self::flush).
    #[inline]
    pub fn unflushed(&self) -> u64 {
        self.ring_pair.tx.unsettled()
    }

    /// Returns whether there is work to do: a message, room after the ring was full, or the end of the peer.
    #[inline]
    pub fn has_work(&mut self) -> bool {
        self.ring_pair.has_work() || self.is_dead()
    }

    /// Like [`has_work`](Self::has_work), for a caller that waits only for `interest`. Once the channel is over, its end
    /// is the only work left, and it counts for every caller that wants anything. The reasons of a ring count until
    /// [`notice`](Self::notice) reads them.
    #[inline]
    pub fn has_work_for(&mut self, interest: Interest) -> bool {
        if self.is_over {
            return self.is_work_at_the_end(interest);
        }
        self.ring_pair.has_work_for(interest) || self.is_dead()
    }

    /// Flushes and announces that this process is about to sleep. Returns true if it may sleep: continue with
    /// [`wait`](Self::wait), or with [`wake_up`](Self::wake_up) after a sleep elsewhere. Returns false if there is work
    /// after all: continue with [`disarm`](Self::disarm).
    pub fn arm(&mut self, sleep: SleepMode) -> bool {
        self.interest = self.ring_pair.usual_interest();
        self.prepare(sleep);
        let idle = self.ring_pair.arm(sleep);
        idle && !self.is_over && !self.is_dead()
    }

    /// Like [`arm`](Self::arm), to sleep until one of `interest` is available ([`has_work_for`](Self::has_work_for)).
    pub fn arm_for(&mut self, sleep: SleepMode, interest: Interest) -> bool {
        self.interest = interest;
        self.prepare(sleep);
        let idle = self.ring_pair.arm_for(sleep, interest);
        if self.is_over {
            return !self.is_work_at_the_end(interest);
        }
        idle && !self.is_dead()
    }

    /// Takes the next message, and sleeps until there is one. Returns `None` if the peer is gone.
    pub fn pop_or_sleep(&mut self) -> Option<Message> {
        loop {
            if let Some(message) = self.pop().ok()? {
                return Some(message);
            }
            if self.arm(SleepMode::Futex) {
                self.wait(None);
            } else {
                self.disarm();
            }
        }
    }

    fn prepare(&mut self, sleep: SleepMode) {
        self.on_descriptor = sleep == SleepMode::Descriptor;
        self.ring_pair
            .doorbells
            .own()
            .set_cpu(rustix::thread::sched_getcpu());
    }

    /// Ends a sleep outside this channel, on the [`descriptor`](Self::descriptor) or for a time that other code chose.
    pub fn wake_up(&mut self) {
        let rung = !self.ring_pair.doorbells.own().is_armed();
        self.disarm();
        if rung {
            self.note_wake(WaitResult::Woken);
        }
    }

    /// Cancels [`arm`](Self::arm) if the process did not sleep.
    pub fn disarm(&mut self) {
        self.ring_pair.doorbells.own().disarm();
        if self.on_descriptor {
            self.peer_watch().into_iter().for_each(PeerWatch::drain);
        }
    }

    /// Sleeps until the peer rings, the peer is gone, or `timeout` elapses. Call it after [`arm`](Self::arm) with
    /// [`SleepMode::Futex`] returned true. Returns false if `timeout` elapsed.
    pub fn wait(&mut self, timeout: Option<Duration>) -> bool {
        let bell = self.ring_pair.doorbells.own();
        let (futex, armed) = bell.sleep_on();
        let ended = futex.wait(armed, timeout);
        bell.disarm();
        self.note_wake(ended);
        ended != WaitResult::TimedOut
    }

    /// Returns whether the peer last reported that it runs on the current processor. Polling for its answer would then
    /// keep it from answering.
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
    side: RegionSide,
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

    fn wake_peer(&self, sleep: SleepMode) {
        match sleep {
            SleepMode::Futex => self.peer().sleep_on().0.wake(),
            SleepMode::Descriptor => self.peer_watch.iter().for_each(PeerWatch::wake_peer),
        }
    }
}
