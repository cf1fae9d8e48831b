//! The sockets between a process and its keeper, and the keeper's side of the protocol on them.
//!
//! Each [`RequestLane`] has a socket, and a thread in the keeper. The requests of a lane wait for one another, and never for
//! those of another lane. An answer has no time limit: it waits for a disk, as it would without a keeper. So no request
//! may be made on a thread that others wait for.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use quictun_sys::confine::{self, CapabilitySet, SyscallSet};
use quictun_sys::{Companion, poll_until, start_companion};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::retry_on_intr;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use tracing::{info, warn};
use zeroize::Zeroizing;

use super::disk;
use super::log_file;
use super::now_s;
use super::outcome;
use super::record::{FileRecord, number};
use super::source::record_reads;
use super::{LOG_MODE, ListenerFns, LoadFn, LoadPurpose};
use crate::enrolment::{Directory, Enrolment, JoinAttempt, JoinRefusal, StateFile};

/// Time after which the log reports that the keeper does not answer. Reading 10 000 small files takes less, also on a
/// busy machine.
const SLOW: Duration = Duration::from_secs(10);

/// The stack of a thread in the keeper, bytes: the threads read and write single files.
const STACK: usize = 256 << 10;

/// Maximum number of bytes of one answer. A configuration of 10 000 clients, each with a secret of the longest kind,
/// stays below it.
const ANSWER_MAX: usize = 64 << 20;

/// Maximum number of bytes that are stored: enough for the usage of 100 000 clients.
const STORE_MAX: u32 = 16 << 20;

/// A request is one of these bytes, and the number of a file in two bytes.
const READ: u8 = 1;
const APPEND: u8 = 2;
/// LOAD carries the number 1 if the configuration is to be put into force.
const LOAD: u8 = 3;
/// ENROL carries the length of an attempt in place of the number, followed by the attempt.
const ENROL: u8 = 4;
/// LISTEN carries the length of a text in place of the number, followed by the text: an address and, after a NUL, the
/// directory that links in its path must not leave, if there is one.
const LISTEN: u8 = 5;
/// STORE carries the number of a file in the state directory, the length of the content in four bytes, and the content.
const STORE: u8 = 6;
/// REMOVE has the form of LISTEN, without a directory.
const REMOVE: u8 = 7;

/// An answer is one of these bytes, then four bytes: the length of the content that follows, or the number of the
/// error.
const DONE: u8 = 0;
const FAILED: u8 = 1;

/// The capabilities of the keeper, if the process has them: to use files of any user, since root may run a server with
/// the files of another user, and to listen on ports below 1024.
const RIGHTS: CapabilitySet = CapabilitySet::DAC_OVERRIDE.union(CapabilitySet::NET_BIND_SERVICE);

/// The requests that wait for one another: those that may wait for the same disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequestLane {
    /// LOAD, LISTEN and REMOVE: the rules. The keeper's first thread answers.
    Rules,
    /// READ: files of tokens and users.
    Files,
    /// APPEND: log files that are opened again.
    Logs,
    /// ENROL and STORE: writes that wait until data is on the disk.
    Store,
}

const LANES: usize = 4;

/// The files that the keeper serves in every lane, see [`start`](super::start).
pub(super) struct KeptFiles {
    pub(super) reads: Vec<(PathBuf, u64)>,
    pub(super) appends: Vec<PathBuf>,
    pub(super) clients: Option<Directory>,
}

/// The functions that the keeper's first thread runs.
#[derive(Default)]
pub(super) struct RuleFns {
    pub(super) load: Option<LoadFn>,
    pub(super) listen: Option<ListenerFns>,
}

#[derive(Debug)]
pub(super) struct KeeperLink {
    lanes: [Mutex<UnixStream>; LANES],
    companion: Companion,
    reads: Vec<PathBuf>,
    appends: Vec<PathBuf>,
}

