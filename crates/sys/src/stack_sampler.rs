//! Where processor time goes: the kernel stops at threads again and again and notes what they were in the middle of.
//!
//! ```text
//!   open ─► watch (each thread; what it starts later is watched too) ─► read, again and again ─► lost
//! ```
//!
//! There is one ring of memory for each processor, which the kernel fills and [`StackSampler::read`] empties. The
//! clock is the system's own, so that it works in virtual machines too; code that runs with interrupts off is
//! accounted to where they are on again.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

/// Samples in a second of processor time: a prime number, so that nothing periodic keeps step with it.
pub const SAMPLES_PER_S: u64 = 997;

/// Pages of a ring, a power of two: a second of deep stacks.
const RING_PAGES: usize = 64;

/// Frames of a stack, the topmost; more are cut off at the root.
const DEPTH: u16 = 64;

/// Samples of threads; what they start is watched too.
#[derive(Debug)]
pub struct StackSampler {
    rings: Vec<Ring>,
    /// They count as long as they are open.
    events: Vec<OwnedFd>,
    with_kernel: bool,
    lost: u64,
}

/// What a thread was in the middle of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stack {
    /// Its process, as the namespace of whoever opened the sampler numbers it.
    pub process: u32,
    /// Return addresses in the kernel, innermost first; none where that is not permitted.
    pub kernel: Vec<u64>,
    /// The same of the program. Without frame pointers only the first can be believed.
    pub user: Vec<u64>,
}

/// The ring of a processor.
#[derive(Debug)]
struct Ring {
    processor: i32,
    /// Whose output it is.
    event: i32,
    memory: NonNull<u8>,
    page: usize,
}

/// `struct perf_event_attr`, version 5.
#[repr(C)]
#[derive(Debug, Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    frequency: u64,
    sample: u64,
    read_format: u64,
    flags: u64,
    wakeup: u32,
    breakpoint: u32,
    config1: u64,
    config2: u64,
    branches: u64,
    registers_user: u64,
    stack_user: u32,
    clock: i32,
    registers: u64,
    aux_watermark: u32,
    depth: u16,
    reserved: u16,
}

const KIND_SOFTWARE: u32 = 1;
const CPU_CLOCK: u64 = 0;
const SAMPLE_THREAD: u64 = 1 << 1;
const SAMPLE_CHAIN: u64 = 1 << 5;
const FLAG_INHERIT: u64 = 1 << 1;
const FLAG_WITHOUT_KERNEL: u64 = 1 << 5;
const FLAG_WITHOUT_HYPERVISOR: u64 = 1 << 6;
const FLAG_FREQUENCY: u64 = 1 << 10;
const OPEN_CLOEXEC: u64 = 1 << 3;
/// `PERF_EVENT_IOC_SET_OUTPUT`.
const SET_OUTPUT: libc::Ioctl = 0x2405;

/// Records in a ring.
const RECORD_LOST: u32 = 2;
const RECORD_SAMPLE: u32 = 9;
const RECORD_HEADER: usize = 8;

/// Marks in a chain of addresses: from here on they are the kernel's, or the program's.
const IN_KERNEL: u64 = (-128_i64).cast_unsigned();
const IN_PROGRAM: u64 = (-512_i64).cast_unsigned();
const FIRST_MARK: u64 = (-4095_i64).cast_unsigned();

/// Where the first page says how far the kernel has written, and how far we have read.
const HEAD: usize = 1024;
const TAIL: usize = 1032;

impl StackSampler {
    /// A sampler that watches nobody yet.
    pub fn open() -> Self {
        Self {
            rings: Vec::new(),
            events: Vec::new(),
            with_kernel: true,
            lost: 0,
        }
    }

