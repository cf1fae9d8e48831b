//! Signals at random moments, which follow from a seed.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use rustix::process::{Pid, Signal, kill_process};

/// Longest time between two signals: they meet every state of a process that answers in milliseconds.
const GAP_MAX_US: u64 = 20_000;

/// Longest time for which a process is stopped.
const STOP_MAX_US: u64 = 30_000;

/// The signals of a storm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum StormKind {
    /// SIGHUP, which asks to open logs and read the configuration again.
    Hup,
    /// SIGUSR1 and SIGUSR2, which have no meaning.
    User,
    /// SIGSTOP, and SIGCONT up to 30 ms later.
    Stop,
    /// Each signal is of one of the other kinds.
    Mixed,
}

/// Random numbers that follow from a seed (`SplitMix64`).
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns a number below `limit`, which is not 0.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (word ^ (word >> 31)) % limit
    }

    fn pause(&mut self, most_us: u64) {
        std::thread::park_timeout(Duration::from_micros(self.below(most_us)));
    }
}

impl StormKind {
    /// Sends `count` signals to a process at random moments. `check` runs between them; its error ends the storm.
    ///
    /// # Errors
    ///
    /// Fails if the process has ended, and returns the error of `check`.
    pub(crate) fn send(
        self,
        victim: Pid,
        count: u32,
        random: &mut Random,
        check: impl Fn() -> Result<()>,
    ) -> Result<()> {
        for number in 0..count {
            random.pause(GAP_MAX_US);
            self.send_one(victim, random)
                .and_then(|()| is_alive(victim))
                .and_then(|()| check())
                .with_context(|| format!("signal {number} of {count}"))?;
        }
        Ok(())
    }

    fn send_one(self, victim: Pid, random: &mut Random) -> Result<()> {
        let [hup, user, stop] = [0, 1, 2];
        let kind = match self {
            Self::Hup => hup,
            Self::User => user,
            Self::Stop => stop,
            Self::Mixed => random.below(3),
        };
        let signals: &[Signal] = match kind {
            0 => &[Signal::HUP],
            1 if random.below(2) == 0 => &[Signal::USR1],
            1 => &[Signal::USR2],
            _ => &[Signal::STOP, Signal::CONT],
        };
        for (index, signal) in signals.iter().enumerate() {
            if index > 0 {
                random.pause(STOP_MAX_US);
            }
            kill_process(victim, *signal).context("the process has ended")?;
        }
        Ok(())
    }
}

/// Fails if the process has ended, also if its parent has not waited for it yet.
pub(crate) fn is_alive(process: Pid) -> Result<()> {
    let status = format!("/proc/{}/status", process.as_raw_nonzero());
    let status = std::fs::read_to_string(status).unwrap_or_default();
    if !status.contains("State:") || status.contains("State:\tZ") {
        bail!("the process has ended");
    }
    Ok(())
}
