//! Threads that run as soon as there is something for them to do.

use std::io;

use crate::returned::check;

/// How soon the calling thread runs when it is woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promptness {
    /// Before everything that is not real-time itself.
    RealTime,
    /// Before what has run for longer than a tenth of a millisecond.
    ShortSlice,
    /// When the scheduler thinks so: up to some milliseconds later, on a busy machine.
    Usual,
}

/// Makes the calling thread run as promptly as it is allowed to.
///
/// With `CAP_SYS_NICE` that is before everything else, so the thread must sleep when it has nothing to do; the
/// kernel leaves others a twentieth of each second. Without, it is what a shorter time slice does (Linux 6.12).
pub fn be_prompt() -> Promptness {
    if set_attributes(libc::SCHED_FIFO, LOWEST, 0).is_ok() {
        Promptness::RealTime
    } else if set_attributes(libc::SCHED_OTHER, 0, SLICE_NANOS).is_ok() {
        Promptness::ShortSlice
    } else {
        Promptness::Usual
    }
}

/// The lowest real-time priority: whoever has asked for one knows better.
const LOWEST: u32 = 1;

/// The shortest slice that Linux grants.
const SLICE_NANOS: u64 = 100_000;

/// `struct sched_attr` of `linux/sched/types.h`, in its first version.
#[repr(C)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

/// Length of [`Attributes`]: `SCHED_ATTR_SIZE_VER0`.
const ATTRIBUTES: u32 = 48;
const _: () = assert!(size_of::<Attributes>() == 48);

fn set_attributes(policy: libc::c_int, priority: u32, runtime: u64) -> io::Result<()> {
    let attributes = Attributes {
        size: ATTRIBUTES,
        policy: policy.cast_unsigned(),
        // Programs that the thread starts are as they would have been.
        flags: libc::SCHED_FLAG_RESET_ON_FORK.cast_unsigned().into(),
        nice: 0,
        priority,
        runtime,
        deadline: 0,
        period: 0,
    };
    // SAFETY: the kernel reads `size` bytes, which is what `attributes` has and it outlives the call; thread 0 is
    // the caller.
    let done = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
    check(done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_what_the_kernel_says() {
        let (said, policy) = std::thread::spawn(|| {
            let said = be_prompt();
            // SAFETY: asks about the calling thread; no memory is passed.
            let policy = unsafe { libc::sched_getscheduler(0) };
            (said, policy & !libc::SCHED_RESET_ON_FORK)
        })
        .join()
        .expect("no panic");
        let expected = match said {
            Promptness::RealTime => libc::SCHED_FIFO,
            Promptness::ShortSlice | Promptness::Usual => libc::SCHED_OTHER,
        };
        assert_eq!(policy, expected, "{said:?}");
    }
}
