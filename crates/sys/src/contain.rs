//! A process in a world of its own, which ends with it: process ids, mounts and, without root, users.
//!
//! [`contain`] splits the calling process in two. The one inside is the first of a process namespace: when it ends,
//! however it ends, the kernel ends everything that it started. It ends itself when the one outside does. So nothing
//! outlives either of them, not even after `kill -9`. The one outside waits, and passes signals on.
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
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{
    Pid, Signal, WaitOptions, getgid, getpid, getuid, kill_process,
    set_parent_process_death_signal, waitpid,
};
use rustix::thread::{UnshareFlags, unshare_unsafe};

use crate::signals::{Came, Signals};

/// Where the calling process finds itself after [`contain`].
#[derive(Debug)]
pub enum Side {
    /// In the old world, responsible for the one inside.
    Outside(Contained),
    /// In the new one, as its first process.
    Inside(Inside),
}

/// The first process of a process namespace. Those whose own parent has ended become its children.
#[derive(Debug)]
pub struct Inside {
    rights: Rights,
}

/// The user that a process inside is, where it needs a user namespace.
///
/// The process inside has every capability in that namespace either way. A program that it executes keeps them only as
/// [`Identity::Root`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Identity {
    /// User 0 and group 0: programs may change the networks and mounts inside.
    Root,
    /// The caller's own user and group: programs see the same user as outside, and have no capabilities.
    Caller,
}

/// What the process inside may do there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rights {
    /// It is the system's root and may do anything to the host's networks as well.
    Root,
    /// It has every capability in a user namespace: only namespaces that it makes are its own.
    User,
}

/// Why there is no world of our own.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ContainError {
    /// Only a process with one thread can be split.
    #[error("a process with {0} threads cannot be put into namespaces")]
    Threads(usize),
    /// Neither as root nor in a user namespace.
    #[error("this system does not let us make namespaces: {0}")]
    Forbidden(#[source] io::Error),
    /// Something else went wrong.
    #[error("making namespaces: {0}")]
    System(#[from] io::Error),
}

/// The process inside, seen from outside.
#[derive(Debug)]
pub struct Contained {
    pid: Pid,
    /// Closes when we end, which the one inside can see.
    _alive: OwnedFd,
}

/// Splits the calling process, which must have one thread, in two; see the module's documentation.
///
/// A caller that may make namespaces without a user namespace stays the user that it is, whatever `identity` says.
/// Fails with [`ContainError::Forbidden`] where there is no permission; the process is as it was then.
pub fn contain(identity: Identity) -> Result<Side, ContainError> {
    let rights = permitted(identity)?;
    unshare(rights, identity)?;
    let (theirs, ours) = pipe_with(PipeFlags::CLOEXEC).map_err(io::Error::from)?;
    if let Some(pid) = fork()? {
        return Ok(Side::Outside(Contained { pid, _alive: ours }));
    }
    drop(ours);
    settle(&theirs)?;
    Ok(Side::Inside(Inside { rights }))
}

impl Inside {
    /// What we may do here.
    pub fn rights(&self) -> Rights {
        self.rights
    }

    /// Sends a signal to every other process in this namespace, if there are any.
    #[expect(
        clippy::unused_self,
        reason = "it says that the others are of this namespace"
    )]
    pub(crate) fn signal_all(&self, signal: Signal) -> io::Result<()> {
        // Anywhere else this would reach everything that the user runs.
        if getpid() != Pid::INIT {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        // SAFETY: a system call without pointers; all that it can reach is in this namespace.
        if unsafe { libc::kill(-1, signal.as_raw()) } == 0 {
            return Ok(());
        }
        match io::Error::last_os_error() {
            error if error.raw_os_error() == Some(libc::ESRCH) => Ok(()),
            error => Err(error),
        }
    }
}

impl Contained {
    /// The process id of the one inside.
    pub fn pid(&self) -> u32 {
        self.pid.as_raw_pid().cast_unsigned()
    }

