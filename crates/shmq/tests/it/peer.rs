//! The second process of a channel: this test program, started again.

use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, Stdio};

use quictun_shmq::Channel;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::{AddressFamily, SocketFlags, SocketType};

/// Environment variable with the name of the test whose second process this program runs.
const PEER_OF: &str = "QUICTUN_SHMQ_PEER_OF";

/// Length of each side's arena, in bytes.
pub(crate) const ARENA: u32 = 1 << 20;

pub(crate) fn sockets() -> (OwnedFd, OwnedFd) {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    rustix::net::socketpair(family, kind, SocketFlags::CLOEXEC, None).expect("a pair of sockets")
}

/// Opens both ends of a channel in this process.
pub(crate) fn both(arena: u32) -> (Channel, Channel) {
    let one = Channel::create(arena, 1).expect("open a region");
    let memory = one.memory().try_clone_to_owned().expect("a descriptor");
    (one, Channel::open(memory).expect("open the same region"))
}

/// Opens both ends of a channel in this process, each watching the other.
pub(crate) fn both_watched(arena: u32) -> (Channel, Channel) {
    let (mut one, mut other) = both(arena);
    let (here, there) = sockets();
    one.watch(here).expect("start the watching thread");
    other.watch(there).expect("start the watching thread");
    (one, other)
}

/// Returns whether the channel's descriptor is readable. With `wait`, waits until it is.
pub(crate) fn is_readable(channel: &Channel, wait: bool) -> bool {
    let fd = channel.descriptor().expect("the channel is watched");
    let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    let none = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    rustix::event::poll(&mut fds, (!wait).then_some(&none)).expect("poll the descriptor") > 0
}

/// Starts this program again with `test` alone and passes it the other end of the channel, which [`given`] returns
/// there.
pub(crate) fn start(test: &str) -> (Channel, Child) {
    let mut channel = Channel::create(ARENA, 1).expect("open a region");
    let (here, there) = sockets();
    let memory = channel.memory().try_clone_to_owned().expect("a descriptor");
    let child = Command::new(std::env::current_exe().expect("the path of this program"))
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(PEER_OF, test)
        .stdin(Stdio::from(memory))
        .stdout(Stdio::null())
        // The test harness writes to stderr only if something went wrong.
        .stderr(Stdio::from(there))
        .spawn()
        .expect("start this program again");
    channel.watch(here).expect("start the watching thread");
    (channel, child)
}

/// Returns the channel from [`start`] if this process was started as the second process of `test`. A test with two
/// processes calls this first.
pub(crate) fn given(test: &str) -> Option<Channel> {
    if std::env::var(PEER_OF).as_deref() != Ok(test) {
        return None;
    }
    let own = |fd: std::os::fd::BorrowedFd<'_>| fd.try_clone_to_owned().expect("a descriptor");
    let mut channel = Channel::open(own(std::io::stdin().as_fd())).expect("open a region");
    channel
        .watch(own(std::io::stderr().as_fd()))
        .expect("start the watching thread");
    Some(channel)
}

/// Pseudo-random numbers from a seed. Both processes can generate the same sequence.
pub(crate) struct TestRng(pub(crate) u64);

impl TestRng {
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
