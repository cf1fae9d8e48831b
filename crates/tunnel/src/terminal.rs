//! The terminal that the process was started at: whether it is still there when SIGHUP comes.

use std::io::{self, IsTerminal};
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Signal;

/// That of standard error or standard input, if any.
#[derive(Debug)]
pub(crate) struct Terminal(Option<OwnedFd>);

impl Terminal {
    /// That of this process. To be asked before the process gives up its rights.
    pub(crate) fn of_process() -> Self {
        // As with `nohup`: it is to go on without its terminal.
        if quictun_sys::is_ignored(Signal::HUP) {
            return Self(None);
        }
        Self(own(&io::stderr()).or_else(|| own(&io::stdin())))
    }

    /// Whether the process had a terminal that has been closed since. Every read and write there fails from then on.
    pub(crate) fn has_gone(&self) -> bool {
        let Some(terminal) = &self.0 else {
            return false;
        };
        // A hangup is told unasked.
        let mut asked = [PollFd::new(terminal, PollFlags::empty())];
        let at_once = Timespec::default();
        poll(&mut asked, Some(&at_once)).is_ok() && asked[0].revents().contains(PollFlags::HUP)
    }
}

fn own(stream: &(impl IsTerminal + AsFd)) -> Option<OwnedFd> {
    let owned = stream
        .is_terminal()
        .then(|| stream.as_fd().try_clone_to_owned());
    owned?.ok()
}
