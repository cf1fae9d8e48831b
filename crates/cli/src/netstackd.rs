//! `quictun-netstackd`: this program under another name, as the process that runs the network stack.
//!
//! Standard input is the socket to the client; standard output is the TUN device. Only [`crate::pair`] starts it.

use std::os::fd::AsFd as _;
use std::process::ExitCode;

use anyhow::Context as _;
use quictun_stackd::netstackd::NAME;
use quictun_sys::Tun;

use crate::exit;

/// The only argument that the process knows. With it, the process carries queries to name servers, too.
pub(crate) const NAMES: &str = "--names";

pub(crate) fn main() -> ExitCode {
    let names = std::env::args_os().any(|argument| argument == NAMES);
    exit::report(NAME, run(names).map_err(Into::into)).into()
}

fn run(names: bool) -> anyhow::Result<()> {
    let socket = std::io::stdin().as_fd().try_clone_to_owned();
    let socket = socket.context("cannot take the socket to the client from standard input")?;
    let tun = Tun::inherit(1).context("cannot take the TUN device from standard output")?;
    Ok(quictun_stackd::netstackd::run(tun, socket, names)?)
}
