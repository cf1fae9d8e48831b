//! The network stack in a separate process. The process that handles packets has no keys, and the process that has keys
//! has no device.
//!
//! ```text
//!  programs ─ kernel TCP ─ TUN ─► netstackd ◄─ calls over shared memory ─► client ─ QUIC ─► server
//!                                 [`serve`]        [`message`]           [`remote`]
//! ```
//!
//! [`run`] is the entry point of netstackd. The client creates the shared memory and makes the calls. Payload stays in
//! the client's arena for the duration of a call. netstackd copies it between the arena and the stack's buffers, and
//! the client copies it between the arena and the engine's buffers. Neither process inspects memory that the other can
//! write; each copies it first.
//!
//! If the client ends, netstackd resets all flows and ends, too. If netstackd ends or sends an invalid message, the
//! client resets all streams and ends with [`Crash::Netstack`](quictun_io::crash::Crash). The program that started both
//! processes then starts them again.

mod exchange;
mod message;
mod remote;
mod remote_socket;
mod serve;
#[cfg(test)]
pub mod tests;

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use quictun_ipc::HandshakeError;
use quictun_sys::confine::{self, FileAccess, SyscallSet};
use quictun_sys::{NullStreams, Signals, Tun, ignore_user_signals};
use rustix::net::sockopt::socket_peercred;
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};

use remote::PATIENCE;

pub use remote::{NetstackProcess, PIECE_MOST, RemoteStack};
pub use remote_socket::RemoteSocket;
pub use serve::NetstackError;

/// The name under which a program is started to act as this process.
pub const NAME: &str = "quictun-netstackd";

/// Serves the stack behind a device to the client at the other end of `socket`, until that client ends.
///
/// The process must have a single thread and no other purpose: it keeps only the rights, files and system calls needed
/// here. Its standard streams become `/dev/null`, and errors after that show only in its exit code. It should have been
/// started with [`quictun_sys::with_standard_streams_only`].
///
/// # Errors
///
/// Fails if the process cannot begin to serve, or when the device is gone.
pub fn run(tun: Tun, socket: OwnedFd) -> Result<(), NetstackError> {
    end_with_parent(&socket)?;
    // A signal to the process group is meant for the client, which drains its connections. They need the stack for
    // that.
    let _held = Signals::hold(&[Signal::TERM, Signal::INT, Signal::QUIT, Signal::HUP])?;
    ignore_user_signals()?;
    let nothing = NullStreams::open()?;
    confine::give_up_rights()?;
    confine::give_up_files(&FileAccess::None)?;
    let channel = match quictun_ipc::accept(socket, PATIENCE) {
        // The client ended before it connected. It reports the reason itself, if there is one.
        Err(HandshakeError::Closed) => return Ok(()),
        channel => channel?,
    };
    let served = serve::StackServer::new(tun, channel)?;
    // The device and the socket have other descriptors. The process that handles packets must not hold a log file or a
    // terminal.
    nothing.replace()?;
    confine::give_up_calls(SyscallSet::Few)?;
    served.run()?;
    Ok(())
}

/// Makes the kernel kill this process when its parent ends, which holds the device and its routes. The parent has made
/// the pair of sockets of which `socket` is one.
pub fn end_with_parent(socket: impl AsFd) -> io::Result<()> {
    // `getppid` does not suffice: if the parent has ended already, it returns the process that adopted this one, often
    // the first of a namespace.
    let parent = socket_peercred(socket)?.pid;
    // If the parent is the first process of a namespace, its end kills all processes of the namespace anyway.
    if parent == Pid::INIT {
        return Ok(());
    }
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // The parent may have ended before the call. Then there will be no signal.
    if getppid() != Some(parent) {
        return Err(io::Error::other("the parent process has ended"));
    }
    Ok(())
}
