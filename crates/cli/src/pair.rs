//! The two processes of a tunnel for devices: `quictun-netstackd`, which has the device, and a client, which has the keys.
//!
//! Where one of them dies the other is of no use: it is ended, connections that went through the device are too, and
//! two new ones take over the device ([`crate::supervisor`]). Meanwhile what is sent into it waits there: nothing goes past
//! the tunnel.

use std::net::IpAddr;
use std::os::fd::AsFd as _;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::Context as _;
use quictun_stackd::netstackd::NAME;
use quictun_stackd::tun_device;
use quictun_sys::{Tun, end_tcp, with_standard_streams_only};

use crate::exit::say;
use crate::netstackd;
use crate::supervisor::Role;

/// What this process runs, under whatever name or none.
const SELF: &str = "/proc/self/exe";

/// Both, by process id.
///
/// Each is in a process group of its own: what a terminal tells its foreground, Ctrl-C for one, is for whoever started
/// them, who passes on what there is to be passed on. The stack has to outlive the client's drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pair {
    pub(crate) netstackd: u32,
    pub(crate) client: u32,
}

impl Pair {
    /// Starts both, each by `start`; the client is whatever `client` says, which is told of its socket here.
    pub(crate) fn start(
        tun: &Tun,
        names: bool,
        mut client: Command,
        mut start: impl FnMut(Role, &mut Command) -> std::io::Result<u32>,
    ) -> anyhow::Result<Self> {
        let program = this_program()?;
        let (ours, theirs) = quictun_ipc::sockets().context("sockets between two processes")?;
        let device = tun.as_fd().try_clone_to_owned().context("the device")?;
        let mut netstackd = Command::new(program);
        netstackd
            .arg0(NAME)
            .args(names.then_some(netstackd::NAMES))
            .env_clear()
            .process_group(0)
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::from(device));
        with_standard_streams_only(&mut netstackd);
        let netstackd = start(Role::Netstackd, &mut netstackd);
        let netstackd = netstackd.context("starting the process with the network stack")?;
        client
            .args(["--netstack-fd", "0"])
            .process_group(0)
            .stdin(Stdio::from(ours));
        let client = start(Role::Client, &mut client).context("starting the client")?;
        Ok(Self { netstackd, client })
    }
}

/// This program once more; the very same where another one has taken its place since, which may be of another version.
pub(crate) fn this_program() -> anyhow::Result<PathBuf> {
    let path = std::env::current_exe().context("finding this program")?;
    // The kernel says `(deleted)` behind it then.
    Ok(if path.exists() { path } else { SELF.into() })
}

/// Ends what goes through the device of this network: nobody knows of it any more.
pub(crate) fn end_flows() {
    let own: Vec<IpAddr> = tun_device::ADDRESSES.iter().map(|it| it.own).collect();
    if let Err(error) = end_tcp(&own) {
        say(&format!(
            "quictun: connections through the device may hang until their programs send something: {error}"
        ));
    }
}
