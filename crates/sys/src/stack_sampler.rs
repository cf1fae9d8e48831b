//! Samples where processor time is spent: the kernel interrupts threads at intervals and records their stacks.
//!
//! ```text
//!   open ─► watch (each thread; what it starts later is watched too) ─► read, again and again ─► lost
//! ```
//!
//! Each processor has one ring buffer, which the kernel fills and [`StackSampler::read`] empties. The clock is the
//! system's own (`cpu-clock`), so it works in virtual machines too. Code that runs with interrupts disabled is
//! attributed to the place where they are enabled again.

use std::io;
use std::os::fd::AsRawFd;

use perf_event::data::Record;
use perf_event::events::Software;
use perf_event::{Builder, Counter, SampleFlag, Sampler};

use crate::syscall_result::check;

/// Samples per second of processor time. A prime number, so that the sampling does not run in step with periodic work.
pub const SAMPLES_PER_S: u64 = 997;

/// Size of a ring in bytes, a power of two: it holds one second of deep stacks.
const RING: usize = 64 * 4096;

/// Maximum number of frames of a stack. Deeper stacks are cut off at the root.
const DEPTH: u16 = 64;

/// Samples the stacks of watched threads, and of the threads and processes that they start.
pub struct StackSampler {
    /// The number of each processor, and its ring.
    rings: Vec<(usize, Sampler)>,
    /// The counters, which count while they are open and write to the rings.
    events: Vec<Counter>,
    with_kernel: bool,
    lost: u64,
}

/// The stack of a thread at one sample.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StackSample {
    /// Process id, in the namespace of the process that opened the sampler.
    pub process: u32,
    /// Return addresses in the kernel, innermost first. Empty if sampling the kernel is not permitted.
    pub kernel: Vec<u64>,
    /// Return addresses in the program, innermost first. Without frame pointers only the first one is reliable.
    pub user: Vec<u64>,
}

/// The ioctl request `PERF_EVENT_IOC_SET_OUTPUT`.
const SET_OUTPUT: libc::Ioctl = 0x2405;

/// Marks in a chain of addresses: the following ones belong to the kernel, or to the program.
const IN_KERNEL: u64 = (-128_i64).cast_unsigned();
const IN_PROGRAM: u64 = (-512_i64).cast_unsigned();
const FIRST_MARK: u64 = (-4095_i64).cast_unsigned();

impl std::fmt::Debug for StackSampler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StackSampler")
            .field("events", &self.events.len())
            .field("lost", &self.lost)
            .finish_non_exhaustive()
    }
}

impl StackSampler {
    /// Makes a sampler that watches no thread yet.
    pub fn open() -> Self {
        Self {
            rings: Vec::new(),
            events: Vec::new(),
            with_kernel: true,
            lost: 0,
        }
    }

    /// Watches a thread, and everything that it starts from now on. Fails with `PermissionDenied` if the system does
    /// not permit it (`kernel.perf_event_paranoid`), and with `NotFound` if the thread has ended.
    pub fn watch(&mut self, thread: u32) -> io::Result<()> {
        let thread = i32::try_from(thread).map_err(|_| io::ErrorKind::InvalidInput)?;
        for processor in 0..processors() {
            let event = match self.event(thread, processor) {
                Err(error)
                    if error.kind() == io::ErrorKind::PermissionDenied && self.with_kernel =>
                {
                    // The program may be sampled even if the kernel may not.
                    self.with_kernel = false;
                    self.event(thread, processor)
                }
                event => event,
            };
            let event = match event {
                // The processor is offline.
                Err(error) if error.raw_os_error() == Some(libc::ENODEV) => continue,
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {
                    return Err(io::ErrorKind::NotFound.into());
                }
                event => event?,
            };
            let ring = self.rings.iter().find(|(number, _)| *number == processor);
            match ring {
                Some((_, ring)) => {
                    redirect(&event, ring)?;
                    self.events.push(event);
                }
                None => self.rings.push((processor, event.sampled(RING)?)),
            }
        }
        Ok(())
    }

    /// Returns whether stacks include kernel addresses.
    pub fn sees_kernel(&self) -> bool {
        self.with_kernel
    }

