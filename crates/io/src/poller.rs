//! One epoll set, and the meaning of its events.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use quictun_engine::{ConnectionId, FlowId};
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};

const EVENTS: usize = 256;

/// Shorter timeouts count as zero.
const MICROSECOND: Duration = Duration::from_micros(1);

/// Marks the keys of dials. Flow ids are below it.
const DIAL: u64 = 1 << 63;

/// Marks, among the dials, applications that have not yet named their target.
const ASKING: u64 = 1 << 62;

/// Marks, among the dials, TCP connections that carry flows. Ids of connections are below it.
const CARRIER: u64 = 1 << 61;

/// Mark, among the dials, the UDP socket of an association, and the connection whose end is its end.
const RELAY: u64 = 1 << 60;
const LIFELINE: u64 = 1 << 59;

/// Numbers of listeners for carriers start here, and those of other listeners here. Flow ids have a generation in the
/// upper half, so they are larger.
const CARRIER_LISTENER: u64 = 3;
const LISTENER: u64 = CARRIER_LISTENER + CARRIER_LISTENERS_MAX as u64;

/// Limit for the listeners for carriers.
pub const CARRIER_LISTENERS_MAX: usize = 16;

/// All events of an application socket, edge-triggered.
const EDGES: EventFlags = EventFlags::IN
    .union(EventFlags::OUT)
    .union(EventFlags::RDHUP)
    .union(EventFlags::ET);

/// Identifies a descriptor in the set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// The worker's UDP socket.
    Udp,
    /// The event descriptor with which other threads wake the loop.
    Wake,
    /// The TUN device, or the process that has the device.
    Tun,
    /// A listener for TCP connections that carry flows, by its number.
    CarrierListener(u8),
    /// A listener, by its number.
    Listener(usize),
    /// A dial, by its number.
    Dial(usize),
    /// An application that has not yet named its target, by its number.
    Asking(usize),
    /// The UDP socket of an association, by the association's number.
    Relay(usize),
    /// The connection of the application that has an association, by the association's number.
    Lifeline(usize),
    /// The application's socket of a flow.
    Flow(FlowId),
    /// The TCP connection that a connection of the engine uses.
    Carrier(ConnectionId),
}

/// The state of a descriptor that epoll reported.
#[derive(Clone, Copy, Debug)]
pub struct ReadyEvent {
    /// The key with which the descriptor was added.
    pub key: Key,
    /// There are bytes to read, or the end of the stream.
    pub readable: bool,
    /// There is room to write, or the other end is gone.
    pub writable: bool,
    /// There is an error to read from the socket.
    pub failed: bool,
}

/// Steps to take before a wait.
#[derive(Clone, Copy, Debug, Default)]
pub struct WaitPlan {
    /// Sleep for this long first, even if events happen or the timeout passes.
    pub asleep: Duration,
    /// If `asleep` is zero, poll for this long before sleeping.
    pub polling: Duration,
}

/// An epoll set. Closing a descriptor removes it from the set.
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
            Self::CarrierListener(index) => CARRIER_LISTENER + u64::from(index),
            Self::Listener(index) => LISTENER + index as u64,
            Self::Dial(key) => DIAL | key as u64,
            Self::Asking(key) => DIAL | ASKING | key as u64,
            Self::Relay(key) => DIAL | RELAY | key as u64,
            Self::Lifeline(key) => DIAL | LIFELINE | key as u64,
            Self::Flow(id) => id.0,
            Self::Carrier(id) => DIAL | CARRIER | id.0,
        }
    }

    fn from_u64(value: u64) -> Self {
        let low = |value: u64| usize::try_from(value).unwrap_or(usize::MAX);
        match value {
            0 => Self::Udp,
            1 => Self::Wake,
            2 => Self::Tun,
            CARRIER_LISTENER..LISTENER => {
                Self::CarrierListener(u8::try_from(value - CARRIER_LISTENER).unwrap_or(u8::MAX))
            }
            value if value & (DIAL | ASKING) == DIAL | ASKING => {
                Self::Asking(low(value & !(DIAL | ASKING)))
            }
            value if value & (DIAL | CARRIER) == DIAL | CARRIER => {
                Self::Carrier(ConnectionId(value & !(DIAL | CARRIER)))
            }
            value if value & (DIAL | RELAY) == DIAL | RELAY => {
                Self::Relay(low(value & !(DIAL | RELAY)))
            }
            value if value & (DIAL | LIFELINE) == DIAL | LIFELINE => {
                Self::Lifeline(low(value & !(DIAL | LIFELINE)))
            }
            value if value & DIAL != 0 => Self::Dial(low(value & !DIAL)),
            value if u32::try_from(value).is_ok() => Self::Listener(low(value - LISTENER)),
            value => Self::Flow(FlowId(value)),
        }
    }
}

