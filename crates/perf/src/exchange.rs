//! Requests and answers over [`Channel`]s, on one connection or each on its own.

use std::io;
use std::time::Instant;

use crate::channel::Channel;
use crate::error::{PerfError, is_closed};
use crate::latency::LatencyRecorder;
use crate::meter::{Measurement, Meter, micros_since};
use crate::pace::TransactionSchedule;
use crate::pattern::Pattern;
use crate::plan::{Mode, Plan};
use crate::threads::Job;

const CHUNK: usize = 128 * 1024;

/// One direction's payload, compared or written message by message.
struct PayloadStream {
    pattern: Pattern,
    offset: u64,
}

pub(crate) struct Exchange {
    out: PayloadStream,
    back: PayloadStream,
    buffer: Vec<u8>,
}

/// Sends requests as flow `index` until the plan is done. `connect` opens a connection.
pub(crate) fn ask(
    job: Job<'_>,
    index: u32,
    connect: &dyn Fn() -> Result<Channel, PerfError>,
) -> Result<Measurement, PerfError> {
    job.clock.begin(job.began);
    let mut meter = Meter::new(job.clock);
    let mut dialogue = Exchange::new(job.seed);
    let mut times = LatencyRecorder::default();
    let mut left = job.plan.share(index);
    let each = job.plan.mode == Mode::Crr;
    let mut open = if each { None } else { Some(connect()?) };
    let mut pace = TransactionSchedule::new(job.plan, index, Instant::now());
    let (mut first_us, mut path) = (None, None);
    let mut under_way = false;
    while left != Some(0) {
        let due = pace.wait(job.stop).map_err(PerfError::io("cannot wait"))?;
        let Some(from) = due else { break };
        under_way = true;
        if each {
            // Close the previous connection before the next one opens.
            open = None;
            dialogue.restart();
        }
        let channel = match &mut open {
            Some(channel) => channel,
            none => match connect() {
                Err(_) if job.stop.is_raised() => break,
                connected => none.insert(connected?),
            },
        };
        match dialogue.ask(channel, job.plan) {
            Err(_) if job.stop.is_raised() => break,
            asked => asked.map_err(ExchangeError::into_perf_error)?,
        }
        let now = Instant::now();
        first_us.get_or_insert_with(|| micros_since(job.began, now));
        if each {
            channel.finish().map_err(PerfError::flow)?;
        }
        if !meter.add(now, 1) {
            break;
        }
        under_way = false;
        if meter.counts() {
            times.record(now.saturating_duration_since(from));
        }
        left = left.map(|left| left - 1);
    }
    if let Some(channel) = &mut open {
        path = channel.path();
        if !each && !job.stop.is_raised() {
            channel.finish().map_err(PerfError::flow)?;
        }
    }
    let unanswered = meter.left_over(&pace, under_way);
    let mut measured = meter.finish();
    measured.unanswered = unanswered;
    (measured.times, measured.first_us, measured.path) = (times, first_us, path);
    Ok(measured)
}

/// Answers requests on one connection until the client closes it. `left` is the number of requests to come, if it is
/// known.
pub(crate) fn answer(
    channel: &mut Channel,
    plan: &Plan,
    mut left: Option<u64>,
    dialogue: &mut Exchange,
    meter: &mut Meter<'_>,
) -> Result<(), PerfError> {
    dialogue.restart();
    loop {
        match dialogue.answer(channel, plan) {
            Ok(true) => {}
            Ok(false) => return Ok(()),
            // A client whose time is over closes while an answer is in flight.
            Err(ExchangeError::Io(error)) if is_closed(&error) && plan.span().is_some() => {
                return Ok(());
            }
            // A client that is done reports it on the control connection. The end of this connection may be lost and
            // arrive later.
            Err(ExchangeError::Io(error))
                if is_over(&error) && left.is_none_or(|left| left == 0) =>
            {
                return Ok(());
            }
            Err(fault) => return Err(fault.into_perf_error()),
        }
        left = left.map(|left| left.saturating_sub(1));
        meter.add(Instant::now(), 1);
    }
}

/// Returns whether the measurement is over, as opposed to this connection.
fn is_over(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::Interrupted
}

enum ExchangeError {
    Io(io::Error),
    Corrupt(u64),
}

impl ExchangeError {
    fn into_perf_error(self) -> PerfError {
        match self {
            Self::Io(error) => PerfError::flow(error),
            Self::Corrupt(offset) => PerfError::Corrupt(offset),
        }
    }
}

impl Exchange {
    pub(crate) fn new(seed: u64) -> Self {
        let tape = |seed| PayloadStream {
            pattern: Pattern::new(seed),
            offset: 0,
        };
        Self {
            out: tape(seed),
            back: tape(!seed),
            buffer: vec![0; CHUNK],
        }
    }

    fn restart(&mut self) {
        (self.out.offset, self.back.offset) = (0, 0);
    }

    fn ask(&mut self, channel: &mut Channel, plan: &Plan) -> Result<(), ExchangeError> {
        self.out
            .send(channel, plan.request)
            .map_err(ExchangeError::Io)?;
        if self.back.expect(channel, plan.response, &mut self.buffer)? {
            Ok(())
        } else {
            Err(ExchangeError::Io(io::ErrorKind::UnexpectedEof.into()))
        }
    }

    /// Answers one request. Returns `false` if there is no further request.
    fn answer(&mut self, channel: &mut Channel, plan: &Plan) -> Result<bool, ExchangeError> {
        if !self.out.expect(channel, plan.request, &mut self.buffer)? {
            return Ok(false);
        }
        self.back
            .send(channel, plan.response)
            .map_err(ExchangeError::Io)?;
        Ok(true)
    }
}

impl PayloadStream {
    fn send(&mut self, channel: &mut Channel, length: u64) -> io::Result<()> {
        let end = self.offset + length;
        while self.offset < end {
            let most = usize::try_from(end - self.offset).unwrap_or(usize::MAX);
            let taken = channel.write(self.pattern.at(self.offset, most))?;
            self.offset += taken as u64;
        }
        Ok(())
    }

    /// Reads and compares `length` bytes. Returns `false` if the other end closed before the first of them.
    fn expect(
        &mut self,
        channel: &mut Channel,
        length: u64,
        buffer: &mut [u8],
    ) -> Result<bool, ExchangeError> {
        let begin = self.offset;
        let end = begin + length;
        while self.offset < end {
            let most = usize::try_from(end - self.offset).unwrap_or(usize::MAX);
            let most = most.min(buffer.len());
            let read = match channel.read(&mut buffer[..most]) {
                Ok(0) if self.offset == begin => return Ok(false),
                Ok(0) => return Err(ExchangeError::Io(io::ErrorKind::UnexpectedEof.into())),
                Ok(read) => read,
                Err(error) => return Err(ExchangeError::Io(error)),
            };
            if let Some(offset) = self.pattern.differs(self.offset, &buffer[..read]) {
                return Err(ExchangeError::Corrupt(offset));
            }
            self.offset += read as u64;
        }
        Ok(true)
    }
}
