//! The client's end of a measurement over QUIC.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use quictun_engine::{ClientRole, Ending, Engine, EngineConfig, Event};
use quictun_io::udp_port;
use rustls::ClientConfig;

use super::driver::Driver;
use super::socket::Ends;
use super::{MemorySocket, PATIENCE, path, port, random, transport};
use crate::error::PerfError;
use crate::latency::Times;
use crate::meter::{Clock, Measured};
use crate::pace::{Pace, Unanswered};
use crate::plan::{Mode, Plan};
use crate::stop::Stop;

/// How long a stream whose time is over waits for the other end, whose time began later: a loop that sleeps through
/// its packets may never hear of it.
const LINGER: Duration = Duration::from_secs(5);

/// More than passes in any measurement, and still a legal length of a stream.
const ENDLESS: u64 = 1 << 60;

/// What the threads that ask need.
pub(crate) struct Asking<'a> {
    pub(crate) server: SocketAddr,
    pub(crate) plan: &'a Plan,
    pub(crate) crypto: Arc<ClientConfig>,
    pub(crate) seed: u64,
    pub(crate) clock: &'a Clock,
    pub(crate) began: Instant,
    pub(crate) stop: &'a Stop,
}

/// One thread of it.
struct Asker<'a> {
    asking: &'a Asking<'a>,
    driver: Driver<'a, 'a>,
    ends: Rc<Ends<'a>>,
    connected: u32,
    /// Flows that have ended since last asked.
    ended: u32,
}

/// One request after another.
struct Slot {
    pace: Pace,
    /// When the one under way should have begun.
    from: Option<Instant>,
    /// How many more; `None`: until the time is over.
    left: Option<u64>,
}

impl Asking<'_> {
    /// Connections one after the other have a thread each; everything else fits one loop, as in the tunnel.
    pub(crate) fn threads(&self) -> u32 {
        match self.plan.mode {
            Mode::Crr => self.plan.total_flows(),
            Mode::Stream | Mode::Rr => 1,
        }
    }

    /// Asks, as thread `index`, until the plan is done.
    pub(crate) fn run(&self, index: u32) -> Result<Measured, PerfError> {
        let any: SocketAddr = if self.server.is_ipv4() {
            ([0, 0, 0, 0], 0).into()
        } else {
            (std::net::Ipv6Addr::UNSPECIFIED, 0).into()
        };
        let socket = udp_port::bind(any, false).map_err(PerfError::io("binding a UDP socket"))?;
        let port = port(socket, self.plan)?;
        let driver = Driver::new(self.engine()?, port, self.plan.event_loop, self.stop)?;
        let mut asker = Asker {
            asking: self,
            driver,
            ends: Ends::new(self.plan, self.clock, self.seed, true, self.began),
            connected: 0,
            ended: 0,
        };
        match self.plan.mode {
            Mode::Stream => asker.stream(),
            Mode::Rr => asker.requests(),
            Mode::Crr => asker.connections(index),
        }
    }

    fn engine<'e>(&self) -> Result<Engine<MemorySocket<'e>>, PerfError> {
        let config = EngineConfig {
            role: ClientRole {
                crypto: self.crypto.clone(),
                // What is measured must not change on the way.
                fallback: None,
                server_name: self.server.ip().to_string(),
                connections: match self.plan.mode {
                    Mode::Crr => 1,
                    Mode::Stream | Mode::Rr => self.plan.connections as usize,
                },
                prover: None,
                wait_timeout: PATIENCE,
                compat_streams: usize::MAX,
            },
            transport: transport(self.plan)?,
            worker: 0,
            seed: random()?,
            reset_key: random()?,
        };
        Ok(Engine::client(config)?)
    }
}

