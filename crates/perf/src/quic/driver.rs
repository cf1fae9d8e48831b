//! The loop around an engine, in four ways of waiting.
//!
//! The ones that wait for events wait as the tunnel's worker does: they let packets gather where many come one by
//! one, and look again for a while where an answer is near.

use std::time::{Duration, Instant};

use quictun_engine::{Datagrams, Engine};
use quictun_io::gather::Gather;
use quictun_io::spin::Spin;
use quictun_io::udp_port::{Sent, UdpPort};
use rustix::event::PollFlags;

use super::MemorySocket;
use crate::error::PerfError;
use crate::plan::Loop;
use crate::stop::{Stop, Woken};

/// Batches sent, and rounds of buffers received, before the other has its turn: as the tunnel's worker does.
const SEND_ROUNDS: usize = 16;
const RECEIVE_ROUNDS: usize = 4;

/// Longest sleep of [`Loop::SleepTimeout`]: with nothing under way its next deadline is a keep-alive, and an answer that is
/// there already would wait for that.
const SLEEP_MAX: Duration = Duration::from_secs(1);

/// The pause of [`Loop::Poll100us`].
const PAUSE: Duration = Duration::from_micros(100);

/// An engine, its socket, and how they are waited for.
pub(super) struct Driver<'s, 'a> {
    pub(super) engine: Engine<MemorySocket<'a>>,
    port: UdpPort,
    event_loop: Loop,
    stop: &'s Stop,
    /// A batch the socket had no room for.
    blocked: Option<(Datagrams, Vec<u8>)>,
    buffer: Vec<u8>,
    /// There is something to do without waiting.
    more: bool,
    gather: Gather,
    spin: Spin,
    /// Bytes of datagrams in this turn.
    moved: usize,
}

impl<'s, 'a> Driver<'s, 'a> {
    pub(super) fn new(
        engine: Engine<MemorySocket<'a>>,
        port: UdpPort,
        event_loop: Loop,
        stop: &'s Stop,
    ) -> Self {
        let gather = Gather::new(Instant::now(), port.merges());
        let mut driver = Self {
            engine,
            port,
            event_loop,
            stop,
            blocked: None,
            buffer: Vec::new(),
            more: true,
            gather,
            spin: Spin::default(),
            moved: 0,
        };
        driver.limit_segments();
        driver
    }

    /// Goes on with another engine on the same socket.
    pub(super) fn renew(&mut self, engine: Engine<MemorySocket<'a>>) {
        self.engine = engine;
        self.blocked = None;
        self.more = true;
        self.limit_segments();
    }

    fn limit_segments(&mut self) {
        if !self.port.segments() {
            self.engine.set_max_segments(1);
        }
    }

    /// Something was done to the engine between turns.
    pub(super) fn hurry(&mut self) {
        self.more = true;
    }

    /// One turn: waits, at the longest until `until`, receives, sends. `false`: everything is to end. The engine's
    /// events are the caller's.
    pub(super) fn turn(&mut self, until: Option<Instant>) -> Result<bool, PerfError> {
        if self.stop.is_raised() {
            return Ok(false);
        }
        let before = Instant::now();
        let moved = std::mem::take(&mut self.moved);
        self.gather.note(before, moved);
        if self.gather.asks(before) {
            let round_trip = self.engine.shortest_round_trip();
            self.gather.set_round_trip(before, round_trip);
        }
        self.spin.note_bulk(moved);
        if !std::mem::take(&mut self.more) {
            let deadline = [self.engine.next_timeout(), until]
                .into_iter()
                .flatten()
                .min();
            if self.wait(deadline).map_err(PerfError::io("waiting"))? == Woken::Stopped {
                return Ok(false);
            }
        }
        let now = Instant::now();
        self.spin.note_wait(now.saturating_duration_since(before));
        self.receive();
        let now = Instant::now();
        if self.engine.next_timeout().is_some_and(|at| at <= now) {
            self.engine.handle_timeout(now);
        }
        self.flush_blocked();
        self.more |= self.transmit();
        Ok(true)
    }

    /// Sends what the engine still has.
    pub(super) fn flush(&mut self) {
        self.flush_blocked();
        while self.transmit() {}
    }

    fn wait(&self, deadline: Option<Instant>) -> std::io::Result<Woken> {
        match self.event_loop {
            Loop::Event | Loop::EventGso => self.wait_for_event(deadline),
            Loop::Poll100us => self.stop.wait(Some(Instant::now() + PAUSE)),
            Loop::SleepTimeout if deadline.is_some() => {
                let latest = Instant::now() + SLEEP_MAX;
                self.stop.wait(deadline.map(|at| at.min(latest)))
            }
            // Before the first connection there is no deadline to sleep for.
            Loop::SleepTimeout => self.stop.wait_for(&self.port, PollFlags::IN, None),
        }
    }

    fn wait_for_event(&self, deadline: Option<Instant>) -> std::io::Result<Woken> {
        let start = Instant::now();
        let at_most = |time| deadline.map_or(start + time, |until| until.min(start + time));
        let pause = self.gather.pause();
        if !pause.is_zero() {
            return self.stop.wait(Some(at_most(pause)));
        }
        let mut flags = PollFlags::IN;
        flags.set(PollFlags::OUT, self.blocked.is_some());
        let until = at_most(self.spin.budget());
        while Instant::now() < until {
            match self.stop.wait_for(&self.port, flags, Some(start))? {
                Woken::Due => std::thread::yield_now(),
                woken => return Ok(woken),
            }
        }
        self.stop.wait_for(&self.port, flags, deadline)
    }

    fn receive(&mut self) {
        let engine = &mut self.engine;
        let moved = &mut self.moved;
        for _ in 0..RECEIVE_ROUNDS {
            // No earlier than they came: a round trip that seems shorter than the path would be believed for long.
            let mut read = None;
            let received = self.port.receive(&mut |datagram| {
                let now = *read.get_or_insert_with(Instant::now);
                *moved += datagram.data.len();
                engine.handle_datagram(
                    now,
                    datagram.remote,
                    datagram.local_ip,
                    datagram.ecn,
                    datagram.data,
                );
            });
            match received {
                Ok(true) => {}
                // Errors here are echoes of earlier sends (ICMP); QUIC has its own timeouts.
                Ok(false) | Err(_) => return,
            }
        }
        self.more = true;
    }

    /// `true`: there is more.
    fn transmit(&mut self) -> bool {
        self.engine.drive(Instant::now());
        if self.blocked.is_some() {
            return false;
        }
        for _ in 0..SEND_ROUNDS {
            // Every batch has a time of its own: the engine's rate samples tell batches apart by it.
            let now = Instant::now();
            let Some(datagrams) = self.engine.poll_transmit(now, &mut self.buffer) else {
                return false;
            };
            if !self.send(&datagrams) {
                return false;
            }
        }
        true
    }

    fn send(&mut self, datagrams: &Datagrams) -> bool {
        self.moved += datagrams.size;
        match self.port.send(datagrams, &self.buffer[..datagrams.size]) {
            Sent::Done => true,
            Sent::Unsegmented => {
                self.engine.set_max_segments(1);
                true
            }
            Sent::Full => {
                self.blocked = Some((*datagrams, std::mem::take(&mut self.buffer)));
                false
            }
        }
    }

    fn flush_blocked(&mut self) {
        if let Some((datagrams, bytes)) = self.blocked.take() {
            self.buffer = bytes;
            if self.send(&datagrams) {
                self.more = true;
            }
        }
    }
}
