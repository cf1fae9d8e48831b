//! The loop around an engine, with four ways of waiting.
//!
//! The two event loops wait as the tunnel's worker does: they let packets gather if many arrive one by one, and poll
//! for a while before sleeping if an answer is near.

use std::io;
use std::time::{Duration, Instant};

use quictun_engine::{Engine, Role};
use quictun_io::EnginePort;
use quictun_io::poller::{Key, Poller, ReadyEvent, WaitPlan};
use quictun_io::udp_port::UdpPort;
use rustix::event::PollFlags;

use super::MemorySocket;
use crate::error::PerfError;
use crate::plan::EventLoop;
use crate::stop::{Stop, WakeReason};
use crate::threads::Job;

/// Longest sleep of [`EventLoop::SleepTimeout`]. With no packets in flight the next deadline is a keep-alive, and an
/// answer that has already arrived would wait for it.
const SLEEP_MAX: Duration = Duration::from_secs(1);

const PAUSE: Duration = Duration::from_micros(100);

pub(super) struct Driver<'a, R: Role> {
    pub(super) port: EnginePort<MemorySocket<'a>, R>,
    poller: Poller,
    ready: Vec<ReadyEvent>,
    /// True if the poller watches the socket for room to send.
    wants_room: bool,
    event_loop: EventLoop,
    stop: &'a Stop,
    /// True if there is work that does not need a wait.
    more: bool,
}

impl<'a, R: Role> Driver<'a, R> {
    pub(super) fn new(
        job: Job<'a>,
        engine: Engine<MemorySocket<'a>, R>,
        udp: UdpPort,
    ) -> Result<Self, PerfError> {
        let poller = || {
            let poller = Poller::new()?;
            poller.add_input(&udp, Key::Udp)?;
            poller.add_input(job.stop, Key::Wake)?;
            Ok(poller)
        };
        Ok(Self {
            poller: poller().map_err(PerfError::io("cannot create an epoll set"))?,
            port: EnginePort::new(engine, udp),
            ready: Vec::new(),
            wants_room: false,
            event_loop: job.plan.event_loop,
            stop: job.stop,
            more: true,
        })
    }

    pub(super) fn renew(&mut self, engine: Engine<MemorySocket<'a>, R>) {
        self.port.renew(engine);
        self.more = true;
    }

    pub(super) fn hurry(&mut self) {
        self.more = true;
    }

    /// Runs one turn: waits until `until` at the latest, receives, and sends. Returns `false` if the measurement is to
    /// end. The caller must poll the engine's events.
    pub(super) fn turn(&mut self, until: Option<Instant>) -> Result<bool, PerfError> {
        if self.stop.is_raised() {
            return Ok(false);
        }
        let before = Instant::now();
        let plan = self.port.wait_plan(before);
        if !std::mem::take(&mut self.more) {
            let deadline = [self.port.engine.next_timeout(), until]
                .into_iter()
                .flatten()
                .min();
            let woken = self.wait(deadline, plan);
            if woken.map_err(PerfError::io("cannot wait"))? == WakeReason::Stopped {
                return Ok(false);
            }
        }
        let now = Instant::now();
        self.port.note_wait(now.saturating_duration_since(before));
        self.more |= self.port.receive(Some);
        let now = Instant::now();
        if self.port.engine.next_timeout().is_some_and(|at| at <= now) {
            self.port.engine.handle_timeout(now);
        }
        self.more |= self.port.flush_blocked();
        self.more |= self.port.transmit();
        Ok(true)
    }

    pub(super) fn flush(&mut self) {
        self.port.flush_blocked();
        while self.port.transmit() {}
    }

    fn wait(&mut self, deadline: Option<Instant>, plan: WaitPlan) -> io::Result<WakeReason> {
        match self.event_loop {
            EventLoop::Event | EventLoop::EventGso => self.wait_for_event(deadline, plan),
            EventLoop::Poll100us => self.stop.wait(Some(Instant::now() + PAUSE)),
            EventLoop::SleepTimeout if deadline.is_some() => {
                let latest = Instant::now() + SLEEP_MAX;
                self.stop.wait(deadline.map(|at| at.min(latest)))
            }
            // Before the first connection there is no deadline to sleep for.
            EventLoop::SleepTimeout => self.stop.wait_for(&self.port.udp, PollFlags::IN, None),
        }
    }

    fn wait_for_event(
        &mut self,
        deadline: Option<Instant>,
        plan: WaitPlan,
    ) -> io::Result<WakeReason> {
        let blocked = self.port.is_blocked();
        if std::mem::replace(&mut self.wants_room, blocked) != blocked {
            self.poller.set_output(&self.port.udp, Key::Udp, blocked)?;
        }
        self.poller.wait(deadline, plan, &mut self.ready)?;
        let stopped = self.ready.iter().any(|ready| ready.key == Key::Wake);
        Ok(if stopped {
            WakeReason::Stopped
        } else {
            WakeReason::Ready
        })
    }
}
