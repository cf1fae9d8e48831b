//! What to do when there is nothing to do.

use std::sync::OnceLock;

use quictun_shmq::{Channel, Item, Sleep, cycles};
use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};

/// How a process waits for its peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WaitPolicy {
    /// Sleeps at once: no processor time, and a wake-up for every batch.
    Interrupt,
    /// Never sleeps: no wake-ups, and a processor.
    Polling,
    /// Looks for as long as a wake-up would take, then sleeps: at most twice the cost of knowing beforehand. Sleeps at
    /// once where the peer runs on the same processor.
    #[default]
    Hybrid,
}

impl WaitPolicy {
    /// In the words of a command line.
    pub fn word(self) -> &'static str {
        match self {
            Self::Interrupt => "interrupt",
            Self::Polling => "polling",
            Self::Hybrid => "hybrid",
        }
    }
}

/// Rounds of the measurement, of which the median counts.
const ROUNDS: usize = 101;

/// Limits of what is believed, in ticks: a measurement that was disturbed must not make a process spin for long.
const COST_MIN: u64 = 2_000;
const COST_MAX: u64 = 100_000;

/// What it takes to wake a thread that sleeps on another processor, in ticks of [`cycles`]; measured once in a process,
/// which takes about a millisecond.
pub fn wake_cost() -> u64 {
    static COST: OnceLock<u64> = OnceLock::new();
    *COST.get_or_init(|| measure().unwrap_or(COST_MIN))
}

fn measure() -> Option<u64> {
    let mut here = Channel::create(0, 0).ok()?;
    let memory = here.memory().try_clone_to_owned().ok()?;
    let mut there = Channel::open(memory).ok()?;
    let own = sched_getcpu();
    let answering = std::thread::Builder::new().spawn(move || {
        leave(own);
        while let Some(item) = next(&mut there) {
            if there.push(&item) != Ok(true) {
                return;
            }
        }
    });
    let thread = answering.ok()?;
    let mut rounds = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        let start = cycles();
        if here.push(&Item::default()) != Ok(true) || next(&mut here).is_none() {
            break;
        }
        rounds.push(cycles() - start);
    }
    drop(here);
    thread.join().ok()?;
    rounds.sort_unstable();
    let median = rounds.get(rounds.len() / 2)?;
    Some((median / 2).clamp(COST_MIN, COST_MAX))
}

/// Sleeps until there is an item; none where the other end is gone.
fn next(channel: &mut Channel) -> Option<Item> {
    loop {
        if let Some(item) = channel.pop().ok()? {
            return Some(item);
        }
        if channel.arm(Sleep::Futex) {
            channel.wait(None);
        } else {
            channel.disarm();
        }
    }
}

/// Runs the calling thread on another processor than `cpu`, where that is allowed.
fn leave(cpu: usize) {
    let Ok(mut cpus) = sched_getaffinity(None) else {
        return;
    };
    if cpus.count() < 2 {
        // The process has been bound to one; its peer may run on any.
        for other in 0..CpuSet::MAX_CPU {
            cpus.set(other);
        }
    }
    cpus.unset(cpu);
    // Refused where no other is allowed: then the wake-up on this one is what there is to measure.
    let _bound = sched_setaffinity(None, &cpus);
}
