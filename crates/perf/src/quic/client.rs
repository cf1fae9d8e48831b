//! The client's end of a measurement over QUIC.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use quictun_engine::{
    CarrierChoice, Client, ClientEngine, ClientEvent, ClientRole, Ending, Engine, EngineConfig,
    Event, FlowRequest, ServerPlace, ServerToDial,
};
use rustls::ClientConfig;

use super::driver::Driver;
use super::socket::SocketContext;
use super::{MemorySocket, TIMEOUT, path, random, transport};
use crate::error::PerfError;
use crate::latency::LatencyRecorder;
use crate::meter::Measurement;
use crate::pace::{TransactionSchedule, UnansweredTransactions};
use crate::plan::{Mode, Plan};
use crate::ports::{client_socket, port};
use crate::threads::Job;

/// Time for which a stream whose time is over waits for the other end, whose time began later. A loop that sleeps
/// through its packets may never see the other end's close.
const LINGER: Duration = Duration::from_secs(5);

/// Length of a stream without a fixed length: more than any measurement moves, and still a legal length.
const ENDLESS: u64 = 1 << 60;

struct RequestLoop<'a> {
    job: Job<'a>,
    server: SocketAddr,
    crypto: &'a Arc<ClientConfig>,
    driver: Driver<'a, Client>,
    ends: Rc<SocketContext<'a>>,
    connected: u32,
    /// Number of flows that have ended.
    ended: u32,
}

struct Slot {
    pace: TransactionSchedule,
    /// Time at which the transaction in progress should have begun.
    from: Option<Instant>,
    /// Number of transactions left; `None` if time limits the measurement.
    left: Option<u64>,
}

/// Returns the number of threads. In `Crr` mode each flow has a thread; otherwise one loop serves all flows, as in the
/// tunnel.
pub(crate) fn threads(plan: &Plan) -> u32 {
    match plan.mode {
        Mode::Crr => plan.total_flows(),
        Mode::Stream | Mode::Rr => 1,
    }
}

/// Runs the plan's traffic as thread `index` until the plan is done.
pub(crate) fn run(
    job: Job<'_>,
    server: SocketAddr,
    crypto: &Arc<ClientConfig>,
    index: u32,
) -> Result<Measurement, PerfError> {
    let port = port(client_socket(server)?, job.plan)?;
    let mut asker = RequestLoop {
        job,
        server,
        crypto,
        driver: Driver::new(job, engine(job.plan, server, crypto)?, port)?,
        ends: SocketContext::new(job, true),
        connected: 0,
        ended: 0,
    };
    match job.plan.mode {
        Mode::Stream => asker.stream(),
        Mode::Rr => asker.requests(),
        Mode::Crr => asker.connections(index),
    }
}

fn engine<'e>(
    plan: &Plan,
    server: SocketAddr,
    crypto: &Arc<ClientConfig>,
) -> Result<ClientEngine<MemorySocket<'e>>, PerfError> {
    let config = EngineConfig {
        role: ClientRole {
            servers: vec![ServerToDial {
                crypto: crypto.clone(),
                // The measured protocol must not change during the measurement.
                fallback: None,
                name: server.ip().to_string(),
                prover: None,
                carrier: CarrierChoice::Quic,
                place: ServerPlace::default(),
            }],
            connections: match plan.mode {
                Mode::Crr => 1,
                Mode::Stream | Mode::Rr => plan.connections as usize,
            },
            joiner: None,
            reverse: false,
            wait_timeout: TIMEOUT,
            bond_ttl: Duration::ZERO,
            compat_streams: usize::MAX,
            surroundings: quictun_engine::Surroundings::default(),
        },
        transport: transport(plan)?,
        worker: 0,
        seed: random()?,
        reset_key: random()?,
    };
    Ok(Engine::client(config)?)
}

