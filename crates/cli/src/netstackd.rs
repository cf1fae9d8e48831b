//! `quictun-netstackd`: this program under another name, as the process that has the network stack.
//!
//! Its standard input is the socket to the client, its standard output the device. Nobody starts it but [`crate::pair`].

use std::os::fd::AsFd as _;
use std::process::ExitCode;

use anyhow::Context as _;
use quictun_stackd::netstackd::NAME;
use quictun_sys::Tun;

use crate::exit;

/// Its only argument: questions to name servers are carried.
pub(crate) const NAMES: &str = "--names";

pub(crate) fn main() -> ExitCode {
    let names = std::env::args_os().any(|argument| argument == NAMES);
    exit::report(NAME, run(names).map_err(Into::into)).into()
}

fn run(names: bool) -> anyhow::Result<()> {
    let socket = std::io::stdin().as_fd().try_clone_to_owned();
    let socket = socket.context("the socket to the client, as standard input")?;
    let tun = Tun::inherit(1).context("the device, as standard output")?;
    Ok(quictun_stackd::netstackd::run(tun, socket, names)?)
}