    /// Watches a thread, and all that it starts from now on.
    ///
    /// # Errors
    ///
    /// `PermissionDenied` where the system permits nobody to look (`kernel.perf_event_paranoid`); `NotFound` where the
    /// thread has ended; others where the kernel has no such events.
    pub fn watch(&mut self, thread: u32) -> io::Result<()> {
        let thread = i32::try_from(thread).map_err(|_| io::ErrorKind::InvalidInput)?;
        for processor in 0..processors() {
            let event = match self.event(thread, processor) {
                Err(error)
                    if error.kind() == io::ErrorKind::PermissionDenied && self.with_kernel =>
                {
                    // What the program does may be seen even where the kernel may not.
                    self.with_kernel = false;
                    self.event(thread, processor)
                }
                event => event,
            };
            let event = match event {
                // The processor is off.
                Err(error) if error.raw_os_error() == Some(libc::ENODEV) => continue,
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {
                    return Err(io::ErrorKind::NotFound.into());
                }
                event => event?,
            };
            let ring = self.rings.iter().find(|ring| ring.processor == processor);
            match ring {
                Some(ring) => redirect(&event, ring.event)?,
                None => self.rings.push(Ring::new(&event, processor)?),
            }
            self.events.push(event);
        }
        Ok(())
    }

    /// Whether stacks hold what the kernel did.
    pub fn sees_kernel(&self) -> bool {
        self.with_kernel
    }

    /// Samples that nobody fetched in time.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Fetches what was sampled.
    pub fn read(&mut self, mut each: impl FnMut(Stack)) {
        for ring in &self.rings {
            ring.drain(|kind, body| match kind {
                RECORD_SAMPLE => each(stack(body)),
                RECORD_LOST => {
                    let count = words(body.get(8..).unwrap_or_default()).next();
                    self.lost += count.unwrap_or(0);
                }
                _ => {}
            });
        }
    }

    fn event(&self, thread: i32, processor: i32) -> io::Result<OwnedFd> {
        let without_kernel = if self.with_kernel {
            0
        } else {
            FLAG_WITHOUT_KERNEL
        };
        let attributes = Attributes {
            kind: KIND_SOFTWARE,
            size: u32::try_from(size_of::<Attributes>()).unwrap_or(0),
            config: CPU_CLOCK,
            frequency: SAMPLES_PER_S,
            sample: SAMPLE_THREAD | SAMPLE_CHAIN,
            flags: FLAG_INHERIT | FLAG_FREQUENCY | FLAG_WITHOUT_HYPERVISOR | without_kernel,
            depth: DEPTH,
            ..Attributes::default()
        };
        // SAFETY: the kernel reads as much of the structure as `size` says; it makes a descriptor or fails.
        let fd = unsafe {
            libc::syscall(
                libc::SYS_perf_event_open,
                &raw const attributes,
                thread,
                processor,
                -1,
                OPEN_CLOEXEC,
            )
        };
        let fd = i32::try_from(fd).map_err(|_| io::ErrorKind::Other)?;
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: new, and nobody else's.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }
}

impl Ring {
    fn new(event: &OwnedFd, processor: i32) -> io::Result<Self> {
        let page = page();
        // SAFETY: a new mapping where the kernel likes it; nothing of ours is replaced.
        let memory = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                page * (RING_PAGES + 1),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                event.as_raw_fd(),
                0,
            )
        };
        if memory == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let memory = NonNull::new(memory.cast()).ok_or(io::ErrorKind::Other)?;
        Ok(Self {
            processor,
            event: event.as_raw_fd(),
            memory,
            page,
        })
    }

    /// A number that the kernel shares with us.
    fn shared(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: inside the first page, which is mapped as long as `self` lives.
        let at = unsafe { self.memory.add(offset) };
        // SAFETY: aligned to eight bytes, valid for as long as `self`, and written by the kernel as one.
        unsafe { AtomicU64::from_ptr(at.cast().as_ptr()) }
    }

    /// Hands over every record, its kind and what follows its header, and gives the room back.
    fn drain(&self, mut each: impl FnMut(u32, &[u8])) {
        let size = RING_PAGES * self.page;
        let head = self.shared(HEAD).load(Ordering::Acquire);
        let mut tail = self.shared(TAIL).load(Ordering::Relaxed);
        let mut record = Vec::new();
        while tail < head {
            self.copy(tail, RECORD_HEADER, &mut record);
            let [k0, k1, k2, k3, _, _, l0, l1] = record[..] else {
                break;
            };
            let length = usize::from(u16::from_ne_bytes([l0, l1]));
            if length < RECORD_HEADER || length > size {
                break;
            }
            self.copy(tail, length, &mut record);
            each(
                u32::from_ne_bytes([k0, k1, k2, k3]),
                &record[RECORD_HEADER..],
            );
            tail += length as u64;
        }
        self.shared(TAIL).store(head, Ordering::Release);
    }

    /// Copies so much from this position on; the ring's end is followed by its beginning.
    fn copy(&self, from: u64, length: usize, into: &mut Vec<u8>) {
        let size = RING_PAGES * self.page;
        // The remainder is below the size of the ring.
        let from = usize::try_from(from % size as u64).unwrap_or(0);
        into.clear();
        for at in from..from + length {
            // SAFETY: behind the first page, inside the ring, mapped as long as `self` lives.
            let byte = unsafe { self.memory.add(self.page + at % size) };
            // SAFETY: see above; the kernel has written it before it moved the head.
            into.push(unsafe { byte.as_ptr().read_volatile() });
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the mapping that `new` made; nobody else has an address in it.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), self.page * (RING_PAGES + 1)) };
    }
}