impl KeeperLink {
    pub(super) fn start(kept: KeptFiles, fns: RuleFns) -> io::Result<Self> {
        let reads = kept.reads.iter().map(|(path, _)| path.clone()).collect();
        let appends = kept.appends.clone();
        let (companion, sockets) = start_companion(c"quictun-keeper", move |sockets| {
            confine::give_up_rights_but(RIGHTS).map_err(io::Error::other)?;
            // The main process reports that a kernel cannot filter system calls.
            if confine::kernel_support().seccomp {
                confine::give_up_calls(SyscallSet::Ordinary).map_err(io::Error::other)?;
            }
            serve_lanes(sockets, kept, &fns)
        })?;
        Ok(Self {
            lanes: sockets.map(Mutex::new),
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
        Some(self.ask(READ, index, &[]).map(|(content, _)| content))
    }

    /// Returns the file, open for appending, or `None` if the keeper does not know this path.
    pub(super) fn append_to(&self, path: &Path) -> Option<io::Result<File>> {
        let index = self.appends.iter().position(|kept| kept == path)?;
        Some(
            self.ask(APPEND, index, &[])
                .and_then(|(_, file)| Ok(file.ok_or(io::ErrorKind::InvalidData)?.into())),
        )
    }

    pub(super) fn load(&self, purpose: LoadPurpose) -> io::Result<FileRecord> {
        let (bytes, _) = self.ask(LOAD, usize::from(purpose == LoadPurpose::Apply), &[])?;
        FileRecord::decode(&bytes)
    }

    pub(super) fn enrol(&self, attempt: &JoinAttempt) -> Result<Enrolment, JoinRefusal> {
        let attempt = attempt.encode();
        let answer = self.ask(ENROL, attempt.len(), &attempt);
        let (answer, _) = answer.map_err(JoinRefusal::Store)?;
        outcome::decode(&answer)
    }

    pub(super) fn listen(&self, address: &str, below: Option<&str>) -> io::Result<OwnedFd> {
        let below = below.map_or_else(String::new, |below| format!("\0{below}"));
        let address = format!("{address}{below}");
        let (_, socket) = self.ask(LISTEN, address.len(), address.as_bytes())?;
        socket.ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    pub(super) fn remove_listener(&self, address: &str) -> io::Result<()> {
        self.ask(REMOVE, address.len(), address.as_bytes())
            .map(drop)
    }

    pub(super) fn store(&self, file: StateFile, content: &[u8]) -> io::Result<()> {
        let number = StateFile::ALL.iter().position(|known| *known == file);
        let number = number.ok_or(io::ErrorKind::InvalidInput)?;
        let length = u32::try_from(content.len()).unwrap_or(u32::MAX);
        if length > STORE_MAX {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let more = Zeroizing::new([&length.to_le_bytes(), content].concat());
        self.ask(STORE, number, &more).map(drop)
    }

    fn ask(
        &self,
        request: u8,
        number: usize,
        more: &[u8],
    ) -> io::Result<(Zeroizing<Vec<u8>>, Option<OwnedFd>)> {
        let number = u16::try_from(number).map_err(|_| io::ErrorKind::InvalidInput)?;
        let [low, high] = number.to_le_bytes();
        let mut socket = self.socket(request);
        let answer = socket
            .write_all(&Zeroizing::new([&[request, low, high], more].concat()))
            .and_then(|()| receive(&mut socket, SLOW));
        match answer {
            Ok(Reply::Done(content, file)) => Ok((content, file)),
            Ok(Reply::Failed(number)) => Err(io::Error::from_raw_os_error(number)),
            Err(error) => {
                // The rest of a broken answer must not be taken for the answer to the next request.
                socket.shutdown(Shutdown::Both).ok();
                let text = format!(
                    "the keeper process, quictun-keeper, has ended ({error}): restart the service"
                );
                Err(io::Error::new(io::ErrorKind::BrokenPipe, text))
            }
        }
    }

    /// Locks the socket for a request. It stays usable after a panic that held the lock, because each request reads its
    /// own answer.
    fn socket(&self, request: u8) -> MutexGuard<'_, UnixStream> {
        let lane = &self.lanes[lane(request) as usize];
        lane.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn lane(request: u8) -> RequestLane {
    match request {
        READ => RequestLane::Files,
        APPEND => RequestLane::Logs,
        ENROL | STORE => RequestLane::Store,
        _ => RequestLane::Rules,
    }
}

enum Reply {
    Done(Zeroizing<Vec<u8>>, Option<OwnedFd>),
    Failed(i32),
}

/// Waits for an answer. The log reports it if the answer takes longer than `slow`.
fn await_answer(socket: &UnixStream, slow: Duration) -> io::Result<()> {
    let start = Instant::now();
    let mut answered = [PollFd::new(socket, PollFlags::IN)];
    if poll_until(&mut answered, start + slow)? {
        return Ok(());
    }
    let after_s = slow.as_secs();
    warn!(target: "quictun", after_s, "the process that opens files, quictun-keeper, does not answer: does a disk hang? Flows continue; what needs the file waits");
    retry_on_intr(|| poll(&mut answered, None))?;
    let took_s = start.elapsed().as_secs();
    info!(target: "quictun", took_s, "quictun-keeper answers again");
    Ok(())
}

fn receive(socket: &mut UnixStream, slow: Duration) -> io::Result<Reply> {
    await_answer(socket, slow)?;
    let mut head = [0; 5];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let got = retry_on_intr(|| {
        let into = &mut [IoSliceMut::new(&mut head)];
        recvmsg(socket.as_fd(), into, &mut control, RecvFlags::CMSG_CLOEXEC)
    })?;
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

/// Runs the keeper: answers requests until the other end closes a socket or sends an invalid request.
fn serve_lanes(
    [rules, others @ ..]: [UnixStream; LANES],
    kept: KeptFiles,
    fns: &RuleFns,
) -> io::Result<()> {
    /// Ends the first thread, and so the process, together with a thread that returns or panics.
    struct EndTogether(UnixStream);
    impl Drop for EndTogether {
        fn drop(&mut self) {
            self.0.shutdown(Shutdown::Both).ok();
        }
    }
    let kept = Arc::new(kept);
    for socket in others {
        let (kept, end) = (kept.clone(), EndTogether(rules.try_clone()?));
        let thread = std::thread::Builder::new().stack_size(STACK);
        let body = move || {
            let _end = end;
            serve(socket, &kept, &RuleFns::default()).is_ok()
        };
        thread.name("quictun-keeper".to_owned()).spawn(body)?;
    }
    serve(rules, &kept, fns)
}

/// Answers the requests of a lane.
fn serve(mut socket: UnixStream, kept: &KeptFiles, fns: &RuleFns) -> io::Result<()> {
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
                answer(&mut socket, disk::read_regular(path, *limit))?;
            }
            APPEND => {
                let path = kept.appends.get(index).ok_or(io::ErrorKind::InvalidInput)?;
                hand_over(&mut socket, log_file::append(path, LOG_MODE))?;
            }
            LOAD => {
                let load = fns.load.as_deref().ok_or(io::ErrorKind::InvalidInput)?;
                let purpose = match index {
                    0 => LoadPurpose::Preview,
                    _ => LoadPurpose::Apply,
                };
                let record = record_reads(&|| load(purpose));
                answer(&mut socket, Ok(record.encode()))?;
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
                let fns = fns.listen.as_ref().ok_or(io::ErrorKind::InvalidInput)?;
                let address =
                    String::from_utf8(address).map_err(|_| io::ErrorKind::InvalidInput)?;
                if request == LISTEN {
                    let (address, below) = match address.split_once('\0') {
                        Some((address, below)) => (address, Some(below)),
                        None => (address.as_str(), None),
                    };
                    hand_over(&mut socket, (fns.bind)(address, below))?;
                } else {
                    let removed = (fns.remove)(&address);
                    answer(&mut socket, removed.map(|()| Zeroizing::default()))?;
                }
            }
            STORE => {
                let mut length = [0; 4];
                socket.read_exact(&mut length)?;
                let length = u32::from_le_bytes(length);
                if length > STORE_MAX {
                    return Err(io::ErrorKind::InvalidInput.into());
                }
                let length = usize::try_from(length).unwrap_or(0);
                let mut content = Zeroizing::new(vec![0; length]);
                socket.read_exact(&mut content)?;
                let file = StateFile::ALL
                    .get(index)
                    .ok_or(io::ErrorKind::InvalidInput)?;
                let clients = kept.clients.as_ref().ok_or(io::ErrorKind::InvalidInput)?;
                let stored = clients.store(*file, &content);
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
mod tests;
