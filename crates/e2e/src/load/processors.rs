//! Divides the processors between the programs under test and a crowd of clients.
//!
//! Elsewhere each client of a crowd has a machine of its own. Here all of them would compete with the server for the
//! processors, and the measured delays would be those of the scheduler. [`Division::begin`] before the programs under
//! test start, then start the crowd with [`Division::start_crowd`].

use std::io;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The processors of the calling thread, divided in two halves.
pub(super) struct Division {
    all: CpuSet,
    own: CpuSet,
    crowd: CpuSet,
}

impl Division {
    /// Confines the calling thread, and what it starts, to one half of its processors. Does nothing on a single one.
    ///
    /// # Errors
    ///
    /// Fails if the system does not allow this.
    pub(super) fn begin() -> io::Result<Self> {
        let all = sched_getaffinity(None)?;
        let (own, crowd) = halves(&all);
        sched_setaffinity(None, &own)?;
        Ok(Self { all, own, crowd })
    }

    /// Runs `start` on the other half of the processors, where the processes that it starts stay.
    ///
    /// # Errors
    ///
    /// Fails if the system does not allow this.
    pub(super) fn start_crowd<T>(&self, start: impl FnOnce() -> T) -> io::Result<T> {
        sched_setaffinity(None, &self.crowd)?;
        let started = start();
        sched_setaffinity(None, &self.own)?;
        Ok(started)
    }
}

impl Drop for Division {
    fn drop(&mut self) {
        // If this fails, the calling thread stays on its half, which is slower, but not wrong.
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
