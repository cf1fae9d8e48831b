//! Waits on an epoll set with microsecond precision.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, Event};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;

/// From this timeout on, a millisecond does not matter, and one system call is enough instead of two.
const COARSE: Duration = Duration::from_millis(20);

/// Set if the kernel is older than Linux 5.11, or if a filter refuses the call.
static REFUSED: AtomicBool = AtomicBool::new(false);

/// Waits until an event happens or `timeout` has passed; without a timeout it waits without limit. Afterwards `events`
/// holds the new events, as many as its capacity allows, in place of the old ones.
///
/// `epoll_wait` counts in milliseconds, and a sender paced at 600 Mbit/s has fifty packets due in one. Linux 5.11 has a
/// call that counts in nanoseconds. Before it, short waits take two calls. A signal ends the wait like the timeout.
pub fn epoll_wait(
    epoll: impl AsFd,
    timeout: Option<Duration>,
    events: &mut Vec<Event>,
) -> io::Result<()> {
    let epoll = epoll.as_fd();
    events.clear();
    if !REFUSED.load(Ordering::Relaxed) {
        match wait_once(epoll, timeout, events) {
            Err(Errno::NOSYS | Errno::PERM) => REFUSED.store(true, Ordering::Relaxed),
            done => return uninterrupted(done),
        }
    }
    wait_twice(epoll, timeout, events)
}

fn uninterrupted(done: rustix::io::Result<()>) -> io::Result<()> {
    match done {
        Ok(()) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn wait_once(
    epoll: BorrowedFd<'_>,
    timeout: Option<Duration>,
    events: &mut Vec<Event>,
) -> rustix::io::Result<()> {
    /// The C structure `struct __kernel_timespec`.
    #[repr(C)]
    struct KernelTimespec {
        seconds: i64,
        nanos: i64,
    }
    let time = timeout.map(|timeout| KernelTimespec {
        seconds: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
        nanos: timeout.subsec_nanos().into(),
    });
    let time = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    let room = events.spare_capacity_mut();
    let most = i32::try_from(room.len()).unwrap_or(i32::MAX);
    // SAFETY: `room` has space for `most` events, and rustix's events have the kernel's layout. `time` is null or lives
    // until the end of this function. There is no signal set, so its size does not matter.
    let found = unsafe {
        libc::syscall(
            libc::SYS_epoll_pwait2,
            epoll.as_raw_fd(),
            room.as_mut_ptr(),
            most,
            time,
            std::ptr::null::<libc::sigset_t>(),
            0_usize,
        )
    };
    let Ok(found) = usize::try_from(found) else {
        return Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO));
    };
    // SAFETY: the vector was empty, and the kernel has written this many events, no more than there was room for.
    unsafe { events.set_len(found) };
    Ok(())
}

fn wait_twice(
    epoll: BorrowedFd<'_>,
    mut timeout: Option<Duration>,
    events: &mut Vec<Event>,
) -> io::Result<()> {
    if let Some(precise) = timeout.filter(|time| !time.is_zero() && *time < COARSE) {
        let precise = Timespec::try_from(precise).ok();
        let mut set = [PollFd::new(&epoll, PollFlags::IN)];
        uninterrupted(rustix::event::poll(&mut set, precise.as_ref()).map(drop))?;
        timeout = Some(Duration::ZERO);
    }
    let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
    uninterrupted(epoll::wait(epoll, spare_capacity(events), timeout.as_ref()).map(drop))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;
    use std::time::Instant;

    use rustix::event::epoll::{CreateFlags, EventData, EventFlags};

    use super::*;

    type Wait = fn(BorrowedFd<'_>, Option<Duration>, &mut Vec<Event>) -> io::Result<()>;

    /// The way of the running kernel, and the way of an old one.
    const IMPLEMENTATIONS: [Wait; 2] = [
        |set, timeout, events| epoll_wait(set, timeout, events),
        wait_twice,
    ];

    fn set() -> (OwnedFd, UnixStream, UnixStream) {
        let set = epoll::create(CreateFlags::CLOEXEC).expect("an epoll set");
        let (near, far) = UnixStream::pair().expect("a pair of sockets");
        let data = EventData::new_u64(7);
        epoll::add(&set, &near, data, EventFlags::IN).expect("a socket can be watched");
        (set, near, far)
    }

    #[test]
    fn events_that_happened_are_returned() {
        for wait in IMPLEMENTATIONS {
            let (set, _near, mut far) = set();
            let mut events = Vec::with_capacity(4);
            for timeout in [0, 300, 21_000] {
                let timeout = Duration::from_micros(timeout);
                wait(set.as_fd(), Some(timeout), &mut events).expect("a wait");
                assert!(events.is_empty(), "nothing has happened yet");
            }
            far.write_all(b"x").expect("a write");
            for timeout in [Some(Duration::ZERO), Some(Duration::from_millis(5)), None] {
                wait(set.as_fd(), timeout, &mut events).expect("a wait");
                let told: Vec<_> = events.drain(..).map(|event| event.data.u64()).collect();
                assert_eq!(told, [7], "after {timeout:?}");
            }
        }
    }

    #[test]
    fn waits_are_not_rounded_to_milliseconds() {
        let wished = Duration::from_micros(300);
        for wait in IMPLEMENTATIONS {
            let (set, _near, _far) = set();
            let mut events = Vec::with_capacity(4);
            let mut precise = || {
                let start = Instant::now();
                wait(set.as_fd(), Some(wished), &mut events).expect("a wait");
                (wished..Duration::from_millis(1)).contains(&start.elapsed())
            };
            // One precise wait is enough: the machine may be busy during others.
            assert!((0..500).any(|_| precise()));
        }
    }

    #[test]
    fn a_descriptor_that_is_not_an_epoll_set_is_an_error() {
        for wait in IMPLEMENTATIONS {
            let (_set, near, _far) = set();
            let refused = wait(
                near.as_fd(),
                Some(Duration::ZERO),
                &mut Vec::with_capacity(4),
            );
            assert!(refused.is_err());
        }
    }
}
