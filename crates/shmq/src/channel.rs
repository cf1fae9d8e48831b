//! One end of a region: the rings, arenas and doorbells as one process uses them.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;

use crate::arena::{Arena, Reserved};
use crate::atomic::Ended;
use crate::bytes::Shared;
use crate::doorbell::{Doorbell, Sleep};
use crate::item::Item;
use crate::layout::{Layout, Side};
use crate::life::Life;
use crate::line::Line;
use crate::party::{ALARM, BYE, Bells, Party};
use crate::region::{Region, RegionError, RingPlace};
use crate::violation::Violation;

/// Wake-ups in a row for which there is no reason. Honest peers cause one now and then, where we saw the item before the
/// wake-up for it came.
const EMPTY_WAKES: u32 = 1000;

/// The channel is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ChannelError {
    /// The peer closed it, and everything that it sent has been read.
    #[error("the peer closed the channel")]
    Closed,
    /// The peer's process ended without closing it, and everything that it sent has been read.
    #[error("the peer's process ended")]
    Died,
    /// The peer broke the rules. What is left in the ring stays there.
    #[error("the peer broke the rules of the channel: {0}")]
    Violation(#[from] Violation),
}

/// What has happened on a channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Items written.
    pub pushed: u64,
    /// Items read.
    pub popped: u64,
    /// Times that we woke the peer.
    pub notifications: u64,
    /// Times that we did not although there was news, since it was awake.
    pub suppressed: u64,
    /// Times that we slept and were woken.
    pub wakes: u64,
    /// Of these, without a reason.
    pub empty_wakes: u64,
}

/// A payload that the peer says it sent: inside its arena, that much is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    off: u32,
    len: u32,
}

impl Received {
    /// Bytes.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "it never is")]
    pub fn len(self) -> u32 {
        self.len
    }
}

/// Room for an item; see [`Channel::room`].
#[derive(Debug)]
#[must_use = "it stays empty until something is put there"]
pub struct Room<'a>(&'a mut Channel);

impl Room<'_> {
    /// Writes an item, as [`Channel::stage`] does.
    #[inline(always)]
    pub fn put(self, line: Line) {
        self.0.party.stage(line);
    }
}

/// An item that is there; see [`Channel::arrived`].
#[derive(Debug)]
#[must_use = "it stays in the ring until it is taken"]
pub struct Arrived<'a>(&'a mut Channel);

impl Arrived<'_> {
    /// A copy of it: the room is the peer's again.
    #[inline(always)]
    #[must_use]
    pub fn take(self) -> Line {
        self.0.party.take()
    }
}

/// See the crate's documentation.
#[derive(Debug)]
pub struct Channel {
    party: Party<RingPlace, RegionBells>,
    arena: Arena,
    ours: Shared,
    theirs: Shared,
    /// The peer is gone, for this reason; what it sent before is still read.
    leaving: Option<ChannelError>,
    /// Nothing more is written, and where the peer broke the rules nothing read.
    broken: Option<Violation>,
    /// One of the two.
    is_over: bool,
    /// Waited for the descriptor, which then has something to read.
    on_descriptor: bool,
    empty_wakes: u32,
    counters: Counters,
}

/// Wakes the process's own thread from [`Channel::wait`], from any other.
#[derive(Clone, Debug)]
pub struct Alarm {
    region: Arc<Region>,
    side: Side,
    /// Where there is one: it came by [`Channel::watch`].
    eventfd: Option<Arc<OwnedFd>>,
}

impl Alarm {
    /// The thread does not sleep, or wakes up.
    pub fn ring(&self) {
        let bell = self.region.doorbell(self.side);
        match bell.ring(ALARM) {
            Some(Sleep::Futex) => bell.sleep_on().0.wake(),
            Some(Sleep::Descriptor) => {
                if let Some(eventfd) = &self.eventfd {
                    // It fails where it is full, and then it is readable.
                    let _written = rustix::io::write(eventfd, &1_u64.to_ne_bytes());
                }
            }
            None => {}
        }
    }
}

/// The doorbells of a region, as one side sees them.
#[derive(Debug)]
struct RegionBells {
    region: Arc<Region>,
    side: Side,
    life: Option<Life>,
}

