//! The socket between a process and its keeper, and the keeper's side of the protocol on it.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use quictun_sys::confine::{self, SyscallSet};
use quictun_sys::{Companion, start_companion};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use zeroize::Zeroizing;

use super::ListenerFns;
use super::disk;
use super::now_s;
use super::outcome;
use super::record::{FileRecord, number};
use super::source::record_reads;
use crate::enrolment::{Directory, Enrolment, JoinAttempt, JoinRefusal};

/// Time limit for an answer. It suffices for about 10 000 small files on a busy machine.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Time limit for an answer that waits until data is on the disk. A disk that stalls for less must not end the server.
const DISK_TIMEOUT: Duration = Duration::from_mins(2);

/// Maximum number of bytes of one answer. A configuration of 10 000 clients, each with a secret of the longest kind,
/// stays below it.
const ANSWER_MAX: usize = 64 << 20;

/// Maximum number of bytes of the stored usage: enough for 100 000 clients.
const USAGE_MAX: u32 = 16 << 20;

/// A request is one of these bytes, and the number of a file in two bytes.
const READ: u8 = 1;
const APPEND: u8 = 2;
const LOAD: u8 = 3;
/// ENROL carries the length of an attempt in place of the number, followed by the attempt.
const ENROL: u8 = 4;
/// LISTEN carries the length of an address in place of the number, followed by the address.
const LISTEN: u8 = 5;
/// USAGE carries the number 0, the length of the content in four bytes, and the content.
const USAGE: u8 = 6;
/// REMOVE has the form of LISTEN.
const REMOVE: u8 = 7;

/// An answer is one of these bytes, then four bytes: the length of the content that follows, or the number of the
/// error.
const DONE: u8 = 0;
const FAILED: u8 = 1;

/// The files and functions that the keeper serves, see [`start`](super::start).
pub(super) struct KeeperResources {
    pub(super) reads: Vec<(PathBuf, u64)>,
    pub(super) appends: Vec<PathBuf>,
    pub(super) load: Option<Box<dyn Fn()>>,
    pub(super) clients: Option<Directory>,
    pub(super) listen: Option<ListenerFns>,
}

#[derive(Debug)]
pub(super) struct KeeperLink {
    socket: Mutex<UnixStream>,
    companion: Companion,
    reads: Vec<PathBuf>,
    appends: Vec<PathBuf>,
}

impl KeeperLink {
    pub(super) fn start(kept: KeeperResources) -> io::Result<Self> {
        let reads = kept.reads.iter().map(|(path, _)| path.clone()).collect();
        let appends = kept.appends.clone();
        let (companion, socket) = start_companion(c"quictun-keeper", move |socket| {
            // The main process reports that a kernel cannot filter system calls.
            if confine::kernel_support().seccomp {
                confine::give_up_calls(SyscallSet::Ordinary).map_err(io::Error::other)?;
            }
            serve(socket, &kept)
        })?;
        socket.set_read_timeout(Some(ANSWER_TIMEOUT))?;
        socket.set_write_timeout(Some(ANSWER_TIMEOUT))?;
        Ok(Self {
            socket: Mutex::new(socket),
            companion,
            reads,
            appends,
        })
    }

    pub(super) fn has_ended(&self) -> bool {
        self.companion.has_ended()
    }

    /// Returns the content of the file, or `None` if the keeper does not know this path.
    pub(super) fn read(&self, path: &Path) -> Option<io::Result<Zeroizing<Vec<u8>>>> {
        let index = self.reads.iter().position(|kept| kept == path)?;
        Some(self.ask(READ, index).map(|(content, _)| content))
    }

    /// Returns the file, open for appending, or `None` if the keeper does not know this path.
    pub(super) fn append_to(&self, path: &Path) -> Option<io::Result<File>> {
        let index = self.appends.iter().position(|kept| kept == path)?;
        Some(
            self.ask(APPEND, index)
                .and_then(|(_, file)| Ok(file.ok_or(io::ErrorKind::InvalidData)?.into())),
        )
    }

    pub(super) fn load(&self) -> io::Result<FileRecord> {
        let (bytes, _) = self.ask(LOAD, 0)?;
        FileRecord::decode(&bytes)
    }

