//! Processor time and wake-ups of a process.
//!
//! Call [`Work::of`] for the process before and after the measured part, and subtract.

use std::ops::{Add, Sub};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

/// The work that the current threads of a process have done since they started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Processor time that the threads have used.
    pub time: Duration,
    /// The number of times that a thread slept and was woken.
    pub wakes: u64,
}

impl Work {
    /// Reads the work of a process from `schedstat` and `status` of its threads; see Linux's
    /// `Documentation/filesystems/proc.rst`.
    ///
    /// # Errors
    ///
    /// Fails if there is no process of this id.
    pub fn of(pid: u32) -> Result<Self> {
        let threads = Path::new("/proc").join(pid.to_string()).join("task");
        let (mut sum, mut read_any) = (Self::default(), false);
        for thread in threads.read_dir()? {
            let thread = thread?.path();
            let read = |name| std::fs::read_to_string(thread.join(name));
            // The thread may end in the meantime.
            let (Ok(times), Ok(status)) = (read("schedstat"), read("status")) else {
                continue;
            };
            let ns = times.split_whitespace().next().context("no schedstat")?;
            let wakes = status
                .lines()
                .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))
                .context("no context switches")?;
            read_any = true;
            sum = sum
                + Self {
                    time: Duration::from_nanos(ns.parse()?),
                    wakes: wakes.trim().parse()?,
                };
        }
        ensure!(read_any, "process {pid} has no threads: has it ended?");
        Ok(sum)
    }
}

impl Sub for Work {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self {
            time: self.time.saturating_sub(earlier.time),
            wakes: self.wakes.saturating_sub(earlier.wakes),
        }
    }
}

impl Add for Work {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            time: self.time + other.time,
            wakes: self.wakes + other.wakes,
        }
    }
}