    /// Returns the number of samples that were lost because they were not read in time.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Passes all samples recorded since the previous call to `each`.
    pub fn read(&mut self, mut each: impl FnMut(StackSample)) {
        for (_, ring) in &mut self.rings {
            while let Some(record) = ring.next_record() {
                match record.parse_record() {
                    Ok(Record::Sample(sample)) => each(stack(
                        sample.pid().unwrap_or_default(),
                        sample.callchain().unwrap_or_default(),
                    )),
                    Ok(Record::Lost(lost)) => self.lost += lost.lost,
                    _ => {}
                }
            }
        }
    }

    fn event(&self, thread: i32, processor: usize) -> io::Result<Counter> {
        Builder::new(Software::CPU_CLOCK)
            .observe_pid(thread)
            .one_cpu(processor)
            .inherit(true)
            .sample(SampleFlag::TID | SampleFlag::CALLCHAIN)
            .sample_frequency(SAMPLES_PER_S)
            .sample_max_stack(DEPTH)
            .exclude_kernel(!self.with_kernel)
            .exclude_hv(true)
            .enabled(true)
            .build()
    }
}

fn redirect(event: &Counter, to: &Sampler) -> io::Result<()> {
    // SAFETY: the call takes two open descriptors and no memory.
    let done = unsafe { libc::ioctl(event.as_raw_fd(), SET_OUTPUT, to.as_raw_fd()) };
    check(done)
}

fn processors() -> usize {
    // SAFETY: the call reads a number.
    let count = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) };
    usize::try_from(count).unwrap_or(1).max(1)
}

/// Splits the address chain of a sample at its marks.
fn stack(process: u32, chain: &[u64]) -> StackSample {
    let mut stack = StackSample {
        process,
        ..StackSample::default()
    };
    let mut in_kernel = false;
    for address in chain {
        match *address {
            IN_KERNEL => in_kernel = true,
            IN_PROGRAM => in_kernel = false,
            FIRST_MARK.. => {}
            address if in_kernel => stack.kernel.push(address),
            address => stack.user.push(address),
        }
    }
    stack
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_separate_kernel_from_program_addresses() {
        let chain = [IN_KERNEL, 0xffff_ffff_8100_0000, IN_PROGRAM, 0x1000, 0x2000];
        let expected = StackSample {
            process: 7,
            kernel: vec![0xffff_ffff_8100_0000],
            user: vec![0x1000, 0x2000],
        };
        assert_eq!(stack(7, &chain), expected);
        assert_eq!(stack(0, &[]), StackSample::default());
    }

    #[test]
    fn a_busy_thread_is_sampled() {
        let mut sampler = StackSampler::open();
        let thread = rustix::thread::gettid().as_raw_nonzero().get();
        if let Err(error) = sampler.watch(thread.cast_unsigned()) {
            // A container may forbid sampling, and a kernel may lack it.
            let kinds = [io::ErrorKind::PermissionDenied, io::ErrorKind::Unsupported];
            assert!(kinds.contains(&error.kind()), "{error}");
            let test = "stack_sampler::tests::a_busy_thread_is_sampled";
            return quictun_skip::skipped(test, error);
        }
        let mut seen = 0;
        // Enough work for hundreds of samples; the test needs only a few.
        for _ in 0..1000 {
            std::hint::black_box(
                (0..1_000_000_u64).fold(0, |sum, n| sum ^ std::hint::black_box(n)),
            );
            sampler.read(|stack| {
                assert_eq!(stack.process, std::process::id());
                assert!(!(stack.user.is_empty() && stack.kernel.is_empty()));
                seen += 1;
            });
            if seen > 5 {
                return;
            }
        }
        panic!("{seen} samples");
    }

    #[test]
    fn a_thread_that_is_gone_is_not_found() {
        let gone = StackSampler::open().watch(u32::MAX / 2 - 7);
        let error = gone.expect_err("a thread that is gone");
        let kinds = [
            io::ErrorKind::NotFound,
            io::ErrorKind::PermissionDenied,
            io::ErrorKind::Unsupported,
        ];
        assert!(kinds.contains(&error.kind()), "{error}");
    }
}
