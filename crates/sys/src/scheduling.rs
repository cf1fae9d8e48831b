//! Threads that run as soon as they have work.

use std::io;

use crate::syscall_result::check;

/// The delay with which the calling thread runs after it is woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SchedulingClass {
    /// Before all threads that are not real-time.
    RealTime,
    /// Before threads that have run for longer than a tenth of a millisecond.
    ShortSlice,
    /// At a time that the scheduler chooses: up to some milliseconds later on a busy machine.
    Usual,
}

/// Makes the calling thread run as promptly as it is allowed to.
///
/// With `CAP_SYS_NICE` the thread becomes real-time, so it must sleep when it has no work; the kernel leaves other
/// threads a twentieth of each second. Without the capability, the thread gets a shorter time slice, which has an
/// effect since Linux 6.12.
pub fn raise_scheduling_class() -> SchedulingClass {
    raise_scheduling_class_of(CALLER)
}

/// Makes the thread with this id run as promptly as it is allowed to, as [`raise_scheduling_class`] does for the caller.
pub fn raise_scheduling_class_of(thread: i32) -> SchedulingClass {
    if set_attributes(thread, libc::SCHED_FIFO, LOWEST, 0).is_ok() {
        SchedulingClass::RealTime
    } else if set_attributes(thread, libc::SCHED_OTHER, 0, SLICE_NANOS).is_ok() {
        SchedulingClass::ShortSlice
    } else {
        SchedulingClass::Usual
    }
}

/// The kernel's name for the calling thread.
const CALLER: i32 = 0;

/// The lowest real-time priority. A thread whose user asked for a real-time priority should run first.
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

fn set_attributes(thread: i32, policy: libc::c_int, priority: u32, runtime: u64) -> io::Result<()> {
    let attributes = Attributes {
        size: ATTRIBUTES,
        policy: policy.cast_unsigned(),
        // Programs that the thread starts get the usual scheduling.
        flags: libc::SCHED_FLAG_RESET_ON_FORK.cast_unsigned().into(),
        nice: 0,
        priority,
        runtime,
        deadline: 0,
        period: 0,
    };
    // SAFETY: the kernel reads `size` bytes, which is the length of `attributes`, and `attributes` outlives the call.
    let done = unsafe { libc::syscall(libc::SYS_sched_setattr, thread, &raw const attributes, 0) };
    check(done)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn the_returned_class_is_the_one_in_the_kernel() {
        let (said, policy) = std::thread::spawn(|| (raise_scheduling_class(), policy_of(CALLER)))
            .join()
            .expect("no panic");
        assert_eq!(policy, expected(said), "{said:?}");
    }

    #[test]
    fn the_class_of_another_thread_can_be_raised() {
        let ((tell, told), (end, ended)) = (channel(), channel::<()>());
        let thread = std::thread::spawn(move || {
            // SAFETY: the call has no arguments and passes no memory.
            tell.send(unsafe { libc::gettid() }).expect("it is awaited");
            // This returns when the other end is dropped.
            ended.recv().expect_err("nothing is sent");
        });
        let id = told.recv().expect("a thread id");
        let own = policy_of(CALLER);
        let said = raise_scheduling_class_of(id);
        assert_eq!(policy_of(id), expected(said), "{said:?}");
        assert_eq!(policy_of(CALLER), own);
        drop(end);
        thread.join().expect("no panic");
    }

    fn policy_of(thread: i32) -> libc::c_int {
        // SAFETY: the call takes a number and passes no memory.
        let policy = unsafe { libc::sched_getscheduler(thread) };
        policy & !libc::SCHED_RESET_ON_FORK
    }

    fn expected(class: SchedulingClass) -> libc::c_int {
        match class {
            SchedulingClass::RealTime => libc::SCHED_FIFO,
            SchedulingClass::ShortSlice | SchedulingClass::Usual => libc::SCHED_OTHER,
        }
    }
}
