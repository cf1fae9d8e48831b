//! Messages with descriptors between two processes, over a Unix socket that keeps the bounds of messages.
//!
//! ```text
//! server: PacketListener::bind ─► accept ─┬─► PacketStream: send, receive
//! client: PacketStream::connect ──────────┘
//! ```

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
    UCred, recvmsg, sendmsg, sockopt,
};

use crate::uninterrupted::poll_until;

/// Maximum number of descriptors in one message (`SCM_MAX_FD`).
pub const PACKET_FDS_MAX: usize = 253;

/// Maximum length of a message, bytes.
pub const PACKET_MAX: usize = 16 * 1024;

/// Maximum number of connections that wait to be accepted.
const BACKLOG: i32 = 4;

/// The user and the process at the other end, as the kernel knows them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketPeer {
    /// The process, at the time of the connection.
    pub process: u32,
    /// The user of that process.
    pub user: u32,
}

/// A socket at a path, to which other processes connect.
#[derive(Debug)]
pub struct PacketListener(OwnedFd);

/// One end of a connection.
#[derive(Debug)]
pub struct PacketStream(OwnedFd);

/// A message that has arrived.
#[derive(Debug)]
pub struct FdPacket {
    /// The bytes of the message.
    pub bytes: Vec<u8>,
    /// The descriptors of the message, each close-on-exec.
    pub fds: Vec<OwnedFd>,
    /// The process that has sent the message, for an end made by [`PacketStream::connect`]. The process is 0 if it has no
    /// number in this process's namespace.
    pub sender: Option<PacketPeer>,
}

impl PacketPeer {
    fn of(credentials: UCred) -> Self {
        Self {
            process: credentials.pid.as_raw_nonzero().get().cast_unsigned(),
            user: credentials.uid.as_raw(),
        }
    }
}

