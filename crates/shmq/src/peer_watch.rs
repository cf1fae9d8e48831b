//! Notices that the peer is gone, however it went.
//!
//! The socket that the channel was set up by stays open as long as the peer lives, and the kernel closes it where a
//! process is killed. A thread waits for that, without using the processor, and then wakes whoever sleeps, on the doorbell
//! or on the descriptor.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, epoll};
use rustix::net::{RecvFlags, SendFlags};

use crate::alarm::Alarm;

/// What is read from the socket in one go: more wake-ups than this are there only if the peer floods, and the next
/// wait returns at once then.
const WAKES_READ: usize = 16;

/// The thread's stack: it calls the kernel, nothing else.
const STACK: usize = 64 * 1024;

/// The first pause between attempts to wake one who sleeps, and the longest.
const RETRY: Duration = Duration::from_millis(1);
const RETRY_MAX: Duration = Duration::from_millis(100);

#[derive(Debug)]
struct PeerState {
    /// The peer's end of the socket is closed.
    died: AtomicBool,
    /// The channel has seen that.
    noticed: AtomicBool,
}

#[derive(Debug)]
pub(crate) struct PeerWatch {
    news: Arc<PeerState>,
    socket: Arc<OwnedFd>,
    /// Readable where another thread of ours rings. The peer never has it: it could fill it.
    alarm: Arc<OwnedFd>,
    /// Readable where one of the two is.
    both: OwnedFd,
    end: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl PeerWatch {
    /// Watches the peer at the other end of `socket`; who is to hear of its end sleeps where `own` wakes it.
    pub(crate) fn watch(socket: OwnedFd, own: Alarm) -> std::io::Result<Self> {
        let end = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let alarm = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let both = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for fd in [&socket, &alarm] {
            let flags = epoll::EventFlags::IN | epoll::EventFlags::RDHUP;
            epoll::add(&both, fd, epoll::EventData::new_u64(0), flags)?;
        }
        let news = Arc::new(PeerState {
            died: AtomicBool::new(false),
            noticed: AtomicBool::new(false),
        });
        let (socket, end, alarm) = (Arc::new(socket), Arc::new(end), Arc::new(alarm));
        let (life, told, seen) = (socket.clone(), end.clone(), news.clone());
        let alarmed = own.with_eventfd(alarm.clone());
        let thread = std::thread::Builder::new()
            .name("shmq-peer".to_owned())
            .stack_size(STACK)
            .spawn(move || {
                if until_hangup(life.as_fd(), told.as_fd()) {
                    // Pairs with the Acquire in `died`.
                    seen.died.store(true, Ordering::Release);
                    wake(&seen, told.as_fd(), &alarmed);
                }
            })?;
        Ok(Self {
            news,
            socket,
            alarm,
            both,
            end,
            thread: Some(thread),
        })
    }

    #[inline]
    pub(crate) fn died(&self) -> bool {
        // Pairs with the Release in the thread; what the peer wrote before is seen by whoever sees this, since the
        // kernel closed its socket after that.
        self.news.died.load(Ordering::Acquire)
    }

    /// The channel is over, and knows; nobody needs to be woken any more, and what is to be read from the socket, be it its
    /// end, wakes nobody.
    pub(crate) fn set_noticed(&self) {
        if !self.news.noticed.swap(true, Ordering::Relaxed) {
            let taken_out = epoll::delete(&self.both, &*self.socket);
            debug_assert!(taken_out.is_ok(), "it was put in when both began");
        }
    }

    /// Makes the peer's end of the socket readable. Never waits: where there is no room, it is readable already.
    pub(crate) fn wake_peer(&self) {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        // Full: see above. Closed: the peer is gone, which the thread notices.
        let _sent = rustix::net::send(&*self.socket, &[0], flags);
    }

    pub(crate) fn alarm(&self) -> Arc<OwnedFd> {
        self.alarm.clone()
    }

    /// Takes what made it readable.
    pub(crate) fn drain(&self) {
        // Nothing to read is fine, and it is never anything else.
        let _read = rustix::io::read(&*self.alarm, &mut [0; 8]);
        for _ in 0..WAKES_READ {
            let mut byte = [0];
            let read = rustix::net::recv(&*self.socket, &mut byte, RecvFlags::DONTWAIT);
            if !matches!(read, Ok((1.., _))) {
                return;
            }
        }
    }

    /// Readable where the peer or another thread of ours rings, or the peer is gone.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.both.as_fd()
    }
}

impl Drop for PeerWatch {
    fn drop(&mut self) {
        let told = rustix::io::write(&*self.end, &1_u64.to_ne_bytes());
        debug_assert!(told.is_ok(), "an eventfd of ours has room");
        if let Some(thread) = self.thread.take() {
            let joined = thread.join();
            debug_assert!(joined.is_ok(), "it does not panic");
        }
    }
}

/// Waits until the peer's end is closed; false where it has been told to end.
fn until_hangup(socket: BorrowedFd<'_>, end: BorrowedFd<'_>) -> bool {
    loop {
        let mut fds = [
            PollFd::from_borrowed_fd(socket, PollFlags::RDHUP),
            PollFd::from_borrowed_fd(end, PollFlags::IN),
        ];
        // Signals interrupt it; other errors say that one of our own descriptors is none.
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

/// Wakes who sleeps until they say so: whoever has the memory of a dead peer may still write to it, and undo one wake-up or
/// ten. And who waits for changes of the descriptor, as tokio does, may have seen that of the socket before we said why.
fn wake(news: &PeerState, end: BorrowedFd<'_>, alarm: &Alarm) {
    let mut pause = RETRY;
    while !news.noticed.load(Ordering::Relaxed) {
        alarm.insist();
        let mut fds = [PollFd::from_borrowed_fd(end, PollFlags::IN)];
        let timeout = rustix::event::Timespec::try_from(pause).ok();
        let polled = rustix::event::poll(&mut fds, timeout.as_ref());
        if polled.is_ok() && !fds[0].revents().is_empty() {
            return;
        }
        pause = (2 * pause).min(RETRY_MAX);
    }
}
