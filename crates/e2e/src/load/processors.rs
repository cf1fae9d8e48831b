//! Divides the processors between a server under test and the crowd of clients that loads it.
//!
//! Elsewhere each client of a crowd has a machine of its own. Here all of them would compete with the server for the
//! processors, and the measured delays would be those of the scheduler. [`Division::begin`] before any program starts.
//! Then set the server apart with [`Division::set_apart`], and start what measures its delay with
//! [`Division::start_apart`]. Everything else shares the processors of the crowd: the clients, their applications, and the
//! relay.
//!
//! Kernel threads that the crowd keeps busy run on the server's processors too, for milliseconds at a time. So the programs
//! that are set apart run before them.

use std::io;
use std::path::Path;

use quictun_sys::{SchedulingClass, raise_scheduling_class_of};
use quictun_testbed::program::Program;
use rustix::io::Errno;
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The processors of the calling thread, divided in two halves.
pub(super) struct Division {
    all: CpuSet,
    apart: CpuSet,
    crowd: CpuSet,
}

impl Division {
    /// Confines the calling thread, and what it starts, to the crowd's half of its processors. Does nothing on a single
    /// one.
    ///
    /// # Errors
    ///
    /// Fails if the system does not allow this.
    pub(super) fn begin() -> io::Result<Self> {
        let all = sched_getaffinity(None)?;
        let (apart, crowd) = halves(&all);
        sched_setaffinity(None, &crowd)?;
        Ok(Self { all, apart, crowd })
    }

    /// Runs `start` on the other half of the processors, where the threads and processes that it starts stay.
    ///
    /// # Errors
    ///
    /// Fails if the system does not allow this.
    pub(super) fn start_apart<T>(&self, start: impl FnOnce() -> T) -> io::Result<T> {
        sched_setaffinity(None, &self.apart)?;
        let started = start();
        sched_setaffinity(None, &self.crowd)?;
        Ok(started)
    }

    /// Moves the existing threads of a program to the other half of the processors, where they run before all others as
    /// far as the system allows. Returns the number of threads that others may delay, because they are not real-time.
    ///
    /// # Errors
    ///
    /// Fails if the program has ended, or if the system does not allow this.
    pub(super) fn set_apart(&self, program: &Program) -> io::Result<usize> {
        let mut delayed = 0;
        let threads = Path::new("/proc").join(program.pid().to_string());
        for thread in threads.join("task").read_dir()? {
            let name = thread?.file_name();
            let id: i32 = name.to_string_lossy().parse().map_err(io::Error::other)?;
            let class = raise_scheduling_class_of(id);
            delayed += usize::from(class != SchedulingClass::RealTime);
            match sched_setaffinity(Pid::from_raw(id), &self.apart) {
                // The thread has ended in the meantime.
                Ok(()) | Err(Errno::SRCH) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(delayed)
    }
}

impl Drop for Division {
    fn drop(&mut self) {
        // If this fails, the calling thread stays on the crowd's half, which is slower, but not wrong.
        let _restored = sched_setaffinity(None, &self.all);
    }
}

/// Returns the first half of the processors in `all`, and the others. Both are `all` if there is only one.
fn halves(all: &CpuSet) -> (CpuSet, CpuSet) {
    let numbers: Vec<_> = (0..CpuSet::MAX_CPU).filter(|&at| all.is_set(at)).collect();
    if numbers.len() < 2 {
        return (*all, *all);
    }
    let (first, second) = numbers.split_at(numbers.len() / 2);
    (set_of(first), set_of(second))
}

fn set_of(numbers: &[usize]) -> CpuSet {
    let mut set = CpuSet::new();
    for &number in numbers {
        set.set(number);
    }
    set
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crowd_has_processors_of_its_own_if_there_are_two() {
        for (all, own, crowd) in [
            (&[3][..], &[3][..], &[3][..]),
            (&[0, 1], &[0], &[1]),
            (&[1, 4, 6], &[1], &[4, 6]),
        ] {
            assert_eq!(
                halves(&set_of(all)),
                (set_of(own), set_of(crowd)),
                "{all:?}"
            );
        }
    }
}
