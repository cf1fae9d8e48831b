//! Runs a process in namespaces of its own, which end with it: process ids, mounts and, without root, users.
//!
//! [`contain`] splits the calling process in two. The process inside is the first of a process namespace: when it ends,
//! for whatever reason, the kernel ends everything that it started. It also ends when the process outside does. So no
//! process outlives either of the two, not even after `kill -9`. The process outside waits, and passes signals on.
//!
//! ```text
//!   quictun ──► contain ──┬── outside: waits, exits with the code of the one inside
//!                         │      │ killed: the kernel kills
//!                         └── inside: process 1 of its namespace ──► shells, servers, ...
//! ```

use std::cell::Cell;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{
    Pid, Signal, WaitOptions, getgid, getpid, getuid, kill_process,
    set_parent_process_death_signal, waitpid,
};
use rustix::thread::{UnshareFlags, unshare_unsafe};

use crate::poll_until;
use crate::signals::{ReceivedSignal, Signals};

/// The side on which the calling process is after [`contain`].
#[derive(Debug)]
pub enum ForkResult {
    /// The process outside, in the old namespaces. It is responsible for the one inside.
    Outside(ContainedProcess),
    /// The process inside, the first one in the new namespaces.
    Inside(InitProcess),
}

/// The first process of a process namespace. Processes whose own parent has ended become its children.
#[derive(Debug)]
pub struct InitProcess {
    rights: Rights,
}

/// The user of the process inside, if a user namespace is needed.
///
/// The process inside has every capability in that namespace either way. A program that it executes keeps them only
/// with [`NamespaceUser::Root`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamespaceUser {
    /// User 0 and group 0: programs may change the networks and mounts inside.
    Root,
    /// The caller's own user and group: programs see the same user as outside, and have no capabilities.
    Caller,
}

/// The rights of the process inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rights {
    /// The process is the system's root. It may also change the host's networks.
    Root,
    /// The process has every capability in a user namespace. It controls only the namespaces that it makes.
    User,
}

/// The reason why the process could not be put into namespaces of its own.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ContainError {
    /// Only a process with one thread can be split.
    #[error("a process with {0} threads cannot be put into namespaces")]
    Threads(usize),
    /// The process may make namespaces neither as root nor in a user namespace.
    #[error("this system does not allow this process to make namespaces: {0}")]
    Forbidden(#[source] io::Error),
    /// Another system call failed.
    #[error("cannot make namespaces: {0}")]
    System(#[from] io::Error),
}

/// The process inside, seen from outside.
#[derive(Debug)]
pub struct ContainedProcess {
    pid: Pid,
    /// Closes when the process outside ends, which the process inside can see.
    _alive: OwnedFd,
}

/// Splits the calling process, which must have one thread, in two. See the module's documentation.
///
/// A caller that may make namespaces without a user namespace keeps its user, whatever `identity` says. Fails with
/// [`ContainError::Forbidden`] if there is no permission; the process is unchanged then.
pub fn contain(identity: NamespaceUser) -> Result<ForkResult, ContainError> {
    let rights = permitted(identity)?;
    unshare(rights, identity)?;
    let (theirs, ours) = pipe_with(PipeFlags::CLOEXEC).map_err(io::Error::from)?;
    if let Some(pid) = fork()? {
        return Ok(ForkResult::Outside(ContainedProcess { pid, _alive: ours }));
    }
    drop(ours);
    prepare_inside(&theirs)?;
    Ok(ForkResult::Inside(InitProcess { rights }))
}

impl InitProcess {
    /// Returns the rights of this process.
    pub fn rights(&self) -> Rights {
        self.rights
    }

    /// Sends a signal to every other process in this namespace, if there are any.
    #[expect(
        clippy::unused_self,
        reason = "the receiver shows that the signal reaches this namespace only"
    )]
    pub(crate) fn signal_all(&self, signal: Signal) -> io::Result<()> {
        // In any other process, the signal would reach everything that the user runs.
        if getpid() != Pid::INIT {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        // SAFETY: a system call without pointers. It reaches only processes of this namespace.
        if unsafe { libc::kill(-1, signal.as_raw()) } == 0 {
            return Ok(());
        }
        match io::Error::last_os_error() {
            error if error.raw_os_error() == Some(libc::ESRCH) => Ok(()),
            error => Err(error),
        }
    }
}

impl ContainedProcess {
    /// Waits as [`ContainedProcess::wait`] does, but kills the process inside as soon as a signal arrives. Returns 128
    /// plus that signal's number then.
    pub fn wait_or_kill(self) -> io::Result<u8> {
        let asked = Cell::new(None);
        let code = self.wait(|came| {
            asked.set(Some(came.signal));
            Some(Signal::KILL)
        })?;
        let signal = asked.get().map(|signal| signal.as_raw() + 128);
        Ok(signal.map_or(code, |code| u8::try_from(code).unwrap_or(u8::MAX)))
    }

