//! The network stack in a process of its own: the one that touches packets has no keys, the one that has keys no device.
//!
//! ```text
//!  programs ─ kernel TCP ─ TUN ─► netstackd ◄─ calls over shared memory ─► client ─ QUIC ─► server
//!                                 [`serve`]        [`message`]           [`remote`]
//! ```
//!
//! [`run`] is the whole of the former. The client makes the memory and calls; payload lies in its arena for as long as
//! a call takes: netstackd moves it between there and the stack's buffers, the client between there and the engine's. Nobody
//! looks at memory that the other can write but to copy it.
//!
//! Where the client ends, netstackd resets all flows and ends as well. Where netstackd ends, or says what makes no sense, the client
//! resets all streams and ends with [`Crash::Netstack`](quictun_io::crash::Crash). The program that started the two starts them anew.

mod exchange;
mod message;
mod remote;
mod remote_socket;
mod serve;
#[cfg(test)]
pub mod tests;

use std::io;
use std::os::fd::OwnedFd;

use quictun_ipc::HandshakeError;
use quictun_sys::confine::{self, Calls, Files};
use quictun_sys::{NullStreams, Signals, Tun};
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};

use remote::PATIENCE;

pub use remote::{PIECE_MOST, Remote, RemoteStack};
pub use remote_socket::RemoteSocket;
pub use serve::NetstackError;

/// The name that a program is started under to be this process.
pub const NAME: &str = "quictun-netstackd";

/// Serves the stack behind a device to the client at the other end of `socket`, until that one ends; questions to name
/// servers too where `names`.
///
/// The process must have one thread, and be good for nothing else: it keeps no rights, files or system calls but what
/// this takes, its standard streams become `/dev/null`, and an error after that is seen by its exit code alone. It should
/// have been started with [`quictun_sys::with_standard_streams_only`].
///
/// # Errors
///
/// What kept it from beginning; the device's end.
pub fn run(tun: Tun, socket: OwnedFd, names: bool) -> Result<(), NetstackError> {
    end_with_parent()?;
    // A signal to the whole group means the client, which lets connections finish: without a stack they cannot.
    let _held = Signals::hold(&[Signal::TERM, Signal::INT, Signal::QUIT, Signal::HUP])?;
    let nothing = NullStreams::open()?;
    confine::give_up_rights()?;
    confine::give_up_files(&Files::None)?;
    let channel = match quictun_ipc::accept(socket, PATIENCE) {
        // The client has ended before it began, and says why where there is something to say.
        Err(HandshakeError::Closed) => return Ok(()),
        channel => channel?,
    };
    let served = serve::Served::new(tun, channel, names)?;
    // The device and the socket are held under other numbers. A log or a terminal is not for who looks at packets.
    nothing.replace()?;
    confine::give_up_calls(Calls::Few)?;
    served.run()?;
    Ok(())
}

/// Makes the kernel end this process with the one that started it, which holds the device and its routes.
pub fn end_with_parent() -> io::Result<()> {
    // Where that is the first process of a namespace, all others end with it anyway.
    let Some(parent) = getppid().filter(|parent| *parent != Pid::INIT) else {
        return Ok(());
    };
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // It may have ended just before that, and no signal would come.
    if getppid() != Some(parent) {
        return Err(io::Error::other("who started this process has ended"));
    }
    Ok(())
}
