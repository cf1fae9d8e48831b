//! Signals that are received one by one instead of by handlers.

use std::io;
use std::mem::MaybeUninit;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::uninterrupted;

/// The signals that ask a process to end.
pub const END_SIGNALS: [Signal; 3] = [Signal::TERM, Signal::INT, Signal::HUP];

/// Signals that are blocked in the calling thread, and in every thread that it starts from now on. [`Signals::wait`]
/// receives them.
#[derive(Debug)]
pub struct Signals {
    set: libc::sigset_t,
}

/// A signal that was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceivedSignal {
    /// The signal that was received.
    pub signal: Signal,
    /// True if the terminal sent the signal to all of its foreground programs; false if a process sent it to this one.
    pub by_terminal: bool,
}

impl ReceivedSignal {
    /// Returns the signal, if a process that waits for a command must pass it on. The signals that the terminal sends
    /// for Ctrl-C and Ctrl-\ reach the command itself, which may handle them in its own way.
    pub fn to_pass_on(self) -> Option<Signal> {
        let interrupt = self.by_terminal && matches!(self.signal, Signal::INT | Signal::QUIT);
        (!interrupt).then_some(self.signal)
    }
}

impl Signals {
    /// Blocks the signals that a process with children must receive: a child has ended, or this process is asked to
    /// end. Ignores the signals without a meaning.
    pub fn of_parents() -> io::Result<Self> {
        ignore_user_signals()?;
        Self::hold(&[
            Signal::CHILD,
            Signal::INT,
            Signal::QUIT,
            Signal::TERM,
            Signal::HUP,
        ])
    }

    /// Blocks `signals`. Call it before other threads are started: those would still receive them in the usual way.
    pub fn hold(signals: &[Signal]) -> io::Result<Self> {
        let set = set_of(signals);
        mask(libc::SIG_BLOCK, &set)?;
        Ok(Self { set })
    }

    /// Returns the next signal, or `None` if none arrived within this time.
    ///
    /// Other signals, which are handled or stop the process, do not shorten the time.
    pub fn wait(&self, within: Duration) -> io::Result<Option<ReceivedSignal>> {
        let deadline = Instant::now() + within;
        uninterrupted(deadline, |left| self.wait_once(left))
    }

    fn wait_once(&self, within: Duration) -> io::Result<Option<ReceivedSignal>> {
        let within = libc::timespec {
            tv_sec: within.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: within.subsec_nanos().into(),
        };
        let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
        // SAFETY: the set and the time are live for the call, and `info` has room for one `siginfo_t`.
        let number = unsafe {
            libc::sigtimedwait(&raw const self.set, info.as_mut_ptr(), &raw const within)
        };
        if number < 0 {
            let error = io::Error::last_os_error();
            return match error.kind() {
                io::ErrorKind::WouldBlock => Ok(None),
                _ => Err(error),
            };
        }
        // SAFETY: all bytes were zero before the kernel filled the structure in, and any bytes are a valid `siginfo_t`.
        let info = unsafe { info.assume_init() };
        let signal = Signal::from_named_raw(number)
            .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))?;
        Ok(Some(ReceivedSignal {
            signal,
            by_terminal: info.si_code == libc::SI_KERNEL,
        }))
    }
}

/// Unblocks `signals` in the calling thread. Those that came meanwhile act at once: set up their handlers first.
pub fn release_signals(signals: &[Signal]) -> io::Result<()> {
    mask(libc::SIG_UNBLOCK, &set_of(signals))
}

/// Returns whether this process ignores a signal. If it has not changed that itself, its starter asked for it.
pub fn is_ignored(signal: Signal) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: no new action is given, and `action` has room for the present one.
    let asked = unsafe { libc::sigaction(signal.as_raw(), std::ptr::null(), action.as_mut_ptr()) };
    // SAFETY: all bytes were zero before the kernel filled the structure in, and any bytes are a valid `sigaction`: its
    // function is a number here.
    let action = unsafe { action.assume_init() };
    asked == 0 && action.sa_sigaction == libc::SIG_IGN
}

/// Makes this process survive SIGUSR1 and SIGUSR2, which have no meaning here. Other programs open their logs again when
/// they get one, so scripts send them.
pub fn ignore_user_signals() -> io::Result<()> {
    for signal in [libc::SIGUSR1, libc::SIGUSR2] {
        action(signal, libc::SIG_IGN)?;
    }
    Ok(())
}

/// Restores the default action of `signals`, so that they end this process again.
pub fn restore_default(signals: &[Signal]) -> io::Result<()> {
    for signal in signals {
        action(signal.as_raw(), libc::SIG_DFL)?;
    }
    Ok(())
}

/// Makes a program start with default signal handling, whatever was blocked or ignored before.
pub fn with_default_signals(command: &mut Command) -> &mut Command {
    let none = set_of(&[]);
    let reset = move || {
        mask(libc::SIG_SETMASK, &none)?;
        for signal in [
            libc::SIGINT,
            libc::SIGQUIT,
            libc::SIGTERM,
            libc::SIGHUP,
            libc::SIGUSR1,
            libc::SIGUSR2,
        ] {
            action(signal, libc::SIG_DFL)?;
        }
        Ok(())
    };
    // SAFETY: between fork and exec, `reset` makes two system calls that are safe in a signal handler (pthread_sigmask,
    // signal), touches no lock and allocates nothing.
    unsafe { command.pre_exec(reset) }
}

/// Sets the action of a signal to one of the system's: `SIG_DFL` or `SIG_IGN`.
fn action(signal: libc::c_int, action: libc::sighandler_t) -> io::Result<()> {
    // SAFETY: neither of the two actions is a function of this program, so nothing can be called wrongly.
    if unsafe { libc::signal(signal, action) } == libc::SIG_ERR {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

fn mask(how: libc::c_int, set: &libc::sigset_t) -> io::Result<()> {
    // SAFETY: `set` is live, and the pointer for the old set may be null.
    match unsafe { libc::pthread_sigmask(how, set, std::ptr::null_mut()) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

fn set_of(signals: &[Signal]) -> libc::sigset_t {
    let mut set = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: `set` has room for one set, which this call makes empty.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    // SAFETY: the bytes are initialised, and they are an empty set.
    let mut set = unsafe { set.assume_init() };
    for signal in signals {
        // SAFETY: `set` is a live, initialised set. The call refuses an invalid signal number, and writes nothing then.
        unsafe { libc::sigaddset(&raw mut set, signal.as_raw()) };
    }
    set
}
