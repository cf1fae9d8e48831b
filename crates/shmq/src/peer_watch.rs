//! Detects that the peer is gone, for whatever reason.
//!
//! The socket over which the channel was set up stays open as long as the peer lives. The kernel closes it if the
//! peer's process is killed. A thread waits for that without using the processor. It then wakes the thread that sleeps
//! on the doorbell or the descriptor.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, epoll};
use rustix::net::{RecvFlags, SendFlags};

use crate::alarm::Alarm;

/// Limit of wake-ups that are read from the socket at once. Only a peer that floods sends more, and then the next wait
/// returns at once.
const WAKES_READ: usize = 16;

/// Stack size of the thread in bytes: the thread only makes system calls.
const STACK: usize = 64 * 1024;

/// First and longest pause between attempts to wake the sleeping thread.
const RETRY: Duration = Duration::from_millis(1);
const RETRY_MAX: Duration = Duration::from_millis(100);

#[derive(Debug)]
struct PeerState {
    /// The peer's end of the socket is closed.
    died: AtomicBool,
    /// The channel has noticed that.
    noticed: AtomicBool,
}

#[derive(Debug)]
pub(crate) struct PeerWatch {
    state: Arc<PeerState>,
    socket: Arc<OwnedFd>,
    /// An eventfd that becomes readable when another thread of this process rings. The peer never gets it, because it
    /// could fill it.
    alarm: Arc<OwnedFd>,
    /// An epoll instance that is readable if the socket or the eventfd is.
    both: OwnedFd,
    end: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl PeerWatch {
    /// Watches the peer at the other end of `socket`. When the peer is gone, `own` wakes the local thread.
    pub(crate) fn watch(socket: OwnedFd, own: Alarm) -> std::io::Result<Self> {
        let end = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let alarm = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let both = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for fd in [&socket, &alarm] {
            let flags = epoll::EventFlags::IN | epoll::EventFlags::RDHUP;
            epoll::add(&both, fd, epoll::EventData::new_u64(0), flags)?;
        }
        let state = Arc::new(PeerState {
            died: AtomicBool::new(false),
            noticed: AtomicBool::new(false),
        });
        let (socket, end, alarm) = (Arc::new(socket), Arc::new(end), Arc::new(alarm));
        let (life, told, seen) = (socket.clone(), end.clone(), state.clone());
        let alarmed = own.with_eventfd(alarm.clone());
        let thread = std::thread::Builder::new()
            .name("shmq-peer".to_owned())
            .stack_size(STACK)
            .spawn(move || {
                if wait_for_hangup(life.as_fd(), told.as_fd()) {
                    // Pairs with the Acquire in `died`.
                    seen.died.store(true, Ordering::Release);
                    wake(&seen, told.as_fd(), &alarmed);
                }
            })?;
        Ok(Self {
            state,
            socket,
            alarm,
            both,
            end,
            thread: Some(thread),
        })
    }

    #[inline]
    pub(crate) fn died(&self) -> bool {
        // Pairs with the Release in the thread. The kernel closed the peer's socket after the peer's last write, so a
        // thread that sees this flag also sees those writes.
        self.state.died.load(Ordering::Acquire)
    }

    /// Records that the channel knows about its end. The watching thread stops waking, and data or the end of the
    /// socket no longer make the descriptor readable.
    pub(crate) fn set_noticed(&self) {
        if !self.state.noticed.swap(true, Ordering::Relaxed) {
            let taken_out = epoll::delete(&self.both, &*self.socket);
            debug_assert!(taken_out.is_ok(), "the socket was added in `watch`");
        }
    }

    /// Makes the peer's end of the socket readable. Never blocks: if the socket has no room, the peer's end is readable
    /// already.
    pub(crate) fn wake_peer(&self) {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        // A full socket needs no byte (see above). If the socket is closed, the peer is gone, which the thread detects.
        let _sent = rustix::net::send(&*self.socket, &[0], flags);
    }

    pub(crate) fn alarm(&self) -> Arc<OwnedFd> {
        self.alarm.clone()
    }

    /// Reads everything that made the descriptor readable.
    pub(crate) fn drain(&self) {
        // The read fails only if there is nothing to read, which is fine.
        let _read = rustix::io::read(&*self.alarm, &mut [0; 8]);
        for _ in 0..WAKES_READ {
            let mut byte = [0];
            let read = rustix::net::recv(&*self.socket, &mut byte, RecvFlags::DONTWAIT);
            if !matches!(read, Ok((1.., _))) {
                return;
            }
        }
    }

    /// Returns the descriptor that is readable if the peer or another local thread rings, or if the peer is gone.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.both.as_fd()
    }
}

impl Drop for PeerWatch {
    fn drop(&mut self) {
        let told = rustix::io::write(&*self.end, &1_u64.to_ne_bytes());
        debug_assert!(told.is_ok(), "cannot write to the eventfd");
        if let Some(thread) = self.thread.take() {
            let joined = thread.join();
            debug_assert!(joined.is_ok(), "the thread that watches the peer panicked");
        }
    }
}

/// Waits until the peer's end of the socket is closed. Returns false if `end` asks the thread to stop.
fn wait_for_hangup(socket: BorrowedFd<'_>, end: BorrowedFd<'_>) -> bool {
    loop {
        let mut fds = [
            PollFd::from_borrowed_fd(socket, PollFlags::RDHUP),
            PollFd::from_borrowed_fd(end, PollFlags::IN),
        ];
        // Signals interrupt the call. Other errors mean that one of the local descriptors is invalid.
        let polled = rustix::event::poll(&mut fds, None);
        if !fds[1].revents().is_empty() {
            return false;
        }
        let gone = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL;
        if polled.is_ok() && fds[0].revents().intersects(gone) {
            return true;
        }
    }
}

/// Wakes the sleeping thread again and again until it acknowledges. One wake-up may not suffice: another process that
/// holds the memory of the dead peer can undo it, even repeatedly. A thread that waits for edges, as tokio does, may
/// also have consumed the edge of the socket before `died` was set.
fn wake(state: &PeerState, end: BorrowedFd<'_>, alarm: &Alarm) {
    let mut pause = RETRY;
    while !state.noticed.load(Ordering::Relaxed) {
        alarm.ring_again();
        let mut fds = [PollFd::from_borrowed_fd(end, PollFlags::IN)];
        let timeout = rustix::event::Timespec::try_from(pause).ok();
        let polled = rustix::event::poll(&mut fds, timeout.as_ref());
        if polled.is_ok() && !fds[0].revents().is_empty() {
            return;
        }
        pause = (2 * pause).min(RETRY_MAX);
    }
}
