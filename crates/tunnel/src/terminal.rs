//! Detects whether the terminal of the process is still open when SIGHUP arrives.

use std::io::{self, IsTerminal};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use quictun_sys::poll_until;
use rustix::event::{PollFd, PollFlags};
use rustix::process::Signal;

/// The terminal of standard error or standard input, if any.
#[derive(Debug)]
pub(crate) struct Terminal(Option<OwnedFd>);

impl Terminal {
    /// Finds the terminal of this process. Call it before the process gives up its rights.
    pub(crate) fn of_process() -> Self {
        // SIGHUP is ignored, as with `nohup`: the process continues without its terminal.
        if quictun_sys::is_ignored(Signal::HUP) {
            return Self(None);
        }
        Self(own(&io::stderr()).or_else(|| own(&io::stdin())))
    }

    /// Returns whether the process had a terminal that has been closed since. All reads and writes on it fail from then
    /// on.
    pub(crate) fn has_gone(&self) -> bool {
        let Some(terminal) = &self.0 else {
            return false;
        };
        // `poll` always reports a hangup, without a request for it.
        let mut asked = [PollFd::new(terminal, PollFlags::empty())];
        poll_until(&mut asked, Instant::now()).is_ok()
            && asked[0].revents().contains(PollFlags::HUP)
    }
}

fn own(stream: &(impl IsTerminal + AsFd)) -> Option<OwnedFd> {
    let owned = stream
        .is_terminal()
        .then(|| stream.as_fd().try_clone_to_owned());
    owned?.ok()
}
