//! System calls in batches. They are written into memory shared with the kernel, and the kernel is entered once for
//! many, or not at all.
//!
//! The mechanism is an `io_uring`: the submission ring holds requests, the completion ring holds answers. A kernel
//! thread that polls the submission ring (`SQPOLL`) must be woken only when it sleeps.

use std::io;
use std::ptr::NonNull;

use io_uring::{IoUring, opcode, squeue};
use rustix::mm::{Advice, MapFlags, ProtFlags};
use thiserror::Error;

const PAGE: usize = 4096;

/// Milliseconds after which a polling kernel thread goes to sleep.
const POLL_IDLE_MS: u32 = 50;

/// An operation for the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// No operation. It measures the cost of entering the kernel.
    Nothing,
    /// Allocates the memory of the page with this number.
    Map(usize),
    /// Releases the memory of this page.
    Unmap(usize),
}

impl Operation {
    fn advice(self) -> Option<(usize, Advice)> {
        match self {
            Self::Nothing => None,
            Self::Map(page) => Some((page, Advice::LinuxPopulateWrite)),
            Self::Unmap(page) => Some((page, Advice::LinuxDontNeed)),
        }
    }
}

/// The reason why a batch failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BatchError {
    /// The system does not let this process use `io_uring`.
    #[error(
        "io_uring cannot be used here ({0}): the kernel is too old, or forbids it (kernel.io_uring_disabled, seccomp)"
    )]
    Unavailable(#[source] io::Error),
    /// The pages could not be allocated.
    #[error("no memory for {0} pages: {1}")]
    Memory(usize, #[source] io::Error),
    /// The kernel refused an operation, or the batch as a whole.
    #[error("the kernel refused {0:?}: {1}")]
    Refused(Option<Operation>, #[source] io::Error),
}

/// Pages, and the rings through which the kernel gets operations on them.
#[derive(Debug)]
pub struct Batches {
    memory: Pages,
    ring: Ring,
    polled: bool,
    entries: usize,
    /// Operations that the kernel has received and not answered.
    under_way: usize,
    enters: u64,
}

struct Ring(IoUring);

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring").finish_non_exhaustive()
    }
}

/// A private mapping to which there are no references.
#[derive(Debug)]
struct Pages {
    base: NonNull<u8>,
    count: usize,
}

impl Batches {
    /// Prepares for up to `entries` operations at a time on `pages` pages. With `poll_on`, a kernel thread on that
    /// processor polls for operations.
    pub fn new(entries: u32, pages: usize, poll_on: Option<u32>) -> Result<Self, BatchError> {
        let mut builder = IoUring::builder();
        if let Some(cpu) = poll_on {
            builder.setup_sqpoll(POLL_IDLE_MS).setup_sqpoll_cpu(cpu);
        } else {
            builder.setup_single_issuer().setup_defer_taskrun();
        }
        let ring = builder.build(entries).map_err(BatchError::Unavailable)?;
        Ok(Self {
            memory: Pages::new(pages)?,
            ring: Ring(ring),
            polled: poll_on.is_some(),
            entries: entries as usize,
            under_way: 0,
            enters: 0,
        })
    }

    /// Returns the number of times that the kernel was entered for batches.
    pub fn enters(&self) -> u64 {
        self.enters
    }

    /// Runs one operation by a system call of its own. For [`Operation::Nothing`], the call asks for the parent's
    /// process id.
    pub fn call(&self, operation: Operation) -> Result<(), BatchError> {
        let Some((page, advice)) = operation.advice() else {
            std::hint::black_box(rustix::process::getppid());
            return Ok(());
        };
        let at = self.memory.page(page);
        // SAFETY: the page is part of this mapping, and there are no references to it, so its content may change.
        let done = unsafe { rustix::mm::madvise(at.as_ptr().cast(), PAGE, advice) };
        done.map_err(|error| BatchError::Refused(Some(operation), error.into()))
    }

