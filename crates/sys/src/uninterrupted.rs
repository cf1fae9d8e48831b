//! Time limits that hold although signals interrupt the calls.
//!
//! A call with a time limit fails with `EINTR` after every handler that has run, also with `SA_RESTART`, and some calls
//! after SIGSTOP and SIGCONT as well (signal(7)). If the call is repeated with the same limit, signals that arrive often
//! extend it without end. The functions of this module count from one deadline.

use std::io;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, Timespec, poll};

/// Repeats `call` as long as signals interrupt it. `call` gets the time that is left until `deadline`, and must return
/// at once if none is left.
pub fn uninterrupted<T>(
    deadline: Instant,
    mut call: impl FnMut(Duration) -> io::Result<T>,
) -> io::Result<T> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        match call(left) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

/// Waits until one of the descriptors is ready. Returns false if `deadline` has passed first.
pub fn poll_until(fds: &mut [PollFd<'_>], deadline: Instant) -> io::Result<bool> {
    uninterrupted(deadline, |left| {
        // A time that has no `timespec` is longer than any wait.
        let left = Timespec::try_from(left).ok();
        Ok(poll(fds, left.as_ref())? > 0)
    })
}

/// Waits until `deadline`, whatever signals arrive.
pub fn pause_until(deadline: Instant) -> io::Result<()> {
    poll_until(&mut [], deadline).map(drop)
}

#[cfg(test)]
mod tests;
