//! The machine that runs the measurement, and the checks that it is idle.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use quictun_ipc::cycles;
use quictun_lab::BUILD_PROFILE;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

/// Maximum load average; a busier machine gives no results.
const LOAD_MAX: f64 = 0.5;

/// Maximum steal time, in per cent: time that the host gives to others.
const STEAL_MAX: f64 = 1.0;

/// Minimum round trip of a cache line between two cores, in cycles. A faster one is between two threads of one core,
/// which a virtual machine's processors may be for a while.
const LINE_MIN: f64 = 200.0;

#[derive(Clone, Debug)]
pub(crate) struct Machine {
    pub(crate) cpu: String,
    pub(crate) kernel: String,
    pub(crate) cores: [usize; 2],
    pub(crate) cycles_per_ns: f64,
    pub(crate) load: f64,
    /// Steal time since [`Machine::examine`], per cent.
    pub(crate) steal: f64,
    /// The shortest round trip of a cache line between the cores, in cycles.
    pub(crate) line: f64,
    steal_before: (u64, u64),
}

impl Machine {
    pub(crate) fn examine() -> Result<Self> {
        let allowed = sched_getaffinity(None).context("reading the usable cores")?;
        let mut cores = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu));
        let (Some(first), Some(second)) = (cores.next(), cores.next()) else {
            bail!("two cores are needed, but this process may use only one: see `taskset -p $$`");
        };
        let load = text("/proc/loadavg")?;
        let load = load
            .split(' ')
            .next()
            .and_then(|load| load.parse().ok())
            .unwrap_or_default();
        let cpuinfo = text("/proc/cpuinfo")?;
        let name = cpuinfo
            .lines()
            .find_map(|line| line.strip_prefix("model name"));
        let line = line_round_trip(first, second)?;
        bind(first)?;
        Ok(Self {
            cpu: name
                .map_or("unknown", |name| name.trim_start_matches([' ', '\t', ':']))
                .to_owned(),
            kernel: text("/proc/sys/kernel/osrelease")?.trim().to_owned(),
            cores: [first, second],
            cycles_per_ns: cycles_per_ns(),
            load,
            steal: 0.0,
            line,
            steal_before: steal()?,
        })
    }

    pub(crate) fn name(&self) -> String {
        format!("{}, Linux {}", self.cpu, self.kernel)
    }

    /// Returns the machine's name and the build, the first line of readable results.
    pub(crate) fn heading(&self) -> String {
        format!("{}, build {BUILD_PROFILE}", self.name())
    }

    /// Returns the reason for which results of this machine should not be published, if there is one.
    pub(crate) fn noise(&self) -> Option<String> {
        if self.load > LOAD_MAX {
            return Some(format!(
                "the load average is {}, above {LOAD_MAX}",
                self.load
            ));
        }
        if self.line < LINE_MIN {
            return Some(format!(
                "a cache line goes to the other processor and back in {:.0} cycles: both are threads of one core now",
                self.line
            ));
        }
        (self.steal > STEAL_MAX).then(|| {
            format!(
                "the host took {:.1} % of the time, above {STEAL_MAX} %",
                self.steal
            )
        })
    }

    pub(crate) fn note_steal(&mut self) -> Result<()> {
        let (steal, all) = steal()?;
        let (steal_before, all_before) = self.steal_before;
        self.steal = 100.0 * ratio(steal - steal_before, (all - all_before).max(1));
        Ok(())
    }

    pub(crate) fn note_line(&mut self) -> Result<()> {
        let [first, second] = self.cores;
        self.line = self.line.min(line_round_trip(first, second)?);
        Ok(())
    }
}

pub(crate) fn pause(time: Duration) -> Result<()> {
    quictun_sys::pause_until(Instant::now() + time).context("cannot sleep")
}

/// Binds the calling thread, and the threads that it will start, to one core.
pub(crate) fn bind(cpu: usize) -> Result<()> {
    bind_to(&[cpu])
}

pub(crate) fn bind_to(wanted: &[usize]) -> Result<()> {
    let mut cpus = CpuSet::new();
    for cpu in wanted {
        cpus.set(*cpu);
    }
    sched_setaffinity(None, &cpus).with_context(|| format!("binding to cores {wanted:?}"))
}

#[expect(clippy::cast_precision_loss, reason = "counts of a measurement")]
pub(crate) fn float(count: u64) -> f64 {
    count as f64
}

pub(crate) fn micros(nanos: u64) -> f64 {
    float(nanos) / 1000.0
}

pub(crate) fn ratio(part: u64, whole: u64) -> f64 {
    float(part) / float(whole)
}

fn text(path: &str) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("reading {path}"))
}

fn steal() -> Result<(u64, u64)> {
    let stat = text("/proc/stat")?;
    let first = stat.lines().next().unwrap_or_default();
    let ticks: Vec<u64> = first
        .split_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect();
    Ok((
        ticks.get(7).copied().unwrap_or_default(),
        ticks.iter().take(8).sum(),
    ))
}

/// Returns the processor time of this process so far, in nanoseconds.
pub(crate) fn cpu_ns() -> u64 {
    nanos(ClockId::ProcessCPUTime)
}

pub(crate) fn thread_cpu_ns() -> u64 {
    nanos(ClockId::ThreadCPUTime)
}

/// Returns the nanoseconds of the clock that all processes share, that of [`std::time::Instant`].
pub(crate) fn clock_ns() -> u64 {
    nanos(ClockId::Monotonic)
}

fn nanos(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    let (seconds, nanos) = (u64::try_from(time.tv_sec), u64::try_from(time.tv_nsec));
    seconds.unwrap_or_default() * 1_000_000_000 + nanos.unwrap_or_default()
}

fn cycles_per_ns() -> f64 {
    let (start, from) = (Instant::now(), cycles());
    while start.elapsed().as_millis() < 20 {}
    let ticks = cycles() - from;
    ratio(
        ticks,
        u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX),
    )
}

/// Number of rounds in a window, and number of windows, of which the shortest counts.
const ROUNDS: u64 = 1000;
const WINDOWS: u64 = 50;

#[derive(Default)]
#[repr(align(128))]
struct CacheLine(AtomicU64);

/// Returns the shortest time in which a cache line goes to the other core and back, in cycles.
fn line_round_trip(first: usize, second: usize) -> Result<f64> {
    let lines = Arc::new([CacheLine::default(), CacheLine::default()]);
    let there = lines.clone();
    let last = ROUNDS * WINDOWS;
    let other = std::thread::spawn(move || -> Result<()> {
        bind(second)?;
        for round in 1..=last {
            while there[0].0.load(Ordering::Acquire) != round {}
            there[1].0.store(round, Ordering::Release);
        }
        Ok(())
    });
    bind(first)?;
    let mut best = u64::MAX;
    for window in 0..WINDOWS {
        let start = cycles();
        for round in window * ROUNDS + 1..=(window + 1) * ROUNDS {
            lines[0].0.store(round, Ordering::Release);
            while lines[1].0.load(Ordering::Acquire) != round {
                if other.is_finished() && lines[1].0.load(Ordering::Acquire) != round {
                    bail!("core {second} cannot be used");
                }
            }
        }
        best = best.min(cycles() - start);
    }
    other
        .join()
        .map_err(|_| anyhow::anyhow!("the thread on core {second} panicked"))??;
    Ok(ratio(best, ROUNDS))
}