impl RequestLoop<'_> {
    /// Runs one turn of the loop and handles its events. Returns `false` if the measurement is to end.
    fn turn(&mut self, until: Option<Instant>) -> Result<bool, PerfError> {
        let goes_on = self.driver.turn(until)?;
        while let Some(event) = self.driver.port.engine.poll_event() {
            match event {
                ClientEvent::Resolve { server, tenant } => {
                    let resolved = Ok(vec![self.server]);
                    let now = Instant::now();
                    let engine = &mut self.driver.port.engine;
                    engine.handle_resolved(now, server, tenant, &resolved);
                    self.driver.hurry();
                }
                ClientEvent::Shared(Event::Connected { .. }) => self.connected += 1,
                ClientEvent::ConnectFailed { reason, .. } => return Err(reason.into()),
                ClientEvent::Shared(Event::Disconnected { reason, flows, .. }) if flows > 0 => {
                    return Err(reason.into());
                }
                ClientEvent::Shared(Event::FlowClosed(summary)) => {
                    self.note_closed(summary.ending)?;
                }
                _ => {}
            }
        }
        if let Some(fault) = self.ends.fault.take() {
            return Err(fault);
        }
        Ok(goes_on)
    }

    /// Notes the end of a flow. A stream limited by time ends when its receiver has seen enough; every other flow must
    /// finish.
    fn note_closed(&mut self, ending: Ending) -> Result<(), PerfError> {
        self.ended += 1;
        let plan = self.job.plan;
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
        while self.connected < self.job.plan.connections {
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
            .open_flow(now, socket, FlowRequest::default());
        self.driver.hurry();
        opened.map(drop).ok_or(PerfError::Cut)
    }

    fn stream(&mut self) -> Result<Measurement, PerfError> {
        let plan = self.job.plan;
        if self.connect()? {
            for index in 0..plan.total_flows() {
                let share = plan.share(index).unwrap_or(ENDLESS);
                let (length, wanted) = if plan.reverse { (0, share) } else { (share, 0) };
                self.open(index, length, wanted)?;
            }
        }
        let mut how = Ok(());
        while self.ended < plan.total_flows() {
            let until = self.job.clock.end().map(|end| end + LINGER);
            if until.is_some_and(|until| Instant::now() >= until) {
                break;
            }
            if !self.turn(until)? {
                how = Err(PerfError::Cut);
                break;
            }
        }
        self.ends.meter.borrow_mut().is_over(Instant::now());
        self.close(&[], LatencyRecorder::default())?.ended(how)
    }

    fn requests(&mut self) -> Result<Measurement, PerfError> {
        let plan = self.job.plan;
        self.job.clock.begin(self.job.began);
        if !self.connect()? {
            return self.close(&[], LatencyRecorder::default());
        }
        let start = Instant::now();
        let slots = (0..plan.total_flows()).map(|index| Slot {
            pace: TransactionSchedule::new(plan, index, start),
            from: None,
            left: plan.share(index),
        });
        let mut slots: Vec<Slot> = slots.collect();
        let mut times = LatencyRecorder::default();
        loop {
            let mut until = self.job.clock.end();
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
        self.close(&slots, times)
    }

    /// Counts the answered transactions. Returns `false` if the time is over.
    fn settle(&self, slots: &mut [Slot], times: &mut LatencyRecorder) -> bool {
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

    fn connections(&mut self, index: u32) -> Result<Measurement, PerfError> {
        let plan = self.job.plan;
        self.job.clock.begin(self.job.began);
        let mut slots = [Slot {
            pace: TransactionSchedule::new(plan, index, Instant::now()),
            from: None,
            left: plan.share(index),
        }];
        let mut times = LatencyRecorder::default();
        while slots[0].left != Some(0) {
            let due = slots[0].pace.wait(self.job.stop);
            let Some(due) = due.map_err(PerfError::io("cannot wait"))? else {
                break;
            };
            let engine = engine(plan, self.server, self.crypto)?;
            self.driver.renew(engine);
            slots[0].from = Some(due);
            self.open(0, plan.request, plan.response)?;
            let mut goes_on = true;
            while goes_on && self.ends.done.borrow().is_empty() {
                goes_on = self.turn(self.job.clock.end())?
                    && !self.ends.meter.borrow_mut().is_over(Instant::now());
            }
            goes_on &= self.settle(&mut slots, &mut times);
            self.driver.port.engine.close(Instant::now());
            self.driver.flush();
            if !goes_on {
                break;
            }
        }
        self.close(&slots, times)
    }

    fn close(&mut self, slots: &[Slot], times: LatencyRecorder) -> Result<Measurement, PerfError> {
        let meter = self.ends.meter.borrow();
        let undone = slots
            .iter()
            .filter_map(|slot| meter.left_over(&slot.pace, slot.from.is_some()));
        let unanswered = undone.reduce(UnansweredTransactions::and);
        drop(meter);
        let known = path(&self.driver.port.engine.connection_reports());
        self.driver.port.engine.close(Instant::now());
        self.driver.flush();
        // A fault is otherwise reported by the next turn, but no turn follows here.
        if let Some(fault) = self.ends.fault.take() {
            return Err(fault);
        }
        let mut measured = self.ends.meter.borrow_mut().finish();
        measured.path = known;
        (measured.times, measured.unanswered) = (times, unanswered);
        measured.first_us = self.ends.first_us.take();
        Ok(measured)
    }
}
