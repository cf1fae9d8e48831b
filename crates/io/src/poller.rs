//! One epoll set and what its events mean.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use quictun_engine::FlowId;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};

const EVENTS: usize = 256;

/// Shorter waits are none.
const MICROSECOND: Duration = Duration::from_micros(1);

/// Marks dials among the keys; flow ids stay below it.
const DIAL: u64 = 1 << 63;

/// Marks applications that have yet to say where they want to go, among the dials.
const ASKING: u64 = 1 << 62;

/// Listeners are numbered from here; flow ids have a generation above it.
const LISTENER: u64 = 16;

/// Everything that an application socket tells, each change once.
const EDGES: EventFlags = EventFlags::IN
    .union(EventFlags::OUT)
    .union(EventFlags::RDHUP)
    .union(EventFlags::ET);

/// What a descriptor in the set is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// The UDP socket.
    Udp,
    /// The event descriptor that other threads wake the loop with.
    Wake,
    /// The TUN device, or the process that has it.
    Tun,
    /// A listener, by its number.
    Listener(usize),
    /// A dial, by its number.
    Dial(usize),
    /// An application that has yet to say where it wants to go, by its number.
    Asking(usize),
    /// The application's socket of a flow.
    Flow(FlowId),
}

/// What happened to it.
#[derive(Clone, Copy, Debug)]
pub struct Ready {
    /// The descriptor, as it was added.
    pub key: Key,
    /// There is something to read, or the end.
    pub readable: bool,
    /// There is room to write, or the other end is gone.
    pub writable: bool,
    /// There is an error to take.
    pub failed: bool,
}

/// What comes before a wait.
#[derive(Clone, Copy, Debug, Default)]
pub struct Patience {
    /// Sleep for this long first, even if something happens or the end of the wait comes.
    pub asleep: Duration,
    /// Or poll for so long before sleeping.
    pub polling: Duration,
}

/// An epoll set. Descriptors leave it by being closed.
pub struct Poller {
    epoll: OwnedFd,
    events: Vec<Event>,
}

impl Key {
    fn to_u64(self) -> u64 {
        match self {
            Self::Udp => 0,
            Self::Wake => 1,
            Self::Tun => 2,
            Self::Listener(index) => LISTENER + index as u64,
            Self::Dial(key) => DIAL | key as u64,
            Self::Asking(key) => DIAL | ASKING | key as u64,
            Self::Flow(id) => id.0,
        }
    }

    fn from_u64(value: u64) -> Self {
        let low = |value: u64| usize::try_from(value).unwrap_or(usize::MAX);
        match value {
            0 => Self::Udp,
            1 => Self::Wake,
            2 => Self::Tun,
            value if value & (DIAL | ASKING) == DIAL | ASKING => {
                Self::Asking(low(value & !(DIAL | ASKING)))
            }
            value if value & DIAL != 0 => Self::Dial(low(value & !DIAL)),
            value if u32::try_from(value).is_ok() => Self::Listener(low(value - LISTENER)),
            value => Self::Flow(FlowId(value)),
        }
    }
}

impl Poller {
    /// An empty set.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            epoll: epoll::create(CreateFlags::CLOEXEC)?,
            events: Vec::with_capacity(EVENTS),
        })
    }

    /// Watches for input, level-triggered.
    pub fn add_input(&self, fd: impl AsFd, key: Key) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, fd, data(key), EventFlags::IN)?)
    }

    /// Watches a listener that other workers watch too: only some of them are woken.
    pub fn add_listener(&self, fd: impl AsFd, key: Key) -> io::Result<()> {
        let flags = EventFlags::IN | EventFlags::EXCLUSIVE;
        Ok(epoll::add(&self.epoll, fd, data(key), flags)?)
    }

    /// Watches an application socket for everything, edge-triggered: one system call in its life.
    pub fn add_flow(&self, socket: Option<BorrowedFd<'_>>, key: Key) -> io::Result<()> {
        let Some(fd) = socket else {
            return Ok(());
        };
        Ok(epoll::add(&self.epoll, fd, data(key), EDGES)?)
    }

    /// Changes what a descriptor of the set is known as.
    pub fn rename_flow(&self, socket: Option<BorrowedFd<'_>>, key: Key) -> io::Result<()> {
        let Some(fd) = socket else {
            return Ok(());
        };
        Ok(epoll::modify(&self.epoll, fd, data(key), EDGES)?)
    }

    /// Watches for room to write as well, or no longer.
    pub fn set_output(&self, fd: impl AsFd, key: Key, output: bool) -> io::Result<()> {
        let mut flags = EventFlags::IN;
        flags.set(EventFlags::OUT, output);
        Ok(epoll::modify(&self.epoll, fd, data(key), flags)?)
    }

    /// Stops watching.
    pub fn remove(&self, fd: impl AsFd) -> io::Result<()> {
        Ok(epoll::delete(&self.epoll, fd)?)
    }

    /// Waits until something happens or `until` has come; `None` waits for ever.
    pub fn wait(
        &mut self,
        until: Option<Instant>,
        patience: Patience,
        ready: &mut Vec<Ready>,
    ) -> io::Result<()> {
        let start = Instant::now();
        let left = |now| until.map(|until: Instant| until.saturating_duration_since(now));
        let at_most = |time: Duration| left(start).map_or(time, |left| left.min(time));
        self.events.clear();
        let waits = left(start).is_none_or(|left| !left.is_zero());
        if waits && !patience.asleep.is_zero() {
            pause(patience.asleep)?;
            return self.look(left(Instant::now()), ready);
        }
        let polling = at_most(patience.polling);
        while self.events.is_empty() && start.elapsed() < polling {
            self.wait_for(Some(Duration::ZERO))?;
            // Who is to answer may be waiting for this very core.
            std::thread::yield_now();
        }
        self.look(left(Instant::now()), ready)
    }

    fn look(&mut self, left: Option<Duration>, ready: &mut Vec<Ready>) -> io::Result<()> {
        if self.events.is_empty() {
            self.wait_for(left)?;
        }
        ready.clear();
        ready.extend(self.events.iter().map(|event| {
            let flags = event.flags;
            Ready {
                key: Key::from_u64(event.data.u64()),
                readable: flags.intersects(EventFlags::IN | EventFlags::RDHUP | EventFlags::HUP),
                writable: flags.intersects(EventFlags::OUT | EventFlags::HUP),
                failed: flags.contains(EventFlags::ERR),
            }
        }));
        Ok(())
    }

    fn wait_for(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        let timeout = timeout.map(|timeout| match timeout {
            short if short < MICROSECOND => Duration::ZERO,
            timeout => timeout,
        });
        quictun_sys::epoll_wait(&self.epoll, timeout, &mut self.events)
    }
}

impl std::fmt::Debug for Poller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Poller")
            .field("epoll", &self.epoll)
            .finish_non_exhaustive()
    }
}

fn pause(time: Duration) -> io::Result<()> {
    let time = Timespec {
        tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(time.subsec_nanos()),
    };
    match rustix::event::poll(&mut [], Some(&time)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn data(key: Key) -> EventData {
    EventData::new_u64(key.to_u64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_survive_the_kernel() {
        for key in [
            Key::Udp,
            Key::Wake,
            Key::Tun,
            Key::Listener(0),
            Key::Listener(70_000),
            Key::Dial(0),
            Key::Dial(123),
            Key::Asking(0),
            Key::Asking(123),
            Key::Flow(FlowId(1 << 32)),
            Key::Flow(FlowId((77 << 32) | 5)),
        ] {
            assert_eq!(Key::from_u64(key.to_u64()), key);
        }
    }
}
