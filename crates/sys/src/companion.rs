//! A second process that keeps rights which the first one gives up.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::iter;
use std::os::fd::{AsFd as _, AsRawFd as _, IntoRawFd as _};
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};

use rustix::process::{
    DumpableBehavior, Pid, Signal, WaitOptions, getpid, getppid, set_dumpable_behavior,
    set_parent_process_death_signal, waitpid,
};
use rustix::thread::set_name;

use crate::contain::{ContainError, fork};
use crate::signals::Signals;
use crate::syscall_result::check;

/// The companion, seen from the process that started it.
#[derive(Debug)]
pub struct Companion {
    pid: Pid,
}

/// Starts a companion by forking the calling process, which must have one thread.
///
/// The companion runs `serve` with one end of each of `N` socket pairs and ends when `serve` returns; the other ends are
/// returned to the caller. The companion has no other descriptors than those sockets and the standard streams; input and
/// output lead to `/dev/null`. It ignores every signal that asks a process to end, and the kernel kills it when the
/// calling process ends. Tools show it as `name`, of which the kernel keeps 15 bytes.
///
/// Fails with `Unsupported` if the process has several threads.
pub fn start_companion<const N: usize>(
    name: &CStr,
    serve: impl FnOnce([UnixStream; N]) -> io::Result<()>,
) -> io::Result<(Companion, [UnixStream; N])> {
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..N {
        let (our, their) = UnixStream::pair()?;
        ours.push(our);
        theirs.push(their);
    }
    let number = |_| io::Error::other("invariant: there are N pairs");
    let ours: [UnixStream; N] = ours.try_into().map_err(number)?;
    let theirs: [UnixStream; N] = theirs.try_into().map_err(number)?;
    let parent = getpid();
    let doubled = fork().map_err(|error| match error {
        ContainError::Threads(threads) => {
            let text = format!("cannot fork a process with {threads} threads");
            io::Error::new(io::ErrorKind::Unsupported, text)
        }
        ContainError::Forbidden(source) | ContainError::System(source) => source,
    });
    if let Some(pid) = doubled? {
        return Ok((Companion { pid }, ours));
    }
    let run = || prepare(name, parent, &theirs).and_then(|()| serve(theirs));
    let code = match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ok(())) => 0,
        Ok(Err(_)) => 1,
        Err(_) => 101,
    };
    // SAFETY: the call ends this process at once. Nothing that it shares with its parent may be dropped twice.
    unsafe { libc::_exit(code) }
}

impl Companion {
    /// Returns whether the companion has ended.
    pub fn has_ended(&self) -> bool {
        // An error means that the companion is not a child any more, so an earlier call has seen its end.
        !matches!(waitpid(Some(self.pid), WaitOptions::NOHANG), Ok(None))
    }
}

/// Prepares a companion: it will end with its parent, and keeps no inherited descriptors but its sockets and standard
/// error.
fn prepare(name: &CStr, parent: Pid, sockets: &[UnixStream]) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    if getppid() != Some(parent) {
        return Err(io::Error::other("the parent has ended"));
    }
    // A terminal or a service manager sends these signals to both processes. The parent decides when to end.
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
    // The loop below closes it by its number.
    let null = null.into_raw_fd();
    for standard in [0, 1] {
        // SAFETY: both are open descriptor numbers. Nothing in this process uses standard input or output any more.
        check(unsafe { libc::dup2(null, standard) })?;
    }
    let kept = sockets
        .iter()
        .map(|socket| socket.as_fd().as_raw_fd().cast_unsigned());
    let mut kept: Vec<_> = kept.collect();
    kept.sort_unstable();
    // Each gap begins after a kept descriptor, and the first one after standard error.
    let begins = iter::once(3).chain(kept.iter().map(|kept| kept + 1));
    let ends = kept.iter().map(|kept| kept - 1);
    for (first, last) in begins.zip(ends.chain([libc::c_uint::MAX])) {
        // SAFETY: the call closes descriptors by number. The objects that own them, in the forked memory, are neither
        // used nor dropped in this process, which ends by `_exit`. musl has no function for the call.
        if first <= last && unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