impl Bells for RegionBells {
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
            Sleep::Descriptor => self.life.iter().for_each(Life::wake_peer),
        }
    }
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
        let bells = RegionBells {
            region,
            side,
            life: None,
        };
        Self {
            party: Party::new(tx, rx, bells),
            arena: Arena::new(arena),
            ours,
            theirs,
            leaving: None,
            broken: None,
            is_over: false,
            on_descriptor: false,
            empty_wakes: 0,
            counters: Counters::default(),
        }
    }

    /// Watches the peer, which holds the other end of `socket` (connected, of any kind) for as long as it lives. The
    /// socket also wakes a peer that sleeps on it ([`Sleep::Descriptor`]), and so is nobody else's from now on.
    pub fn watch(&mut self, socket: OwnedFd) -> std::io::Result<()> {
        let bells = &mut self.party.bells;
        bells.life = Some(Life::watch(socket, &bells.region, bells.side)?);
        Ok(())
    }

    /// The region's memory, for the peer.
    pub fn memory(&self) -> BorrowedFd<'_> {
        self.region().as_fd()
    }

    /// What is readable when [`arm`](Self::arm) with [`Sleep::Descriptor`] has been answered; there is none before
    /// [`watch`](Self::watch).
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.life().map(Life::descriptor)
    }

    /// What the maker calls the region.
    pub fn generation(&self) -> u64 {
        self.region().layout().generation
    }

    /// What has happened so far.
    pub fn counters(&self) -> Counters {
        let (pushed, popped) = self.party.totals();
        Counters {
            pushed,
            popped,
            notifications: self.party.notifications,
            suppressed: self.party.suppressed,
            ..self.counters
        }
    }

    /// Writes an item, unless the ring is full. The peer sees it at once if it looks; if it sleeps, it is woken by the
    /// next [`flush`](Self::flush).
    #[inline]
    pub fn push(&mut self, item: &Item) -> Result<bool, ChannelError> {
        let staged = self.stage((*item).into());
        self.publish();
        staged
    }

    /// [`push`](Self::push) for many: the peer does not see it before [`publish`](Self::publish) or
    /// [`flush`](Self::flush), or a batch.
    #[inline(always)]
    pub fn stage(&mut self, line: Line) -> Result<bool, ChannelError> {
        let room = self.room()?;
        Ok(room.map(|room| room.put(line)).is_some())
    }

    /// Room for an item, unless the ring is full.
    // Apart from what is written: that takes no part in what is seldom, and stays in registers.
    #[inline(always)]
    pub fn room(&mut self) -> Result<Option<Room<'_>>, ChannelError> {
        if (self.is_over || !self.party.has_known_room()) && !self.look_for_room()? {
            return Ok(None);
        }
        Ok(Some(Room(self)))
    }

    /// The next item, if there is one. Ends with an error once the peer is gone and its items are read.
    #[inline]
    pub fn pop(&mut self) -> Result<Option<Item>, ChannelError> {
        self.pop_line().map(|popped| popped.map(Item::from))
    }

    /// [`pop`](Self::pop) for many.
    #[inline(always)]
    pub fn pop_line(&mut self) -> Result<Option<Line>, ChannelError> {
        if let Some(arrived) = self.arrived() {
            return Ok(Some(arrived.take()));
        }
        self.pop_other()
    }

    /// The next item, if it is there; where it is not, [`pop_other`](Self::pop_other) says why.
    #[inline(always)]
    pub fn arrived(&mut self) -> Option<Arrived<'_>> {
        (self.broken.is_none() && self.party.is_there()).then_some(Arrived(self))
    }

    /// [`pop_line`](Self::pop_line), where the next item was not there a moment ago.
    #[inline]
    pub fn pop_other(&mut self) -> Result<Option<Line>, ChannelError> {
        if !self.is_over && !self.has_news() && self.party.check().is_ok() {
            return Ok(None);
        }
        self.pop_last()
    }

    /// The peer sees what was staged, if it looks.
    #[inline(always)]
    pub fn publish(&mut self) {
        self.party.publish();
    }

    /// Publishes, and wakes the peer if it sleeps and has not seen what was written. Once per batch: before waiting, or after as many
    /// items as may be late.
    #[inline]
    pub fn flush(&mut self) {
        self.party.flush();
    }

    /// Items written since the last [`flush`](Self::flush).
    #[inline]
    pub fn unflushed(&self) -> u64 {
        self.party.unflushed()
    }

    /// Whether there is something to do: an item, room that was missing, or the peer's end.
    #[inline]
    pub fn has_work(&mut self) -> bool {
        self.party.has_work() || self.is_dead()
    }

    /// Flushes and announces that this process is about to sleep. Where it says true, it may; where false, there is
    /// something to do after all. Either way [`disarm`](Self::disarm) or [`wait`](Self::wait) comes next.
    pub fn arm(&mut self, sleep: Sleep) -> bool {
        self.on_descriptor = sleep == Sleep::Descriptor;
        self.party
            .bells
            .own()
            .set_cpu(rustix::thread::sched_getcpu());
        let idle = self.party.arm(sleep);
        idle && !self.is_over && !self.is_dead()
    }

    /// Awake again, without having waited here.
    pub fn disarm(&mut self) {
        self.party.bells.own().disarm();
        if self.on_descriptor {
            self.life().into_iter().for_each(Life::drain);
        }
    }

    /// Sleeps until the peer rings, is gone, or the time is over; after [`arm`](Self::arm) with [`Sleep::Futex`]. False
    /// where the time is over.
    pub fn wait(&mut self, timeout: Option<Duration>) -> bool {
        let bell = self.party.bells.own();
        let (futex, armed) = bell.sleep_on();
        let ended = futex.wait(armed, timeout);
        bell.disarm();
        self.note_wake(ended);
        ended != Ended::TimedOut
    }

    /// Ends the channel for what the user of its items has found out about the peer.
    pub fn reject(&mut self, violation: Violation) -> ChannelError {
        self.fail(violation)
    }

    /// For waking whoever waits here; on the descriptor, too, where it was taken after [`watch`](Self::watch).
    pub fn alarm(&self) -> Alarm {
        Alarm {
            region: self.party.bells.region.clone(),
            side: self.party.bells.side,
            eventfd: self.life().map(Life::alarm),
        }
    }

    /// Whether the peer last said to be on the processor that we are on: then looking for its answer keeps it from
    /// giving one.
    pub fn shares_cpu(&self) -> bool {
        let peer = self.party.bells.peer().cpu();
        peer == Some(rustix::thread::sched_getcpu() as u64)
    }

    /// Part of our arena for a payload of `len` bytes, if there is as much in one piece.
    pub fn reserve(&mut self, len: u32) -> Option<Reserved> {
        self.arena.reserve(len)
    }

    /// Gives it back, once the peer cannot be reading it any more: how that is known is the user's protocol.
    #[expect(clippy::needless_pass_by_value, reason = "it is gone after this")]
    pub fn release(&mut self, reserved: Reserved) {
        self.arena.release(&reserved);
    }

    /// Writes into a payload of ours, from its byte `at` on; panics where that is beyond its end.
    pub fn write(&self, reserved: &Reserved, at: u32, bytes: &[u8]) {
        assert!(
            at <= reserved.len() && bytes.len() <= (reserved.len() - at) as usize,
            "beyond the payload"
        );
        self.ours
            .part((reserved.off() + at) as usize, bytes.len())
            .write(bytes);
    }

    /// Writes a payload of ours in place: its word `i` is `make(i)`. Bytes after the last whole word stay.
    pub fn fill(&self, reserved: &Reserved, make: impl FnMut(usize) -> u64) {
        self.ours
            .part(reserved.off() as usize, reserved.len() as usize)
            .fill(make);
    }

    /// The same in lines of eight words, several times as fast for long payloads; bytes after the last whole line stay.
    #[inline]
    pub fn fill_lines(&self, reserved: &Reserved, make: impl FnMut(usize) -> [u64; 8]) {
        self.ours
            .part(reserved.off() as usize, reserved.len() as usize)
            .fill_lines(make);
    }

    /// Copies bytes of a payload of ours out, from its byte `at` on, where the peer may have answered into it; panics where
    /// that is beyond its end.
    pub fn read_back(&self, reserved: &Reserved, at: u32, into: &mut [u8]) {
        assert!(
            at <= reserved.len() && into.len() <= (reserved.len() - at) as usize,
            "beyond the payload"
        );
        let at = (reserved.off() + at) as usize;
        self.ours.part(at, into.len()).read(into);
    }

    /// The payload of an item that the peer sent, if it has one outside the item. An error where it is not in the peer's
    /// arena, which tears the channel down.
    pub fn received(&mut self, item: &Item) -> Result<Option<Received>, ChannelError> {
        self.received_at(item.off, item.len)
    }

    /// The same for a payload of which only the place is at hand.
    pub fn received_at(&mut self, off: u32, len: u32) -> Result<Option<Received>, ChannelError> {
        let arena = self.region().layout().arena;
        if len == 0 {
            return Ok(None);
        }
        if off >= arena || len > arena - off || !off.is_multiple_of(8) {
            return Err(self.fail(Violation::Payload { off, len, arena }));
        }
        Ok(Some(Received { off, len }))
    }

    /// Copies bytes of a payload out, from its byte `at` on; panics where that is beyond its end. The peer may be writing
    /// to it: check what was copied, not what is there.
    pub fn read(&self, received: Received, at: u32, into: &mut [u8]) {
        assert!(
            at <= received.len && into.len() <= (received.len - at) as usize,
            "beyond the payload"
        );
        self.theirs
            .part((received.off + at) as usize, into.len())
            .read(into);
    }

    /// Writes an answer into a payload that the peer sent, from its byte `at` on; panics where that is beyond its end.
    pub fn answer(&self, received: Received, at: u32, bytes: &[u8]) {
        assert!(
            at <= received.len && bytes.len() <= (received.len - at) as usize,
            "beyond the payload"
        );
        let at = (received.off + at) as usize;
        self.theirs.part(at, bytes.len()).write(bytes);
    }

    /// Folds over a payload where it lies, in words, the last one filled up with zeros.
    pub fn fold<T>(&self, received: Received, start: T, each: impl FnMut(T, u64) -> T) -> T {
        self.theirs
            .part(received.off as usize, received.len as usize)
            .fold(start, each)
    }

    /// The same in lines of eight words, several times as fast for long payloads; the last one filled up with zeros.
    #[inline]
    pub fn fold_lines<T>(
        &self,
        received: Received,
        start: T,
        each: impl FnMut(T, &[u64; 8]) -> T,
    ) -> T {
        self.theirs
            .part(received.off as usize, received.len as usize)
            .fold_lines(start, each)
    }

    fn why_over(&self) -> ChannelError {
        let why = self.broken.map(ChannelError::from).or(self.leaving);
        why.unwrap_or(ChannelError::Closed)
    }

    #[cold]
    #[inline(never)]
    fn fail(&mut self, violation: Violation) -> ChannelError {
        self.is_over = true;
        if self.broken.is_none() {
            self.broken = Some(violation);
            self.leave();
        }
        violation.into()
    }

    /// The peer need not expect anything any more.
    fn leave(&mut self) {
        self.party.publish();
        self.party.bells.own().close();
        self.party.ring(BYE);
    }

    fn region(&self) -> &Region {
        &self.party.bells.region
    }

    fn life(&self) -> Option<&Life> {
        self.party.bells.life.as_ref()
    }

    /// Whether the peer is dead and that is news.
    #[inline]
    fn is_dead(&self) -> bool {
        self.leaving.is_none() && self.life().is_some_and(Life::died)
    }

    #[inline]
    fn has_news(&self) -> bool {
        self.party.bells.own().is_pending() || self.is_dead()
    }

    /// Looks at why the doorbell was rung, and then once more for an item: what the peer did last comes after its items.
    #[cold]
    #[inline(never)]
    fn pop_last(&mut self) -> Result<Option<Line>, ChannelError> {
        if let Some(violation) = self.broken {
            return Err(violation.into());
        }
        let reasons = self.party.bells.own().take();
        if reasons & BYE != 0 {
            self.leaving = self.leaving.or(Some(ChannelError::Closed));
            self.is_over = true;
        }
        if self.is_dead() {
            self.life().into_iter().for_each(Life::set_noticed);
            self.leaving = Some(ChannelError::Died);
            self.is_over = true;
        }
        if self.party.is_there() {
            return Ok(Some(self.party.take()));
        }
        if let Err(violation) = self.party.check() {
            return Err(self.fail(violation));
        }
        self.leaving.map_or(Ok(None), Err)
    }

    /// Whether there is room, where none is known of.
    #[cold]
    #[inline(never)]
    fn look_for_room(&mut self) -> Result<bool, ChannelError> {
        if self.is_over {
            return Err(self.why_over());
        }
        self.party
            .has_room()
            .map_err(|violation| self.fail(violation))
    }

    fn note_wake(&mut self, ended: Ended) {
        if ended != Ended::Woken {
            return;
        }
        self.counters.wakes += 1;
        if self.has_work() {
            self.empty_wakes = 0;
            return;
        }
        self.counters.empty_wakes += 1;
        self.empty_wakes += 1;
        if self.empty_wakes > EMPTY_WAKES {
            self.fail(Violation::EmptyWakes(self.empty_wakes));
        }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        self.leave();
    }
}
