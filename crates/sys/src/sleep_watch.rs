//! Notices that this machine has slept.
//!
//! `CLOCK_BOOTTIME` goes on while a machine sleeps and `CLOCK_MONOTONIC` does not: the distance between them is the time
//! that it has slept since it was started. The kernel cancels certain timers of the clock on the wall when the machine
//! wakes up (`TFD_TIMER_CANCEL_ON_SET`), so nobody needs to compare the clocks again and again.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};

/// Shorter sleeps are none: the two clocks are not read at the same instant.
const LEAST: Duration = Duration::from_secs(1);

/// In the year 2242; the kernel's own end of time is in 2262.
const FAR_S: i64 = 1 << 33;

/// Compares the clocks. Its descriptor becomes readable when the machine wakes up, or when its clock is set.
#[derive(Debug)]
pub struct SleepWatch {
    timer: OwnedFd,
    slept: Slept,
}

/// Two clocks of this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clocks {
    /// `CLOCK_BOOTTIME`, which counts sleep.
    pub boot: Duration,
    /// `CLOCK_MONOTONIC`, which does not.
    pub monotonic: Duration,
}

impl Clocks {
    /// Both, as they are now. `boot` is read first: who is held up in between sees less sleep, never more.
    pub fn now() -> Self {
        let read = |clock| Duration::try_from(clock_gettime(clock)).unwrap_or_default();
        let boot = read(ClockId::Boottime);
        let monotonic = read(ClockId::Monotonic);
        Self { boot, monotonic }
    }
}

impl SleepWatch {
    /// Watches from `now` on.
    pub fn open(now: Clocks) -> io::Result<Self> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Realtime, flags)?;
        let far = Itimerspec {
            it_interval: Timespec::default(),
            it_value: Timespec {
                tv_sec: FAR_S,
                tv_nsec: 0,
            },
        };
        let flags = TimerfdTimerFlags::ABSTIME | TimerfdTimerFlags::CANCEL_ON_SET;
        timerfd_settime(&timer, flags, &far)?;
        Ok(Self {
            timer,
            slept: Slept::until(now),
        })
    }

    /// Tells how long the machine has slept since the call before, where that is a second or more. Makes the descriptor
    /// unreadable.
    pub fn took_a_nap(&mut self, now: Clocks) -> Option<Duration> {
        // Whatever the read says (ECANCELED after a sleep, else EAGAIN), the clocks tell whether there was a sleep.
        rustix::io::read(&self.timer, &mut [0; 8]).ok();
        self.slept.more(now)
    }
}

impl AsFd for SleepWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.timer.as_fd()
    }
}

impl AsRawFd for SleepWatch {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

/// The sleep of this machine that is known.
#[derive(Debug)]
struct Slept(Duration);

impl Slept {
    fn until(now: Clocks) -> Self {
        Self(now.boot.saturating_sub(now.monotonic))
    }

    fn more(&mut self, now: Clocks) -> Option<Duration> {
        let Self(slept) = Self::until(now);
        let nap = slept.checked_sub(self.0)?;
        self.0 = slept;
        (nap >= LEAST).then_some(nap)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(boot_ms: u64, monotonic_ms: u64) -> Clocks {
        Clocks {
            boot: Duration::from_millis(boot_ms),
            monotonic: Duration::from_millis(monotonic_ms),
        }
    }

    #[test]
    fn a_nap_is_told_once_and_with_its_length() {
        let mut slept = Slept::until(at(5_000, 5_000));
        assert_eq!(slept.more(at(65_000, 65_000)), None, "awake");
        let ten_minutes = Duration::from_mins(10);
        assert_eq!(slept.more(at(666_000, 66_000)), Some(ten_minutes));
        assert_eq!(slept.more(at(667_000, 67_000)), None, "told before");
        let second = Duration::from_secs(1);
        assert_eq!(slept.more(at(669_000, 68_000)), Some(second));
        assert_eq!(slept.more(at(670_999, 69_000)), None, "too short");
        assert_eq!(
            slept.more(at(672_999, 70_000)),
            Some(second),
            "the next one is measured by itself"
        );
    }

    #[test]
    fn who_was_held_up_while_reading_the_clocks_has_not_slept() {
        let mut slept = Slept::until(at(900_000, 300_000));
        // 30 s between the two readings.
        assert_eq!(slept.more(at(910_000, 340_000)), None);
        assert_eq!(
            slept.more(at(941_000, 341_000)),
            None,
            "and not slept after it"
        );
        // A machine whose processes see another time since it was started.
        assert_eq!(Slept::until(at(10, 5_000)).more(at(20, 5_010)), None);
    }

    #[test]
    fn the_clocks_of_this_machine_tell_of_no_nap_where_there_was_none() {
        let mut watch = SleepWatch::open(Clocks::now()).expect("a timer");
        assert_eq!(watch.took_a_nap(Clocks::now()), None);
        let fds = &mut [rustix::event::PollFd::new(
            &watch,
            rustix::event::PollFlags::IN,
        )];
        let none = Timespec::default();
        assert_eq!(
            rustix::event::poll(fds, Some(&none)),
            Ok(0),
            "nobody has set the clock"
        );
    }
}
