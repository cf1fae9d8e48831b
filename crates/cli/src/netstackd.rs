//! `quictun-netstackd`: this program under another name, as the process that runs the network stack.
//!
//! Standard input is the socket to the client; standard output is the TUN device. Only [`crate::pair`] starts it.

use std::os::fd::AsFd as _;
use std::process::ExitCode;

use anyhow::Context as _;
use quictun_stackd::netstackd::NAME;
use quictun_sys::Tun;

use crate::exit;

pub(crate) fn main() -> ExitCode {
    exit::report(NAME, run().map_err(Into::into)).into()
}

fn run() -> anyhow::Result<()> {
    let socket = std::io::stdin().as_fd().try_clone_to_owned();
    let socket = socket.context("cannot take the socket to the client from standard input")?;
    let tun = Tun::inherit(1).context("cannot take the TUN device from standard output")?;
    Ok(quictun_stackd::netstackd::run(tun, socket)?)
}
