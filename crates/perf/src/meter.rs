//! Counts the traffic: its start, its end, its amount, and its cost in processor time.
//!
//! All flows of one end share a [`Clock`], which starts with the first byte of any of them. Each thread counts with its
//! own [`Meter`], which returns a [`Measurement`] at the end.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::error::PerfError;
use crate::latency::LatencyRecorder;
use crate::pace::{TransactionSchedule, UnansweredTransactions};
use crate::path::Path;
use crate::plan::{DURATION_MAX, Plan};

/// Length of one interval of a series.
pub(crate) const INTERVAL: Duration = Duration::from_millis(100);

/// Tolerated difference between the clocks of two machines in the length of a second, with a margin: one part in this
/// many.
const CLOCKS_AGREE: u32 = 1000;

/// Maximum number of intervals in a series: the longest warm-up and the longest measurement.
const INTERVALS_MAX: usize = (2 * DURATION_MAX.as_millis() / INTERVAL.as_millis()) as usize;

/// The start of counting, and the amount moved since. All threads of one end share it.
#[derive(Debug)]
pub(crate) struct Clock {
    start: OnceLock<Instant>,
    lead: Duration,
    span: Option<Duration>,
    moved: AtomicU64,
}

#[derive(Debug)]
pub(crate) struct Meter<'a> {
    clock: &'a Clock,
    bytes: u64,
    last: Option<Instant>,
    over: bool,
    intervals: Vec<u64>,
    /// Processor time of this thread when counting began, and when it ended.
    cpu: (Duration, Option<Duration>),
    leading: bool,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Measurement {
    pub(crate) bytes: u64,
    pub(crate) seconds: f64,
    /// Bytes in each [`INTERVAL`] from the first byte on.
    pub(crate) intervals: Vec<u64>,
    pub(crate) cpu_ns: Vec<u64>,
    pub(crate) path: Option<Path>,
    /// Set if a flow ended before it was done.
    pub(crate) cut: bool,
    /// Datagrams sent or received, if the number of missing ones is known only from these counts.
    pub(crate) datagrams: u64,
    #[serde(skip)]
    pub(crate) times: LatencyRecorder,
    /// Transactions of an open loop that were not done when its time was over.
    pub(crate) unanswered: Option<UnansweredTransactions>,
    /// Time from the start to the first answer or byte for which the mode waits, in microseconds.
    pub(crate) first_us: Option<u64>,
}

impl Clock {
    pub(crate) fn new(plan: &Plan) -> Self {
        Self {
            start: OnceLock::new(),
            lead: plan.lead(),
            span: plan.span(),
            moved: AtomicU64::new(0),
        }
    }

    /// Starts counting at `now`, unless it has started. Returns the start.
    pub(crate) fn begin(&self, now: Instant) -> Instant {
        *self.start.get_or_init(|| now)
    }

    /// Returns the end of counting, or `None` if counting has not started or no time limits it.
    pub(crate) fn end(&self) -> Option<Instant> {
        Some(*self.start.get()? + self.lead + self.span?)
    }

    /// Returns the amount counted by all threads, including the warm-up.
    pub(crate) fn moved(&self) -> u64 {
        self.moved.load(Relaxed)
    }
}

impl<'a> Meter<'a> {
    /// Creates a meter. Must be called on the thread that counts, whose processor time it reads.
    pub(crate) fn new(clock: &'a Clock) -> Self {
        Self {
            clock,
            bytes: 0,
            last: None,
            over: false,
            intervals: Vec::new(),
            cpu: (thread_cpu(), None),
            leading: !clock.lead.is_zero(),
        }
    }

    /// Counts `bytes`. Returns `false` if the time is over, so that they do not count.
    pub(crate) fn add(&mut self, now: Instant, bytes: u64) -> bool {
        if self.over {
            return false;
        }
        let start = self.clock.begin(now);
        self.clock.moved.fetch_add(bytes, Relaxed);
        let elapsed = now.saturating_duration_since(start);
        let end = self.clock.span.map(|span| self.clock.lead + span);
        if let Some(end) = end.filter(|end| elapsed >= *end) {
            self.over = true;
            self.cpu.1 = Some(thread_cpu());
            // The series covers the whole time, even if no data arrived in its last part.
            let whole = end.as_nanos().div_ceil(INTERVAL.as_nanos());
            let whole = usize::try_from(whole).unwrap_or(INTERVALS_MAX);
            self.intervals.resize(whole.min(INTERVALS_MAX), 0);
            return false;
        }
        let interval = elapsed.as_millis() / INTERVAL.as_millis();
        let interval = usize::try_from(interval).unwrap_or(usize::MAX);
        if interval < INTERVALS_MAX {
            if self.intervals.len() <= interval {
                self.intervals.resize(interval + 1, 0);
            }
            self.intervals[interval] += bytes;
        }
        if elapsed < self.clock.lead {
            return true;
        }
        if std::mem::take(&mut self.leading) {
            self.cpu.0 = thread_cpu();
        }
        if bytes > 0 {
            self.bytes += bytes;
            self.last = Some(now);
        }
        true
    }

    /// Returns whether an amount added now would count: the warm-up is over, and the end is not reached.
    pub(crate) fn counts(&self) -> bool {
        !self.leading && !self.over
    }

    pub(crate) fn is_over(&mut self, now: Instant) -> bool {
        self.clock.end().is_some_and(|end| now >= end) && !self.add(now, 0)
    }

    /// Returns whether the time is over, or is so close to its end that it may be over by another machine's clock.
    pub(crate) fn may_be_over(&self, now: Instant) -> bool {
        let length = self.clock.lead + self.clock.span.unwrap_or_default();
        let end = self.clock.end();
        end.is_some_and(|end| now + length / CLOCKS_AGREE >= end)
    }

