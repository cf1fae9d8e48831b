//! `--confirm SECONDS`: undoes a TUN device that carries the whole host's traffic, unless an administrator confirms in
//! time.
//!
//! The client listens on an abstract Unix socket of its network namespace, and `quictun confirm` connects to it. The
//! client accepts a confirmation only from root and from its own user. Enter on the client's terminal confirms, too.

use std::io::{self, BufRead as _, IsTerminal as _, Read as _, Write as _};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use quictun_sys::{pause_until, poll_until};
use rustix::event::{PollFd, PollFlags};
use rustix::net::sockopt;
use rustix::process::{Signal, geteuid, getpgrp, getpid, kill_process};
use rustix::termios::tcgetpgrp;

use crate::exit::{self, ProgramError, say};
use quictun_args::fault::Fault;

/// Name of the client's abstract Unix socket.
const NAME: &str = "quictun-confirm";

/// The client's answer to an accepted confirmation.
const ANSWER: &str = "confirmed\n";

/// Time limit for writing and reading the answer, on a busy machine too.
const PATIENCE: Duration = Duration::from_secs(10);

/// Pause between the first signal to this process, which drains it, and the second one, which ends it at once.
const PAUSE: Duration = Duration::from_millis(500);

/// Ends this process after `limit`, as two SIGTERM would, unless a user confirms before that.
///
/// # Errors
///
/// Fails if another process listens on the socket already.
pub(crate) fn wait_for(limit: Duration) -> anyhow::Result<()> {
    let address = SocketAddr::from_abstract_name(NAME)?;
    let listener = UnixListener::bind_addr(&address)
        .context("--confirm: cannot listen on the socket @quictun-confirm")?;
    listener.set_nonblocking(true)?;
    say(&format!(
        "quictun: confirm within {} s with `quictun confirm`, or Enter here: otherwise the client ends and the host's routes are as before",
        limit.as_secs()
    ));
    let thread = std::thread::Builder::new().name("confirm".to_owned());
    thread.spawn(move || {
        let outcome = watch(&listener, limit);
        if outcome.as_ref().is_ok_and(|confirmed| *confirmed) {
            say("quictun: confirmed");
            return;
        }
        if let Err(error) = outcome {
            say(&format!("quictun: cannot await `quictun confirm`: {error}"));
        }
        say("quictun: not confirmed: the client ends, and the host's routes are as before");
        for _ in 0..2 {
            if let Err(error) = kill_process(getpid(), Signal::TERM) {
                say(&format!("quictun: cannot end this process: {error}"));
            }
            if pause_until(Instant::now() + PAUSE).is_err() {}
        }
    })?;
    Ok(())
}

/// Waits for a confirmation. Returns `false` if `limit` passes without one.
fn watch(listener: &UnixListener, limit: Duration) -> io::Result<bool> {
    let until = Instant::now() + limit;
    let stdin = io::stdin();
    let mut listens = stdin.is_terminal();
    loop {
        let mut fds = vec![PollFd::new(listener, PollFlags::IN)];
        if listens {
            fds.push(PollFd::new(&stdin, PollFlags::IN));
        }
        if !poll_until(&mut fds, until)? {
            return Ok(false);
        }
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        if ready.first() == Some(&true) && may_confirm(listener)? {
            return Ok(true);
        }
        if ready.get(1) == Some(&true) {
            // In the background, typed lines belong to another program, and reading the terminal would stop this
            // process.
            if tcgetpgrp(&stdin).is_ok_and(|group| group == getpgrp())
                && stdin.lock().read_line(&mut String::new())? > 0
            {
                return Ok(true);
            }
            listens = false;
        }
    }
}

/// Accepts one connection, and answers it if its user is root or the client's own user.
fn may_confirm(listener: &UnixListener) -> io::Result<bool> {
    let (mut stream, _) = match listener.accept() {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
        accepted => accepted?,
    };
    let user = sockopt::socket_peercred(&stream)?.uid;
    if !user.is_root() && user != geteuid() {
        return Ok(false);
    }
    stream.set_write_timeout(Some(PATIENCE))?;
    if stream.write_all(ANSWER.as_bytes()).is_err() {
        // The confirmation counts even if its sender does not read the answer.
    }
    Ok(true)
}

pub(crate) fn main() -> Result<(), ProgramError> {
    let address = SocketAddr::from_abstract_name(NAME)?;
    let none = || {
        Fault::failure("confirm", "no client waits for it")
            .next("it has been confirmed, has ended, or was started without --confirm SECONDS")
    };
    let mut stream = UnixStream::connect_addr(&address).map_err(|_| none())?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut answer = String::new();
    stream
        .read_to_string(&mut answer)
        .context("cannot read the client's answer")?;
    if answer != ANSWER {
        let why = "only root and the user of the client may confirm";
        return Err(Fault::failure("confirm", why).into());
    }
    Ok(exit::print(ANSWER)?)
}
