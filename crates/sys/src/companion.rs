//! A second process, which keeps rights that the first one gives up.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, IntoRawFd as _};
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};

use rustix::process::{
    DumpableBehavior, Pid, Signal, WaitOptions, getpid, getppid, set_dumpable_behavior,
    set_parent_process_death_signal, waitpid,
};
use rustix::thread::set_name;

use crate::contain::{ContainError, fork};
use crate::returned::check;
use crate::signals::Signals;

/// The companion, seen from the process that started it.
#[derive(Debug)]
pub struct Companion {
    pid: Pid,
}

/// Starts a companion by doubling the calling process, which must have one thread.
///
/// The companion runs `serve` with one end of a socket and ends with it; the other end is returned. It has no
/// descriptor but that socket and standard error, ignores every signal that asks a process to end, and is killed by the
/// kernel when the calling process ends. Tools show it as `name`, of which the kernel keeps 15 bytes. Fails with
/// `Unsupported` where the process has several threads.
pub fn start_companion(
    name: &CStr,
    serve: impl FnOnce(UnixStream) -> io::Result<()>,
) -> io::Result<(Companion, UnixStream)> {
    let (ours, theirs) = UnixStream::pair()?;
    let parent = getpid();
    let doubled = fork().map_err(|error| match error {
        ContainError::Threads(threads) => {
            let text = format!("a process with {threads} threads cannot be doubled");
            io::Error::new(io::ErrorKind::Unsupported, text)
        }
        ContainError::Forbidden(source) | ContainError::System(source) => source,
    });
    if let Some(pid) = doubled? {
        return Ok((Companion { pid }, ours));
    }
    let run = || settle(name, parent, &theirs).and_then(|()| serve(theirs));
    let code = match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ok(())) => 0,
        Ok(Err(_)) => 1,
        Err(_) => 101,
    };
    // SAFETY: ends this process at once. Nothing of what it shares with its parent may be dropped twice.
    unsafe { libc::_exit(code) }
}

impl Companion {
    /// Whether the companion has ended.
    pub fn has_ended(&self) -> bool {
        // An error says that it is no child any more: then it was seen to end before.
        !matches!(waitpid(Some(self.pid), WaitOptions::NOHANG), Ok(None))
    }

    /// The companion's process id.
    pub fn pid(&self) -> u32 {
        self.pid.as_raw_pid().cast_unsigned()
    }
}

/// First steps of a companion: end with its parent, and keep nothing of what it inherited.
fn settle(name: &CStr, parent: Pid, socket: &UnixStream) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    if getppid() != Some(parent) {
        return Err(io::Error::other("the parent has ended"));
    }
    // A terminal or a service manager sends these to both processes: the parent decides when to end.
    Signals::hold(&[
        Signal::INT,
        Signal::QUIT,
        Signal::TERM,
        Signal::HUP,
        Signal::PIPE,
        Signal::USR1,
        Signal::USR2,
    ])?;
    set_name(name)?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    let null = File::options().read(true).write(true).open("/dev/null")?;
    // Closed below, by its number.
    let null = null.into_raw_fd();
    for standard in [0, 1] {
        // SAFETY: both are open numbers. Nothing in this process uses standard input or output any more.
        check(unsafe { libc::dup2(null, standard) })?;
    }
    let kept = socket.as_fd().as_raw_fd().cast_unsigned();
    for (first, last) in [(3, kept - 1), (kept + 1, libc::c_uint::MAX)] {
        // SAFETY: closes numbers. Their owners, in the doubled memory, are neither used nor dropped in this process,
        // which ends by `_exit`. musl has no function for the call.
        if first <= last && unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
