//! What to do when there is nothing to do.

use std::sync::OnceLock;

use quictun_shmq::{Channel, Message, Sleep, cycles};
use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};

/// How a process waits for its peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WaitPolicy {
    /// Sleeps at once: no processor time, and a wake-up for every batch.
    Interrupt,
    /// Never sleeps: no wake-ups, and a processor.
    Polling,
    /// Looks for as long as a wake-up would take, then sleeps: at most twice the cost of knowing beforehand. After short
    /// sleeps it looks for longer, up to 32 times. Sleeps at once where the peer runs on the same processor.
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

/// Doublings of the time that one looks, at most: about 200 microseconds, as long as Linux itself lets a virtual processor look
/// before it halts. To wake one that the host has halted and has no time for takes ten times what was measured.
const DOUBLINGS: u32 = 5;

/// For how long one looks before one sleeps: as long as a wake-up takes, and longer after sleeps that were hardly worth it.
///
/// Two sides that sleep keep each other asleep. Each waits until the other has woken up and done its work, which is longer
/// than a wake-up takes, and so sleeps before that is over: whatever stops one of them once, for a moment, would have them
/// wake each other for every batch from then on. So who slept for a short time looks for twice as long the next time, and
/// who slept for a long time only as long as at first.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Budget {
    doublings: u32,
}

impl Budget {
    /// In ticks, of which a wake-up takes `wake`.
    pub(crate) fn ticks(self, wake: u64) -> u64 {
        wake << self.doublings
    }

    pub(crate) fn note_sleep(&mut self, ticks: u64, wake: u64) {
        self.doublings = if ticks <= wake << DOUBLINGS {
            (self.doublings + 1).min(DOUBLINGS)
        } else {
            0
        };
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
        while let Some(message) = next(&mut there) {
            if there.push(message) != Ok(true) {
                return;
            }
        }
    });
    let thread = answering.ok()?;
    let mut rounds = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        let start = cycles();
        if here.push(Message::default()) != Ok(true) || next(&mut here).is_none() {
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

/// Sleeps until there is a message; none where the other end is gone.
fn next(channel: &mut Channel) -> Option<Message> {
    loop {
        if let Some(message) = channel.pop().ok()? {
            return Some(message);
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

#[cfg(test)]
mod tests {
    use super::*;

    /// What comes after `gap` ticks each time: how often somebody sleeps who waits for it `times` times. A wake-up takes 100
    /// ticks.
    fn sleeps(budget: &mut Budget, gap: u64, times: u32) -> u32 {
        let mut sleeps = 0;
        for _ in 0..times {
            let look = budget.ticks(100);
            if look < gap {
                sleeps += 1;
                budget.note_sleep(gap - look + 100, 100);
            }
        }
        sleeps
    }

    #[test]
    fn short_sleeps_end_and_long_ones_cost_no_more_than_a_look() {
        let mut budget = Budget::default();
        assert_eq!(sleeps(&mut budget, 90, 1000), 0);
        assert_eq!(sleeps(&mut budget, 700, 1000), 3);
        assert_eq!(budget.ticks(100), 800);
        assert_eq!(sleeps(&mut budget, 10_000, 10), 10);
        assert_eq!(budget.ticks(100), 100);
    }
}