    /// Waits for the end of the process inside. Returns its exit code, or 128 plus the number of the signal that killed
    /// it.
    ///
    /// `relay` returns the signal to send inside for each signal that arrives meanwhile.
    pub fn wait(self, relay: impl Fn(ReceivedSignal) -> Option<Signal>) -> io::Result<u8> {
        let signals = Signals::of_parents()?;
        loop {
            // The signals are blocked before the first check, so an end between check and wait is not missed.
            if let Some((_, status)) = waitpid(Some(self.pid), WaitOptions::NOHANG)? {
                return Ok(exit_code(ExitStatus::from_raw(status.as_raw())));
            }
            let came = signals.wait(Duration::from_hours(1))?;
            if let Some(came) = came.filter(|came| came.signal != Signal::CHILD)
                && let Some(signal) = relay(came)
            {
                kill_process(self.pid, signal)?;
            }
        }
    }
}

/// Returns the exit status as shells report it: the exit code, or 128 plus the number of the signal that killed the
/// process.
pub fn exit_code(status: ExitStatus) -> u8 {
    let signalled = status.signal().map(|signal| signal + 128);
    let code = status.code().or(signalled);
    code.and_then(|code| u8::try_from(code).ok())
        .unwrap_or(u8::MAX)
}

/// Finds out the rights in a child process, because an attempt that fails half-way cannot be undone.
fn permitted(identity: NamespaceUser) -> Result<Rights, ContainError> {
    let mut refused = io::Error::from(io::ErrorKind::PermissionDenied);
    for rights in [Rights::Root, Rights::User] {
        let Some(pid) = fork()? else {
            let outcome =
                unshare(rights, identity).and_then(|()| own_namespaces(UnshareFlags::NEWNET));
            let error = outcome
                .err()
                .map_or(0, |error| error.raw_os_error().unwrap_or(libc::EIO));
            // SAFETY: the call ends this process at once. Nothing in it needs a destructor to run.
            unsafe { libc::_exit(error) }
        };
        let ended = waitpid(Some(pid), WaitOptions::empty()).map_err(io::Error::from)?;
        match ended.and_then(|(_, status)| status.exit_status()) {
            Some(0) => return Ok(rights),
            Some(error) => refused = io::Error::from_raw_os_error(error),
            None => {}
        }
    }
    Err(ContainError::Forbidden(refused))
}

/// Gives the calling thread namespaces of its own.
pub(crate) fn own_namespaces(namespaces: UnshareFlags) -> io::Result<()> {
    // SAFETY: only `CLONE_FILES` could take descriptors away from their users, and it is removed from the flags.
    Ok(unsafe { unshare_unsafe(namespaces - UnshareFlags::FILES) }?)
}

/// Gives the calling process its own mounts and, without root, its own users, and its children their own process ids.
fn unshare(rights: Rights, identity: NamespaceUser) -> io::Result<()> {
    let (user, group) = (getuid().as_raw(), getgid().as_raw());
    let mut flags = UnshareFlags::NEWNS | UnshareFlags::NEWPID;
    if rights == Rights::User {
        flags |= UnshareFlags::NEWUSER;
    }
    own_namespaces(flags)?;
    if rights == Rights::User {
        let (inner_user, inner_group) = match identity {
            NamespaceUser::Root => (0, 0),
            NamespaceUser::Caller => (user, group),
        };
        // The kernel lets an unprivileged process map its group only after it has given up `setgroups`. Other groups of
        // the caller stay in force, but appear as the overflow group.
        fs::write("/proc/self/setgroups", "deny")?;
        fs::write("/proc/self/uid_map", format!("{inner_user} {user} 1"))?;
        fs::write("/proc/self/gid_map", format!("{inner_group} {group} 1"))?;
    }
    Ok(())
}

/// Prepares the process inside: it will end with the process outside, and its `/proc` shows the new process ids.
fn prepare_inside(outside: &OwnedFd) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // The process outside may have ended before that call; then the other end of this pipe is closed.
    let mut ends = [PollFd::new(outside, PollFlags::IN)];
    if poll_until(&mut ends, Instant::now())? {
        return Err(io::ErrorKind::BrokenPipe.into());
    }
    // Mounts made here must not appear outside.
    let ours_only = MountPropagationFlags::REC | MountPropagationFlags::DOWNSTREAM;
    mount_change("/", ours_only)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    if mount("proc", "/proc", "proc", flags, None).is_err() {
        // Containers often forbid it. The old mount works too, but shows the process ids of outside.
    }
    Ok(())
}

/// Forks the process. `None` means that this is the child.
pub(crate) fn fork() -> Result<Option<Pid>, ContainError> {
    let threads = fs::read_dir("/proc/self/task")?.count();
    if threads != 1 {
        return Err(ContainError::Threads(threads));
    }
    // SAFETY: the process has one thread, this one, and only it could start another. So the child is a complete
    // process: no lock is held by a thread that does not exist in it.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error().into()),
        pid => Ok(Pid::from_raw(pid)),
    }
}
