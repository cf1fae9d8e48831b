//! Detects that this machine has slept (suspend).
//!
//! `CLOCK_BOOTTIME` continues while a machine sleeps and `CLOCK_MONOTONIC` does not. Their difference is the time that
//! the machine has slept since it started. The kernel cancels certain timers of the wall clock when the machine wakes
//! up (`TFD_TIMER_CANCEL_ON_SET`), so the clocks need not be compared at intervals.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};

/// Shorter differences do not count as sleep: the two clocks are not read at the same instant.
const LEAST: Duration = Duration::from_secs(1);

/// A time in the year 2242. The kernel's own end of time is in 2262.
const FAR_S: i64 = 1 << 33;

/// Detects sleep. The descriptor becomes readable when the machine wakes up, or when its clock is set.
#[derive(Debug)]
pub struct SleepWatch {
    timer: OwnedFd,
    slept: SleepTotal,
}

/// Two clocks of this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockReading {
    /// `CLOCK_BOOTTIME`, which counts sleep.
    pub boot: Duration,
    /// `CLOCK_MONOTONIC`, which does not count sleep.
    pub monotonic: Duration,
}

impl ClockReading {
    /// Reads both clocks. `boot` is read first: if the thread is interrupted in between, the result shows less sleep,
    /// never more.
    pub fn now() -> Self {
        let read = |clock| Duration::try_from(clock_gettime(clock)).unwrap_or_default();
        let boot = read(ClockId::Boottime);
        let monotonic = read(ClockId::Monotonic);
        Self { boot, monotonic }
    }
}

impl SleepWatch {
    /// Starts to watch at `now`.
    pub fn open(now: ClockReading) -> io::Result<Self> {
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
            slept: SleepTotal::until(now),
        })
    }

    /// Returns how long the machine has slept since the previous call, if that is a second or more. Makes the
    /// descriptor unreadable.
    pub fn take_sleep(&mut self, now: ClockReading) -> Option<Duration> {
        // The result of the read does not matter (ECANCELED after a sleep, else EAGAIN): the clocks show whether there
        // was a sleep.
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

/// The total sleep of this machine that is known.
#[derive(Debug)]
struct SleepTotal(Duration);

impl SleepTotal {
    fn until(now: ClockReading) -> Self {
        Self(now.boot.saturating_sub(now.monotonic))
    }

    fn more(&mut self, now: ClockReading) -> Option<Duration> {
        let Self(slept) = Self::until(now);
        let nap = slept.checked_sub(self.0)?;
        self.0 = slept;
        (nap >= LEAST).then_some(nap)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(boot_ms: u64, monotonic_ms: u64) -> ClockReading {
        ClockReading {
            boot: Duration::from_millis(boot_ms),
            monotonic: Duration::from_millis(monotonic_ms),
        }
    }

    #[test]
    fn a_sleep_is_reported_once_with_its_length() {
        let mut slept = SleepTotal::until(at(5_000, 5_000));
        assert_eq!(slept.more(at(65_000, 65_000)), None, "awake");
        let ten_minutes = Duration::from_mins(10);
        assert_eq!(slept.more(at(666_000, 66_000)), Some(ten_minutes));
        assert_eq!(slept.more(at(667_000, 67_000)), None, "reported before");
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
    fn a_delay_between_the_two_clock_readings_is_not_a_sleep() {
        let mut slept = SleepTotal::until(at(900_000, 300_000));
        // 30 s pass between the two readings.
        assert_eq!(slept.more(at(910_000, 340_000)), None);
        assert_eq!(
            slept.more(at(941_000, 341_000)),
            None,
            "no sleep after it either"
        );
        // The processes of this machine see another start time.
        assert_eq!(SleepTotal::until(at(10, 5_000)).more(at(20, 5_010)), None);
    }

    #[test]
    fn an_awake_machine_reports_no_sleep() {
        let mut watch = SleepWatch::open(ClockReading::now()).expect("a timer");
        assert_eq!(watch.take_sleep(ClockReading::now()), None);
        let fds = &mut [rustix::event::PollFd::new(
            &watch,
            rustix::event::PollFlags::IN,
        )];
        let none = Timespec::default();
        assert_eq!(
            rustix::event::poll(fds, Some(&none)),
            Ok(0),
            "the clock was set"
        );
    }
}