    /// Waits as [`Contained::wait`] does, and ends the one inside at once when a signal comes: 128 and that signal.
    pub fn wait_or_kill(self) -> io::Result<u8> {
        let asked = Cell::new(None);
        let code = self.wait(|came| {
            asked.set(Some(came.signal));
            Some(Signal::KILL)
        })?;
        let signal = asked.get().map(|signal| signal.as_raw() + 128);
        Ok(signal.map_or(code, |code| u8::try_from(code).unwrap_or(u8::MAX)))
    }

    /// Waits for the end of the one inside and returns its exit code, or 128 and the signal that killed it.
    ///
    /// `relay` says what to send inside for each signal that comes meanwhile.
    pub fn wait(self, relay: impl Fn(Came) -> Option<Signal>) -> io::Result<u8> {
        let signals = Signals::of_parents()?;
        loop {
            // Held back first and asked for then: its end cannot fall in between.
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

/// A process's end as shells tell it: its exit code, or 128 and the signal that killed it.
pub fn exit_code(status: ExitStatus) -> u8 {
    let signalled = status.signal().map(|signal| signal + 128);
    let code = status.code().or(signalled);
    code.and_then(|code| u8::try_from(code).ok())
        .unwrap_or(u8::MAX)
}

/// Finds out in a process that is thrown away, because an attempt that fails half-way cannot be undone.
fn permitted(identity: Identity) -> Result<Rights, ContainError> {
    let mut refused = io::Error::from(io::ErrorKind::PermissionDenied);
    for rights in [Rights::Root, Rights::User] {
        let Some(pid) = fork()? else {
            let outcome =
                unshare(rights, identity).and_then(|()| own_namespaces(UnshareFlags::NEWNET));
            let error = outcome
                .err()
                .map_or(0, |error| error.raw_os_error().unwrap_or(libc::EIO));
            // SAFETY: ends this process at once; nothing in it needs a destructor to run.
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
    // SAFETY: only `CLONE_FILES` can take descriptors away from under somebody, and it is taken out of the flags.
    Ok(unsafe { unshare_unsafe(namespaces - UnshareFlags::FILES) }?)
}

/// New mounts for the calling process, new process ids for its children and, without root, its own users.
fn unshare(rights: Rights, identity: Identity) -> io::Result<()> {
    let (user, group) = (getuid().as_raw(), getgid().as_raw());
    let mut flags = UnshareFlags::NEWNS | UnshareFlags::NEWPID;
    if rights == Rights::User {
        flags |= UnshareFlags::NEWUSER;
    }
    own_namespaces(flags)?;
    if rights == Rights::User {
        let (inner_user, inner_group) = match identity {
            Identity::Root => (0, 0),
            Identity::Caller => (user, group),
        };
        // The kernel lets an unprivileged process map its group only after it has given up `setgroups`. Other groups
        // of the caller stay in force, but are shown as the overflow group.
        fs::write("/proc/self/setgroups", "deny")?;
        fs::write("/proc/self/uid_map", format!("{inner_user} {user} 1"))?;
        fs::write("/proc/self/gid_map", format!("{inner_group} {group} 1"))?;
    }
    Ok(())
}

/// First steps inside: die with the one outside, and see the new process ids.
fn settle(outside: &OwnedFd) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // It may have died before that; then the other end of this pipe is closed.
    let mut ends = [PollFd::new(outside, PollFlags::IN)];
    if poll(&mut ends, Some(&Timespec::default()))? != 0 {
        return Err(io::ErrorKind::BrokenPipe.into());
    }
    // What is mounted here must not show outside.
    let ours_only = MountPropagationFlags::REC | MountPropagationFlags::DOWNSTREAM;
    mount_change("/", ours_only)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    if mount("proc", "/proc", "proc", flags, None).is_err() {
        // Containers often forbid it. The old one works too, with the process ids of outside.
    }
    Ok(())
}

/// Doubles the process. `None`: this is the new one.
pub(crate) fn fork() -> Result<Option<Pid>, ContainError> {
    let threads = fs::read_dir("/proc/self/task")?.count();
    if threads != 1 {
        return Err(ContainError::Threads(threads));
    }
    // SAFETY: the process has one thread, this one, and only it could start another. So the child is a whole
    // process: no lock is held by a thread that it lacks.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error().into()),
        pid => Ok(Pid::from_raw(pid)),
    }
}