impl PacketListener {
    /// Binds a socket at a path at which there is no file. Only the process's own user may connect.
    ///
    /// # Errors
    ///
    /// Returns the system's error.
    pub fn bind(path: &Path) -> io::Result<Self> {
        let socket = open(SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?;
        // Linux creates the file with the mode of the socket.
        rustix::fs::fchmod(&socket, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR)?;
        rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
        rustix::net::listen(&socket, BACKLOG)?;
        Ok(Self(socket))
    }

    /// Takes a listener that another process has passed on.
    ///
    /// # Errors
    ///
    /// Returns [`io::ErrorKind::InvalidData`] if the descriptor is something else.
    pub fn from_passed(fd: OwnedFd) -> io::Result<Self> {
        let kind = (
            sockopt::socket_domain(&fd)?,
            sockopt::socket_type(&fd)?,
            sockopt::socket_acceptconn(&fd)?,
        );
        if kind != (AddressFamily::UNIX, SocketType::SEQPACKET, true) {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok(Self(fd))
    }

    /// Takes the next connection. If there is none, the operation would block.
    ///
    /// # Errors
    ///
    /// Returns the system's error.
    pub fn accept(&self) -> io::Result<PacketStream> {
        let stream = rustix::net::accept_with(&self.0, SocketFlags::CLOEXEC)?;
        Ok(PacketStream(stream))
    }
}

impl AsFd for PacketListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsFd for PacketStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl PacketStream {
    /// Connects to a listener.
    ///
    /// # Errors
    ///
    /// Returns the system's error: `NotFound` without a file, `ConnectionRefused` if no process listens any more,
    /// `WouldBlock` if too many connections wait to be accepted.
    pub fn connect(path: &Path) -> io::Result<Self> {
        // A listener whose process has stopped does not make this wait.
        let socket = open(SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?;
        // The credentials of the listener are those of the process that has bound it, which may have passed it on.
        sockopt::set_socket_passcred(&socket, true)?;
        rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
        Ok(Self(socket))
    }

    /// Returns the user and the process that have connected to a listener.
    ///
    /// # Errors
    ///
    /// Returns the system's error.
    pub fn peer(&self) -> io::Result<PacketPeer> {
        Ok(PacketPeer::of(sockopt::socket_peercred(&self.0)?))
    }

    /// Sends a message of at most [`PACKET_MAX`] bytes with at most [`PACKET_FDS_MAX`] descriptors, and waits at most
    /// until `until` for room.
    ///
    /// # Errors
    ///
    /// Returns the system's error, or `TimedOut`.
    pub fn send(&self, bytes: &[u8], fds: &[BorrowedFd<'_>], until: Instant) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(PACKET_FDS_MAX))];
        loop {
            let mut control = SendAncillaryBuffer::new(&mut space);
            if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
                return Err(io::ErrorKind::InvalidInput.into());
            }
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            match sendmsg(&self.0, &[IoSlice::new(bytes)], &mut control, flags) {
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => self.wait(PollFlags::OUT, until)?,
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Receives the next message, and waits at most until `until` for it.
    ///
    /// # Errors
    ///
    /// Returns `UnexpectedEof` if the other end has gone, `InvalidData` if the message is too long, `TimedOut`, or the
    /// system's error.
    pub fn receive(&self, until: Instant) -> io::Result<FdPacket> {
        self.wait(PollFlags::IN, until)?;
        let mut bytes = vec![0; PACKET_MAX];
        let mut space = [MaybeUninit::uninit();
            rustix::cmsg_space!(ScmRights(PACKET_FDS_MAX), ScmCredentials(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let got = retry_on_intr(|| {
            let into = &mut [IoSliceMut::new(&mut bytes)];
            recvmsg(&self.0, into, &mut control, RecvFlags::CMSG_CLOEXEC)
        })?;
        let (mut fds, mut sender) = (Vec::new(), None);
        for message in control.drain() {
            match message {
                RecvAncillaryMessage::ScmRights(some) => fds.extend(some),
                RecvAncillaryMessage::ScmCredentials(of) => sender = Some(PacketPeer::of(of)),
                _ => {}
            }
        }
        if got
            .flags
            .intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC)
        {
            return Err(io::ErrorKind::InvalidData.into());
        }
        if got.bytes == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        bytes.truncate(got.bytes);
        Ok(FdPacket { bytes, fds, sender })
    }

    fn wait(&self, what: PollFlags, until: Instant) -> io::Result<()> {
        let mut ready = [PollFd::new(&self.0, what)];
        if poll_until(&mut ready, until)? {
            return Ok(());
        }
        Err(io::ErrorKind::TimedOut.into())
    }
}

fn open(flags: SocketFlags) -> io::Result<OwnedFd> {
    let kind = SocketType::SEQPACKET;
    Ok(rustix::net::socket_with(
        AddressFamily::UNIX,
        kind,
        flags,
        None,
    )?)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::time::Duration;

    use super::*;

    const SOON: Duration = Duration::from_secs(10);

    fn ends(directory: &Path) -> (PacketStream, PacketStream) {
        let path = directory.join("s");
        let listener = PacketListener::bind(&path).expect("a socket");
        let near = PacketStream::connect(&path).expect("it listens");
        (near, listener.accept().expect("a connection"))
    }

    #[test]
    fn messages_keep_their_bounds_and_their_descriptors() {
        let directory = tempfile::tempdir().expect("a directory");
        let (near, far) = ends(directory.path());
        let until = Instant::now() + SOON;
        let (reader, writer) = rustix::pipe::pipe().expect("a pipe");
        let fds = vec![writer.as_fd(); PACKET_FDS_MAX];
        near.send(b"first", &[], until).expect("room");
        near.send(b"second", &fds, until).expect("room");
        drop(writer);
        let first = far.receive(until).expect("a message");
        assert_eq!((&first.bytes[..], first.fds.len()), (&b"first"[..], 0));
        let second = far.receive(until).expect("a message");
        assert_eq!(&second.bytes[..], b"second");
        assert_eq!(second.fds.len(), PACKET_FDS_MAX);
        rustix::io::write(&second.fds[252], b"x").expect("the pipe");
        assert_eq!(rustix::io::read(&reader, &mut [0]).expect("a byte"), 1);
        drop(near);
        let gone = far.receive(until).expect_err("the other end has gone");
        assert_eq!(gone.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn a_peer_that_says_nothing_is_not_waited_for() {
        let directory = tempfile::tempdir().expect("a directory");
        let (near, far) = ends(directory.path());
        let error = far.receive(Instant::now()).expect_err("nothing was sent");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        let full = std::iter::repeat_with(|| near.send(&[7; PACKET_MAX], &[], Instant::now()));
        let full = full.take(10_000).find_map(Result::err).expect("a bound");
        assert_eq!(full.kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn the_socket_is_for_its_user_alone_and_names_its_peer() {
        let directory = tempfile::tempdir().expect("a directory");
        let (near, far) = ends(directory.path());
        let file = std::fs::metadata(directory.path().join("s")).expect("a file");
        assert_eq!(file.permissions().mode() & 0o777, 0o600);
        let own = PacketPeer {
            process: std::process::id(),
            user: rustix::process::getuid().as_raw(),
        };
        assert_eq!(far.peer().expect("connected"), own);
        let until = Instant::now() + SOON;
        far.send(b"x", &[], until).expect("room");
        let packet = near.receive(until).expect("a message");
        assert_eq!(packet.sender, Some(own));
        let other = rustix::pipe::pipe().expect("a pipe").0;
        assert!(PacketListener::from_passed(other).is_err());
    }
}