impl Asker<'_> {
    /// One turn and what came of it. `false`: everything is to end.
    fn turn(&mut self, until: Option<Instant>) -> Result<bool, PerfError> {
        let goes_on = self.driver.turn(until)?;
        while let Some(event) = self.driver.port.engine.poll_event() {
            match event {
                Event::Resolve => {
                    let resolved = Ok(vec![self.asking.server]);
                    let now = Instant::now();
                    self.driver.port.engine.handle_resolved(now, &resolved);
                    self.driver.hurry();
                }
                Event::Connected { .. } => self.connected += 1,
                Event::ConnectFailed { reason, .. } => return Err(reason.into()),
                Event::Disconnected { reason, flows, .. } if flows > 0 => {
                    return Err(reason.into());
                }
                Event::FlowClosed(summary) => self.note_closed(summary.ending)?,
                _ => {}
            }
        }
        if let Some(fault) = self.ends.fault.take() {
            return Err(fault);
        }
        Ok(goes_on)
    }

    /// A stream that is measured by time ends when its receiver has seen enough; everything else must finish.
    fn note_closed(&mut self, ending: Ending) -> Result<(), PerfError> {
        self.ended += 1;
        let plan = self.asking.plan;
        let cut_short = plan.mode == Mode::Stream && plan.span().is_some();
        if ending == Ending::Finished {
            return Ok(());
        }
        if cut_short && self.ends.meter.borrow().may_be_over(Instant::now()) {
            return Ok(());
        }
        Err(self.ends.fault.take().unwrap_or(PerfError::Cut))
    }

    /// Makes all connections, so that flows spread over them.
    fn connect(&mut self) -> Result<bool, PerfError> {
        while self.connected < self.asking.plan.connections {
            if !self.turn(None)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn open(&mut self, number: u32, length: u64, wanted: u64) -> Result<(), PerfError> {
        let socket = MemorySocket::client(&self.ends, number, length, wanted);
        let now = Instant::now();
        let opened = self
            .driver
            .port
            .engine
            .open_flow(now, socket, String::new(), String::new());
        self.driver.hurry();
        opened.map(drop).ok_or(PerfError::Cut)
    }

    fn stream(&mut self) -> Result<Measured, PerfError> {
        let plan = self.asking.plan;
        if self.connect()? {
            for index in 0..plan.total_flows() {
                let share = plan.share(index).unwrap_or(ENDLESS);
                let (length, wanted) = if plan.reverse { (0, share) } else { (share, 0) };
                self.open(index, length, wanted)?;
            }
        }
        let mut how = Ok(());
        while self.ended < plan.total_flows() {
            let until = self.asking.clock.end().map(|end| end + LINGER);
            if until.is_some_and(|until| Instant::now() >= until) {
                break;
            }
            if !self.turn(until)? {
                how = Err(PerfError::Cut);
                break;
            }
        }
        self.ends.meter.borrow_mut().is_over(Instant::now());
        self.close(Times::default())?.ended(how)
    }

    fn requests(&mut self) -> Result<Measured, PerfError> {
        let plan = self.asking.plan;
        self.asking.clock.begin(self.asking.began);
        if !self.connect()? {
            return self.close(Times::default());
        }
        let start = Instant::now();
        let slots = (0..plan.total_flows()).map(|index| Slot {
            pace: Pace::new(plan, index, start),
            from: None,
            left: plan.share(index),
        });
        let mut slots: Vec<Slot> = slots.collect();
        let mut times = Times::default();
        loop {
            let mut until = self.asking.clock.end();
            for (number, slot) in (0..).zip(&mut slots) {
                if slot.from.is_some() || slot.left == Some(0) {
                    continue;
                }
                let now = Instant::now();
                match slot.pace.due() {
                    Some(due) if due > now => {
                        until = Some(until.map_or(due, |until: Instant| until.min(due)));
                    }
                    due => {
                        slot.pace.advance();
                        slot.from = Some(due.unwrap_or(now));
                        self.open(number, plan.request, plan.response)?;
                    }
                }
            }
            let idle = |slot: &Slot| slot.left == Some(0) && slot.from.is_none();
            if slots.iter().all(idle) || !self.turn(until)? {
                break;
            }
            // A loop that sleeps through its packets ends without the last answer.
            if !self.settle(&mut slots, &mut times)
                || self.ends.meter.borrow_mut().is_over(Instant::now())
            {
                break;
            }
        }
        let unanswered = self.left_over(&slots);
        let mut measured = self.close(times)?;
        measured.unanswered = unanswered;
        Ok(measured)
    }

    /// What was due and is not done though the time is over.
    fn left_over(&self, slots: &[Slot]) -> Option<Unanswered> {
        let meter = self.ends.meter.borrow();
        let left = slots.iter();
        left.filter_map(|slot| meter.left_over(&slot.pace, slot.from.is_some()))
            .reduce(Unanswered::and)
    }

    /// Counts what was answered; `false`: the time is over.
    fn settle(&self, slots: &mut [Slot], times: &mut Times) -> bool {
        let mut meter = self.ends.meter.borrow_mut();
        for (number, at) in self.ends.done.take() {
            let Some(slot) = slots.get_mut(number as usize) else {
                continue;
            };
            if !meter.add(at, 1) {
                return false;
            }
            let from = slot.from.take();
            if meter.counts()
                && let Some(from) = from
            {
                times.record(at.saturating_duration_since(from));
            }
            slot.left = slot.left.map(|left| left - 1);
        }
        true
    }

    fn connections(&mut self, index: u32) -> Result<Measured, PerfError> {
        let plan = self.asking.plan;
        self.asking.clock.begin(self.asking.began);
        let mut slots = [Slot {
            pace: Pace::new(plan, index, Instant::now()),
            from: None,
            left: plan.share(index),
        }];
        let mut times = Times::default();
        while slots[0].left != Some(0) {
            let due = slots[0].pace.wait(self.asking.stop);
            let Some(due) = due.map_err(PerfError::io("waiting"))? else {
                break;
            };
            self.driver.renew(self.asking.engine()?);
            slots[0].from = Some(due);
            self.open(0, plan.request, plan.response)?;
            let mut goes_on = true;
            while goes_on && self.ends.done.borrow().is_empty() {
                goes_on = self.turn(self.asking.clock.end())?
                    && !self.ends.meter.borrow_mut().is_over(Instant::now());
            }
            goes_on &= self.settle(&mut slots, &mut times);
            self.driver.port.engine.close(Instant::now());
            self.driver.flush();
            if !goes_on {
                break;
            }
        }
        let unanswered = self.left_over(&slots);
        let mut measured = self.close(times)?;
        measured.unanswered = unanswered;
        Ok(measured)
    }

    fn close(&mut self, times: Times) -> Result<Measured, PerfError> {
        let known = path(&self.driver.port.engine.connection_reports());
        self.driver.port.engine.close(Instant::now());
        self.driver.flush();
        // The first turn after a failure tells it; this is the last.
        if let Some(fault) = self.ends.fault.take() {
            return Err(fault);
        }
        let mut measured = self.ends.meter.borrow_mut().finish();
        measured.path = known;
        measured.times = times;
        measured.first_us = self.ends.first_us.take();
        Ok(measured)
    }
}
