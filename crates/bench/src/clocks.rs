//! Nanoseconds of clocks that `std` does not have.

use rustix::time::{ClockId, clock_gettime};

pub(crate) fn cpu_ns() -> u64 {
    nanos(ClockId::ProcessCPUTime)
}

pub(crate) fn thread_cpu_ns() -> u64 {
    nanos(ClockId::ThreadCPUTime)
}

/// Nanoseconds of the clock that all processes share: that of [`std::time::Instant`].
pub(crate) fn clock_ns() -> u64 {
    nanos(ClockId::Monotonic)
}

fn nanos(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    let (seconds, nanos) = (u64::try_from(time.tv_sec), u64::try_from(time.tv_nsec));
    seconds.unwrap_or_default() * 1_000_000_000 + nanos.unwrap_or_default()
}