impl Poller {
    /// Creates an empty set.
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

    /// Watches a listener that other workers watch too. The kernel wakes only some of them.
    pub fn add_listener(&self, fd: impl AsFd, key: Key) -> io::Result<()> {
        let flags = EventFlags::IN | EventFlags::EXCLUSIVE;
        Ok(epoll::add(&self.epoll, fd, data(key), flags)?)
    }

    /// Watches an application socket for all events, edge-triggered: one system call in the socket's life. Does nothing
    /// without a socket.
    pub fn add_flow(&self, socket: Option<BorrowedFd<'_>>, key: Key) -> io::Result<()> {
        let Some(fd) = socket else {
            return Ok(());
        };
        Ok(epoll::add(&self.epoll, fd, data(key), EDGES)?)
    }

    /// Changes the key of a socket in the set. Does nothing without a socket.
    pub fn rename_flow(&self, socket: Option<BorrowedFd<'_>>, key: Key) -> io::Result<()> {
        let Some(fd) = socket else {
            return Ok(());
        };
        Ok(epoll::modify(&self.epoll, fd, data(key), EDGES)?)
    }

    /// Watches for room to write as well, or stops doing so.
    pub fn set_output(&self, fd: impl AsFd, key: Key, output: bool) -> io::Result<()> {
        let mut flags = EventFlags::IN;
        flags.set(EventFlags::OUT, output);
        Ok(epoll::modify(&self.epoll, fd, data(key), flags)?)
    }

    /// Stops watching a descriptor.
    pub fn remove(&self, fd: impl AsFd) -> io::Result<()> {
        Ok(epoll::delete(&self.epoll, fd)?)
    }

    /// Waits until an event happens or `until` has passed. `None` waits without limit. Replaces the content of `ready`.
    pub fn wait(
        &mut self,
        until: Option<Instant>,
        plan: WaitPlan,
        ready: &mut Vec<ReadyEvent>,
    ) -> io::Result<()> {
        let start = Instant::now();
        let left = |now| until.map(|until: Instant| until.saturating_duration_since(now));
        let at_most = |time: Duration| left(start).map_or(time, |left| left.min(time));
        self.events.clear();
        let waits = left(start).is_none_or(|left| !left.is_zero());
        if waits && !plan.asleep.is_zero() {
            quictun_sys::pause_until(start + plan.asleep)?;
            return self.collect_events(left(Instant::now()), ready);
        }
        let polling = at_most(plan.polling);
        while self.events.is_empty() && start.elapsed() < polling {
            self.wait_for(Some(Duration::ZERO))?;
            if self.events.is_empty() {
                // The thread that should answer may be waiting for this core.
                std::thread::yield_now();
            }
        }
        self.collect_events(left(Instant::now()), ready)
    }

    fn collect_events(
        &mut self,
        left: Option<Duration>,
        ready: &mut Vec<ReadyEvent>,
    ) -> io::Result<()> {
        if self.events.is_empty() {
            self.wait_for(left)?;
        }
        ready.clear();
        ready.extend(self.events.iter().map(|event| {
            let flags = event.flags;
            ReadyEvent {
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
            Key::Carrier(ConnectionId(1 << 32)),
            Key::CarrierListener(0),
            Key::CarrierListener(15),
            Key::Asking(123),
            Key::Relay(0),
            Key::Relay(123),
            Key::Lifeline(0),
            Key::Lifeline(123),
            Key::Flow(FlowId(1 << 32)),
            Key::Flow(FlowId((77 << 32) | 5)),
        ] {
            assert_eq!(Key::from_u64(key.to_u64()), key);
        }
    }
}
