//! This test program once more, as the other process of a channel.

use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, Stdio};

use quictun_shmq::Channel;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::{AddressFamily, SocketFlags, SocketType};

/// Names the test that a new process of this program is the other process of.
const PEER_OF: &str = "QUICTUN_SHMQ_PEER_OF";

/// Arena of each side.
pub(crate) const ARENA: u32 = 1 << 20;

pub(crate) fn sockets() -> (OwnedFd, OwnedFd) {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    rustix::net::socketpair(family, kind, SocketFlags::CLOEXEC, None).expect("a pair of sockets")
}

/// Both ends in this process.
pub(crate) fn both(arena: u32) -> (Channel, Channel) {
    let one = Channel::create(arena, 1).expect("a region");
    let memory = one.memory().try_clone_to_owned().expect("a descriptor");
    (one, Channel::open(memory).expect("the same region"))
}

/// Both ends in this process, each watching the other.
pub(crate) fn both_watched(arena: u32) -> (Channel, Channel) {
    let (mut one, mut other) = both(arena);
    let (here, there) = sockets();
    one.watch(here).expect("a thread");
    other.watch(there).expect("a thread");
    (one, other)
}

/// Whether the channel's descriptor is, at once or some time.
pub(crate) fn is_readable(channel: &Channel, wait: bool) -> bool {
    let fd = channel.descriptor().expect("it is watched");
    let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    let none = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    rustix::event::poll(&mut fds, (!wait).then_some(&none)).expect("poll") > 0
}

/// Starts this program once more with `test` alone, which is given the other end of the channel ([`given`]).
pub(crate) fn start(test: &str) -> (Channel, Child) {
    let mut channel = Channel::create(ARENA, 1).expect("a region");
    let (here, there) = sockets();
    let memory = channel.memory().try_clone_to_owned().expect("a descriptor");
    let child = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(PEER_OF, test)
        .stdin(Stdio::from(memory))
        .stdout(Stdio::null())
        // The test harness writes to it only when something went wrong.
        .stderr(Stdio::from(there))
        .spawn()
        .expect("this program once more");
    channel.watch(here).expect("a thread");
    (channel, child)
}

/// The channel that [`start`] gave this process, where it was started as the other process of `test`: a test that has one
/// asks for it first.
pub(crate) fn given(test: &str) -> Option<Channel> {
    if std::env::var(PEER_OF).as_deref() != Ok(test) {
        return None;
    }
    let own = |fd: std::os::fd::BorrowedFd<'_>| fd.try_clone_to_owned().expect("a descriptor");
    let mut channel = Channel::open(own(std::io::stdin().as_fd())).expect("a region");
    channel
        .watch(own(std::io::stderr().as_fd()))
        .expect("a thread");
    Some(channel)
}

/// What a fork would share: pseudo-random numbers from a seed.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}
