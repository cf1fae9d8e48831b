//! Ways in which a process waits when it has nothing to do.

use std::sync::OnceLock;

use quictun_shmq::{Channel, Message, cycles};
use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};

/// The way in which a process waits for its peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WaitPolicy {
    /// Sleeps at once. Uses no processor time, but needs a wake-up for every batch.
    Interrupt,
    /// Never sleeps. Needs no wake-ups, but occupies a processor.
    Polling,
    /// Polls for as long as a wake-up takes, then sleeps. This costs at most twice as much as the better of the two
    /// other policies. After short sleeps it polls for longer, up to 32 times as long. If the peer runs on the same
    /// processor, it sleeps at once.
    #[default]
    Hybrid,
}

impl WaitPolicy {
    /// Returns the policy's name on the command line.
    pub fn word(self) -> &'static str {
        match self {
            Self::Interrupt => "interrupt",
            Self::Polling => "polling",
            Self::Hybrid => "hybrid",
        }
    }
}

/// Largest number of doublings of the polling time. The result is about 200 microseconds, for which Linux itself lets a
/// virtual processor poll before it halts. Waking a processor that its host has halted takes ten times as long as the
/// measured wake-up.
const DOUBLINGS: u32 = 5;

/// The time to poll before sleeping: as long as a wake-up takes, and longer after sleeps that were hardly worthwhile.
///
/// Two sides that sleep keep each other asleep. Each side waits until the other has woken up and done its work. That
/// takes longer than a wake-up, so a side with a fixed polling time goes to sleep too early. Any brief stall of
/// one side would then make both sides wake each other for every batch from then on. Therefore, a short sleep doubles
/// the next polling time, and a long sleep resets it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SpinBudget {
    doublings: u32,
}

impl SpinBudget {
    /// Returns the polling time in ticks, if a wake-up takes `wake` ticks.
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

/// Number of rounds of the measurement; their median is used.
const ROUNDS: usize = 101;

/// Bounds of the measured cost, in ticks. A disturbed measurement must not make a process spin for long.
const COST_MIN: u64 = 2_000;
const COST_MAX: u64 = 100_000;

/// Returns the cost of waking a thread that sleeps on another processor, in ticks of [`cycles`]. Measured once per
/// process, which takes about a millisecond.
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
        while let Some(message) = there.pop_or_sleep() {
            if there.push(message) != Ok(true) {
                return;
            }
        }
    });
    let thread = answering.ok()?;
    let mut rounds = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        let start = cycles();
        if here.push(Message::default()) != Ok(true) || here.pop_or_sleep().is_none() {
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

/// Moves the calling thread to a processor other than `cpu`, if that is allowed.
fn leave(cpu: usize) {
    let Ok(mut cpus) = sched_getaffinity(None) else {
        return;
    };
    if cpus.count() < 2 {
        // The process is bound to one processor, but its peer may run on any.
        for other in 0..CpuSet::MAX_CPU {
            cpus.set(other);
        }
    }
    cpus.unset(cpu);
    // The call fails if no other processor is allowed. The measurement then gives the cost of a wake-up on this one.
    let _bound = sched_setaffinity(None, &cpus);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns how often a waiting thread sleeps during `times` waits of `gap` ticks each, if a wake-up takes 100
    /// ticks.
    fn sleeps(budget: &mut SpinBudget, gap: u64, times: u32) -> u32 {
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
        let mut budget = SpinBudget::default();
        assert_eq!(sleeps(&mut budget, 90, 1000), 0);
        assert_eq!(sleeps(&mut budget, 700, 1000), 3);
        assert_eq!(budget.ticks(100), 800);
        assert_eq!(sleeps(&mut budget, 10_000, 10), 10);
        assert_eq!(budget.ticks(100), 100);
    }
}