/// Has an event written to the ring of another one.
fn redirect(event: &OwnedFd, to: i32) -> io::Result<()> {
    // SAFETY: two open descriptors and no memory.
    let done = unsafe { libc::ioctl(event.as_raw_fd(), SET_OUTPUT, to) };
    if done < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

fn processors() -> i32 {
    // SAFETY: reads a number.
    let count = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) };
    i32::try_from(count).unwrap_or(1).max(1)
}

fn page() -> usize {
    // SAFETY: reads a number.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).unwrap_or(4096)
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u64> {
    let (words, _) = bytes.as_chunks();
    words.iter().map(|word| u64::from_ne_bytes(*word))
}

/// A sample: process and thread, the number of addresses, and they themselves with marks among them.
fn stack(body: &[u8]) -> Stack {
    let mut stack = Stack {
        process: words(body).next().map_or(0, first_half),
        ..Stack::default()
    };
    let mut in_kernel = false;
    for address in words(body).skip(2) {
        match address {
            IN_KERNEL => in_kernel = true,
            IN_PROGRAM => in_kernel = false,
            FIRST_MARK.. => {}
            _ if in_kernel => stack.kernel.push(address),
            _ => stack.user.push(address),
        }
    }
    stack
}

/// The process; the thread is in the other half.
fn first_half(word: u64) -> u32 {
    let [a, b, c, d, ..] = word.to_ne_bytes();
    u32::from_ne_bytes([a, b, c, d])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_tell_the_kernels_addresses_from_the_programs() {
        let mut body = Vec::new();
        body.extend(7_u32.to_ne_bytes());
        body.extend(8_u32.to_ne_bytes());
        for word in [
            5,
            IN_KERNEL,
            0xffff_ffff_8100_0000,
            IN_PROGRAM,
            0x1000,
            0x2000,
        ] {
            body.extend(word.to_ne_bytes());
        }
        let expected = Stack {
            process: 7,
            kernel: vec![0xffff_ffff_8100_0000],
            user: vec![0x1000, 0x2000],
        };
        assert_eq!(stack(&body), expected);
        assert_eq!(stack(&[]), Stack::default());
    }

    #[test]
    fn a_thread_that_works_is_seen() {
        let mut sampler = StackSampler::open();
        let thread = rustix::thread::gettid().as_raw_nonzero().get();
        if let Err(error) = sampler.watch(thread.cast_unsigned()) {
            // A container may forbid it, and a kernel may not have it.
            assert_ne!(error.kind(), io::ErrorKind::NotFound, "{error}");
            return;
        }
        let mut seen = 0;
        // As much work as makes hundreds of samples; a few will do.
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
        let error = gone.expect_err("no such thread");
        let kinds = [
            io::ErrorKind::NotFound,
            io::ErrorKind::PermissionDenied,
            io::ErrorKind::Unsupported,
        ];
        assert!(kinds.contains(&error.kind()), "{error}");
    }
}