    /// Returns the transactions of an open loop that became due while this meter counted and were not done when the
    /// time was over.
    pub(crate) fn left_over(
        &self,
        pace: &TransactionSchedule,
        under_way: bool,
    ) -> Option<UnansweredTransactions> {
        let (start, end) = (*self.clock.start.get()?, self.clock.end()?);
        self.over
            .then(|| pace.left_over(under_way, start + self.clock.lead, end))?
    }

    pub(crate) fn finish(&mut self) -> Measurement {
        let cpu = self.cpu.1.unwrap_or_else(thread_cpu);
        let cpu = cpu.saturating_sub(self.cpu.0).as_nanos();
        let counted = match (self.clock.span, self.clock.start.get(), self.last) {
            (Some(span), _, _) if self.over => span,
            (_, Some(&start), Some(last)) => last
                .saturating_duration_since(start)
                .saturating_sub(self.clock.lead),
            _ => Duration::ZERO,
        };
        Measurement {
            bytes: self.bytes,
            seconds: counted.as_secs_f64(),
            intervals: std::mem::take(&mut self.intervals),
            cpu_ns: vec![u64::try_from(cpu).unwrap_or(u64::MAX)],
            ..Measurement::default()
        }
    }
}

impl Measurement {
    /// Records how the flow ended. A flow that was cut keeps its counts.
    pub(crate) fn ended(mut self, how: Result<(), PerfError>) -> Result<Self, PerfError> {
        match how {
            Err(PerfError::Cut) => self.cut = true,
            how => how?,
        }
        Ok(self)
    }

    pub(crate) fn merge(&mut self, other: Self) {
        self.bytes += other.bytes;
        self.seconds = self.seconds.max(other.seconds);
        if self.intervals.len() < other.intervals.len() {
            self.intervals.resize(other.intervals.len(), 0);
        }
        for (sum, more) in self.intervals.iter_mut().zip(other.intervals) {
            *sum += more;
        }
        self.cpu_ns.extend(other.cpu_ns);
        self.cut |= other.cut;
        self.datagrams += other.datagrams;
        self.times.merge(&other.times);
        let unanswered = [self.unanswered, other.unanswered];
        self.unanswered = unanswered
            .into_iter()
            .flatten()
            .reduce(UnansweredTransactions::and);
        let first_us = [self.first_us, other.first_us];
        self.first_us = first_us.into_iter().flatten().min();
        let paths = [self.path.take(), other.path];
        self.path = paths.into_iter().flatten().reduce(Path::and);
    }
}

/// Returns the processor time of the calling thread: the value in `/proc/*/task/*/schedstat`, updated by the call.
fn thread_cpu() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

pub(crate) fn micros_since(began: Instant, now: Instant) -> u64 {
    let elapsed = now.saturating_duration_since(began).as_micros();
    u64::try_from(elapsed).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Amount, Mode, Transport};

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn only_bytes_between_warm_up_and_end_count() {
        let plan = Plan {
            amount: Amount::Time(500 * MS),
            warm_up: 200 * MS,
            ..Plan::new(Transport::Tcp, Mode::Stream)
        };
        let clock = Clock::new(&plan);
        let mut meter = Meter::new(&clock);
        let start = Instant::now();
        assert!(meter.add(start, 1));
        assert!(meter.add(start + 199 * MS, 10));
        assert!(meter.add(start + 200 * MS, 100));
        assert!(meter.add(start + 699 * MS, 1000));
        assert!(!meter.add(start + 700 * MS, 10_000));
        assert!(!meter.add(start + 699 * MS, 100_000), "the end is final");
        assert_eq!(clock.moved(), 11_111);
        let measured = meter.finish();
        assert_eq!((measured.bytes, measured.seconds), (1100, 0.5));
        assert_eq!(measured.intervals, [1, 10, 100, 0, 0, 0, 1000]);
    }

    #[test]
    fn a_series_covers_the_whole_time_even_if_the_peer_clock_is_ahead() {
        let plan = Plan {
            amount: Amount::Time(650 * MS),
            warm_up: 200 * MS,
            ..Plan::new(Transport::Tcp, Mode::Stream)
        };
        let clock = Clock::new(&plan);
        let mut meter = Meter::new(&clock);
        let start = Instant::now();
        assert!(!meter.may_be_over(start), "has not begun");
        assert!(meter.add(start, 1));
        assert!(!meter.may_be_over(start + 849 * MS));
        assert!(meter.may_be_over(start + 849 * MS + MS / 2));
        assert!(!meter.is_over(start + 500 * MS));
        assert!(meter.is_over(start + 850 * MS));
        let measured = meter.finish();
        assert_eq!((measured.bytes, measured.seconds), (0, 0.65));
        assert_eq!(measured.intervals, [1, 0, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn without_an_end_all_bytes_count() {
        let plan = Plan {
            amount: Amount::Bytes(30),
            warm_up: 200 * MS,
            ..Plan::new(Transport::Tcp, Mode::Stream)
        };
        let clock = Clock::new(&plan);
        let start = Instant::now();
        let [mut one, mut other] = [Meter::new(&clock), Meter::new(&clock)];
        assert!(one.add(start, 10));
        assert!(other.add(start + 50 * MS, 10));
        assert!(one.add(start + 250 * MS, 10));
        let mut all = one.finish();
        all.merge(other.finish());
        assert_eq!((all.bytes, all.seconds), (30, 0.25));
        assert_eq!(all.cpu_ns.len(), 2);
    }
}