    pub(super) fn enrol(&self, attempt: &JoinAttempt) -> Result<Enrolment, JoinRefusal> {
        let attempt = attempt.encode();
        let answer = self.ask_with(ENROL, attempt.len(), &attempt);
        let (answer, _) = answer.map_err(JoinRefusal::Store)?;
        outcome::decode(&answer)
    }

    pub(super) fn listen(&self, address: &str) -> io::Result<OwnedFd> {
        let (_, socket) = self.ask_with(LISTEN, address.len(), address.as_bytes())?;
        socket.ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    pub(super) fn remove_listener(&self, address: &str) -> io::Result<()> {
        self.ask_with(REMOVE, address.len(), address.as_bytes())
            .map(drop)
    }

    pub(super) fn store_usage(&self, content: &[u8]) -> io::Result<()> {
        let length = u32::try_from(content.len()).unwrap_or(u32::MAX);
        if length > USAGE_MAX {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let more = [&length.to_le_bytes(), content].concat();
        self.ask_with(USAGE, 0, &more).map(drop)
    }

    fn ask(&self, request: u8, index: usize) -> io::Result<(Zeroizing<Vec<u8>>, Option<OwnedFd>)> {
        self.ask_with(request, index, &[])
    }

    fn ask_with(
        &self,
        request: u8,
        number: usize,
        more: &[u8],
    ) -> io::Result<(Zeroizing<Vec<u8>>, Option<OwnedFd>)> {
        let number = u16::try_from(number).map_err(|_| io::ErrorKind::InvalidInput)?;
        let [low, high] = number.to_le_bytes();
        let mut socket = self.socket();
        let answer = socket
            .set_read_timeout(Some(answer_timeout(request)))
            .and_then(|()| socket.write_all(&[&[request, low, high], more].concat()))
            .and_then(|()| receive(&mut socket));
        match answer {
            Ok(Reply::Done(content, file)) => Ok((content, file)),
            Ok(Reply::Failed(number)) => Err(io::Error::from_raw_os_error(number)),
            Err(error) => {
                // A late answer must not be taken for the answer to the next request.
                socket.shutdown(std::net::Shutdown::Both).ok();
                let text = format!(
                    "the keeper process, quictun-keeper, does not answer ({error}): restart the service"
                );
                Err(io::Error::new(io::ErrorKind::BrokenPipe, text))
            }
        }
    }

    /// Locks the socket. It stays usable after a panic that held the lock, because each request reads its own answer.
    fn socket(&self) -> MutexGuard<'_, UnixStream> {
        self.socket.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the time limit for the answer to a request.
fn answer_timeout(request: u8) -> Duration {
    match request {
        // The keeper answers after fsync.
        ENROL | USAGE => DISK_TIMEOUT,
        _ => ANSWER_TIMEOUT,
    }
}

enum Reply {
    Done(Zeroizing<Vec<u8>>, Option<OwnedFd>),
    Failed(i32),
}

fn receive(socket: &mut UnixStream) -> io::Result<Reply> {
    let mut head = [0; 5];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC;
    let got = recvmsg(
        socket.as_fd(),
        &mut [IoSliceMut::new(&mut head)],
        &mut control,
        flags,
    )?;
    let file = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(files) => files.last(),
        _ => None,
    });
    if got.bytes == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    socket.read_exact(&mut head[got.bytes..])?;
    let [status, number @ ..] = head;
    let number = u32::from_le_bytes(number);
    match status {
        DONE => {
            let length = usize::try_from(number).unwrap_or(usize::MAX);
            if length > ANSWER_MAX {
                return Err(io::ErrorKind::InvalidData.into());
            }
            let mut content = Zeroizing::new(vec![0; length]);
            socket.read_exact(&mut content)?;
            Ok(Reply::Done(content, file))
        }
        FAILED => Ok(Reply::Failed(number.cast_signed())),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// Runs the keeper: answers requests until the other end closes the socket or sends an invalid request.
fn serve(mut socket: UnixStream, kept: &KeeperResources) -> io::Result<()> {
    loop {
        let mut request = [0; 3];
        match socket.read_exact(&mut request) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            other => other?,
        }
        let [request, low, high] = request;
        let index = usize::from(u16::from_le_bytes([low, high]));
        match request {
            READ => {
                let (path, limit) = kept.reads.get(index).ok_or(io::ErrorKind::InvalidInput)?;
                answer(&mut socket, disk::read(path, *limit))?;
            }
            APPEND => {
                let path = kept.appends.get(index).ok_or(io::ErrorKind::InvalidInput)?;
                hand_over(&mut socket, disk::append(path))?;
            }
            LOAD => {
                let load = kept.load.as_deref().ok_or(io::ErrorKind::InvalidInput)?;
                answer(&mut socket, Ok(record_reads(load).encode()))?;
            }
            ENROL => {
                let mut attempt = vec![0; index];
                socket.read_exact(&mut attempt)?;
                let clients = kept.clients.as_ref().ok_or(io::ErrorKind::InvalidInput)?;
                let attempt = JoinAttempt::decode(&attempt).ok_or(io::ErrorKind::InvalidInput)?;
                let outcome = clients.enrol(&attempt, now_s());
                answer(&mut socket, outcome::encode(outcome))?;
            }
            LISTEN | REMOVE => {
                let mut address = vec![0; index];
                socket.read_exact(&mut address)?;
                let fns = kept.listen.as_ref().ok_or(io::ErrorKind::InvalidInput)?;
                let address =
                    String::from_utf8(address).map_err(|_| io::ErrorKind::InvalidInput)?;
                if request == LISTEN {
                    hand_over(&mut socket, (fns.bind)(&address))?;
                } else {
                    let removed = (fns.remove)(&address);
                    answer(&mut socket, removed.map(|()| Zeroizing::default()))?;
                }
            }
            USAGE => {
                let mut length = [0; 4];
                socket.read_exact(&mut length)?;
                let length = u32::from_le_bytes(length);
                if length > USAGE_MAX {
                    return Err(io::ErrorKind::InvalidInput.into());
                }
                let mut content = vec![0; usize::try_from(length).unwrap_or(0)];
                socket.read_exact(&mut content)?;
                let clients = kept.clients.as_ref().ok_or(io::ErrorKind::InvalidInput)?;
                let stored = clients.store_usage(&content);
                answer(&mut socket, stored.map(|()| Zeroizing::default()))?;
            }
            _ => return Err(io::ErrorKind::InvalidInput.into()),
        }
    }
}

fn answer(socket: &mut UnixStream, content: io::Result<Zeroizing<Vec<u8>>>) -> io::Result<()> {
    let too_large = || io::Error::from(rustix::io::Errno::FBIG);
    let content = content.and_then(|content| {
        let length = u32::try_from(content.len()).ok();
        let length = length.filter(|_| content.len() <= ANSWER_MAX);
        Ok((length.ok_or_else(too_large)?, content))
    });
    match content {
        Ok((length, content)) => {
            socket.write_all(&head(DONE, length))?;
            socket.write_all(&content)
        }
        Err(error) => socket.write_all(&head(FAILED, number(&error).cast_unsigned())),
    }
}

fn hand_over(socket: &mut UnixStream, file: io::Result<impl AsFd>) -> io::Result<()> {
    let file = match file {
        Ok(file) => file,
        Err(error) => return socket.write_all(&head(FAILED, number(&error).cast_unsigned())),
    };
    let files = [file.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&files));
    let head = head(DONE, 0);
    let sent = sendmsg(
        socket.as_fd(),
        &[IoSlice::new(&head)],
        &mut control,
        SendFlags::NOSIGNAL,
    )?;
    socket.write_all(&head[sent..])
}

fn head(status: u8, number: u32) -> [u8; 5] {
    let [a, b, c, d] = number.to_le_bytes();
    [status, a, b, c, d]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stall_of_the_disk_does_not_end_a_server_that_stores() {
        let stall = Duration::from_mins(1);
        for (request, may_stall) in [
            (READ, false),
            (APPEND, false),
            (LOAD, false),
            (ENROL, true),
            (LISTEN, false),
            (USAGE, true),
        ] {
            assert_eq!(answer_timeout(request) > stall, may_stall, "{request}");
        }
    }
}
