//! Setup of a region that two processes share. The memory is sent over a socket, and any process that holds its
//! descriptor may use it.
//!
//! ```text
//!  client                                      server
//!    "quic-ipc", version, generation, memory ──►
//!                   ◄── "quic-ipc", version, generation
//! ```
//!
//! The socket (`SOCK_SEQPACKET`, connected) stays with the channel: when the peer dies, the kernel closes its end.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use quictun_shmq::{ABI_VERSION, Channel, RegionError};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};
use thiserror::Error;

const MAGIC: &[u8; 8] = b"quic-ipc";

/// Length of a message in bytes: magic, version, and the region's generation.
const MESSAGE: usize = 8 + 8 + 8;

/// Number of descriptors to receive: one more than allowed, to detect a surplus. The kernel drops any others.
const DESCRIPTORS: usize = 2;

/// An error that prevents a channel from being set up.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum HandshakeError {
    /// A system call on the socket failed.
    #[error("the socket to the peer failed")]
    Socket(#[from] std::io::Error),
    /// The peer did not send its message in time.
    #[error("the peer did not answer within {0:?}: does it run?")]
    Timeout(Duration),
    /// The peer closed the socket.
    #[error("the peer closed the socket before the channel was set up")]
    Closed,
    /// The peer sent something other than a message of this version.
    #[error(
        "the peer does not speak this protocol in version {ABI_VERSION}: use the same release on both sides"
    )]
    Protocol,
    /// The client sent other than one descriptor, or the server sent any.
    #[error("the peer sent a wrong number of descriptors: {0}")]
    Descriptors(usize),
    /// The shared memory cannot be created or used.
    #[error("cannot use the shared memory")]
    Region(#[from] RegionError),
}

/// Creates a pair of connected sockets, one for each process.
pub fn sockets() -> std::io::Result<(OwnedFd, OwnedFd)> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    Ok(rustix::net::socketpair(
        family,
        kind,
        SocketFlags::CLOEXEC,
        None,
    )?)
}

/// Creates a region with arenas of `arena` bytes and offers it to the process at the other end of `socket`. Blocks
/// until that process answers, for at most `timeout`.
pub fn connect(
    socket: OwnedFd,
    arena: u32,
    generation: u64,
    timeout: Duration,
) -> Result<Channel, HandshakeError> {
    let mut channel = Channel::create(arena, generation)?;
    let message = message(generation);
    let descriptors = [channel.memory()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    rustix::net::sendmsg(&socket, &[IoSlice::new(&message)], &mut ancillary, flags).map_err(io)?;
    let (answer, descriptors) = receive(&socket, timeout)?;
    if !descriptors.is_empty() {
        return Err(HandshakeError::Descriptors(descriptors.len()));
    }
    if answer != message {
        return Err(HandshakeError::Protocol);
    }
    channel.watch(socket)?;
    Ok(channel)
}

/// Joins the region that the process at the other end of `socket` offers. Blocks until the offer arrives, for at most
/// `timeout`.
pub fn accept(socket: OwnedFd, timeout: Duration) -> Result<Channel, HandshakeError> {
    let (offer, mut descriptors) = receive(&socket, timeout)?;
    let count = descriptors.len();
    let memory = descriptors.pop().filter(|_| count == 1);
    let memory = memory.ok_or(HandshakeError::Descriptors(count))?;
    let mut channel = Channel::open(memory)?;
    if offer != message(channel.generation()) {
        return Err(HandshakeError::Protocol);
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    rustix::net::send(&socket, &offer, flags).map_err(io)?;
    channel.watch(socket)?;
    Ok(channel)
}

fn message(generation: u64) -> [u8; MESSAGE] {
    let mut bytes = [0; MESSAGE];
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..16].copy_from_slice(&u64::from(ABI_VERSION).to_le_bytes());
    bytes[16..].copy_from_slice(&generation.to_le_bytes());
    bytes
}

fn receive(
    socket: &OwnedFd,
    timeout: Duration,
) -> Result<([u8; MESSAGE], Vec<OwnedFd>), HandshakeError> {
    let deadline = Instant::now() + timeout;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(HandshakeError::Timeout(timeout));
        }
        let mut fds = [PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN)];
        let timeout = Timespec::try_from(left).ok();
        match rustix::event::poll(&mut fds, timeout.as_ref()) {
            Ok(0) | Err(Errno::INTR) => continue,
            Ok(_) => {}
            Err(error) => return Err(io(error)),
        }
        // One byte more than allowed, to detect a message that is too long.
        let mut bytes = [0; MESSAGE + 1];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let received = rustix::net::recvmsg(
            socket,
            &mut [IoSliceMut::new(&mut bytes)],
            &mut ancillary,
            flags,
        );
        let received = match received {
            Ok(received) => received,
            Err(Errno::AGAIN | Errno::INTR) => continue,
            Err(error) => return Err(io(error)),
        };
        let descriptors: Vec<OwnedFd> = ancillary
            .drain()
            .filter_map(|message| match message {
                RecvAncillaryMessage::ScmRights(fds) => Some(fds),
                _ => None,
            })
            .flatten()
            .collect();
        if received.bytes == 0 {
            return Err(HandshakeError::Closed);
        }
        let (message, rest) = bytes.split_first_chunk().ok_or(HandshakeError::Protocol)?;
        if received.bytes != MESSAGE || rest != [0] || received.flags.contains(ReturnFlags::TRUNC) {
            return Err(HandshakeError::Protocol);
        }
        return Ok((*message, descriptors));
    }
}

fn io(error: Errno) -> HandshakeError {
    HandshakeError::Socket(error.into())
}