    /// Runs all operations, in any order, and returns when they are done. There may be at most as many as entries.
    pub fn run(&mut self, operations: &[Operation]) -> Result<(), BatchError> {
        let refused = |source| BatchError::Refused(None, source);
        if operations.len() > self.entries - self.under_way {
            return Err(refused(io::Error::other("more operations than entries")));
        }
        for (number, operation) in operations.iter().enumerate() {
            let entry = self.entry(*operation).user_data(number as u64);
            // A kernel thread may answer operations before it marks their entries as free.
            while self.polled && self.ring.0.submission().is_full() {
                std::hint::spin_loop();
            }
            // SAFETY: the operation is on a page of this mapping, or on none. `Drop` keeps the pages mapped while any
            // operation is in progress.
            let pushed = unsafe { self.ring.0.submission().push(&entry) };
            pushed.map_err(|_| refused(io::Error::other("more operations than entries")))?;
            self.under_way += 1;
        }
        if self.polled {
            // `submit` enters the kernel only if the kernel's thread sleeps, so only that case is counted.
            self.enters += u64::from(self.ring.0.submission().need_wakeup());
            self.ring.0.submit().map_err(refused)?;
        } else {
            self.enters += 1;
            let all = self.under_way;
            self.ring.0.submit_and_wait(all).map_err(refused)?;
        }
        let mut failed = None;
        while self.under_way > 0 {
            let Some(done) = self.ring.0.completion().next() else {
                if self.polled {
                    std::hint::spin_loop();
                } else {
                    self.enters += 1;
                    self.ring.0.submit_and_wait(1).map_err(refused)?;
                }
                continue;
            };
            self.under_way -= 1;
            if done.result() < 0 {
                let number = usize::try_from(done.user_data()).unwrap_or(usize::MAX);
                let source = io::Error::from_raw_os_error(-done.result());
                failed = Some(BatchError::Refused(operations.get(number).copied(), source));
            }
        }
        failed.map_or(Ok(()), Err)
    }

    fn entry(&self, operation: Operation) -> squeue::Entry {
        let Some((page, advice)) = operation.advice() else {
            return opcode::Nop::new().build();
        };
        let at = self.memory.page(page).as_ptr().cast();
        let len = i64::try_from(PAGE).unwrap_or_default();
        opcode::Madvise::new(at, len, advice as i32).build()
    }
}

impl Drop for Batches {
    fn drop(&mut self) {
        if self.under_way > 0 {
            // The kernel may still run the operations on these addresses, so the pages stay mapped and the addresses
            // are never reused.
            self.memory.count = 0;
        }
    }
}

impl Pages {
    fn new(count: usize) -> Result<Self, BatchError> {
        let (len, flags) = (count.max(1) * PAGE, MapFlags::PRIVATE);
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, placed by the system.
        let base =
            unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), len, protection, flags) };
        let memory = |source: io::Error| BatchError::Memory(count, source);
        let base = base.map_err(|error| memory(error.into()))?;
        let base = NonNull::new(base.cast()).ok_or_else(|| memory(io::ErrorKind::Other.into()))?;
        Ok(Self {
            base,
            count: count.max(1),
        })
    }

    /// Address of a page. Numbers wrap around.
    fn page(&self, number: usize) -> NonNull<u8> {
        // SAFETY: the remainder is below the number of pages that are mapped.
        unsafe { self.base.add(number % self.count * PAGE) }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        if self.count > 0 {
            // SAFETY: `new` made the mapping, and it is not used after this call.
            let unmapped =
                unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.count * PAGE) };
            debug_assert!(unmapped.is_ok(), "munmap failed on a mapping of `new`");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quictun_skip::skipped;

    /// Creates batches. Says SKIPPED if the system has none: containers often forbid it.
    fn batches(test: &str, entries: u32, pages: usize, thread: Option<u32>) -> Option<Batches> {
        match Batches::new(entries, pages, thread) {
            Ok(batches) => Some(batches),
            Err(BatchError::Unavailable(why)) => {
                skipped(test, why);
                None
            }
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn batches_do_what_single_calls_do() {
        let test = "batch::tests::batches_do_what_single_calls_do";
        let Some(mut batches) = batches(test, 16, 8, None) else {
            return;
        };
        for operation in [Operation::Nothing, Operation::Map(3), Operation::Unmap(3)] {
            batches.call(operation).expect("a call");
        }
        assert_eq!(batches.enters(), 0);
        for _ in 0..10 {
            let map: Vec<Operation> = (0..8).map(Operation::Map).collect();
            let unmap: Vec<Operation> = (0..8).map(Operation::Unmap).collect();
            batches.run(&map).expect("a batch");
            batches.run(&unmap).expect("a batch");
            batches.run(&[Operation::Nothing; 16]).expect("a batch");
        }
        assert!((30..60).contains(&batches.enters()), "{}", batches.enters());
        let many = batches.run(&[Operation::Nothing; 17]);
        assert!(matches!(many, Err(BatchError::Refused(..))));
    }

    #[test]
    fn a_kernel_thread_needs_occasional_wake_ups() {
        let test = "batch::tests::a_kernel_thread_needs_occasional_wake_ups";
        let Some(mut batches) = batches(test, 8, 1, Some(0)) else {
            return;
        };
        for _ in 0..1000 {
            batches.run(&[Operation::Nothing; 8]).expect("a batch");
        }
        assert!(batches.enters() < 900, "{}", batches.enters());
    }
}
