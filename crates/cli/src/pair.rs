//! The two processes of a tunnel with a TUN device: `quictun-netstackd`, which has the device, and a client, which has
//! the keys.
//!
//! If one of them dies, the other one is useless. It is ended, too, and so are the connections that went through the
//! device. Two new processes then take over the device ([`crate::supervisor`]). Meanwhile packets wait in the device,
//! and none bypasses the tunnel.

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
use crate::supervisor::PairMember;

/// The program of this process, also if its file has been replaced or removed.
const SELF: &str = "/proc/self/exe";

/// The process ids of both processes.
///
/// Each process is in a process group of its own. A terminal sends signals such as that of Ctrl-C to its foreground
/// group, which is the supervisor's. The supervisor forwards them as needed, because the stack must outlive the
/// client's drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pair {
    pub(crate) netstackd: u32,
    pub(crate) client: u32,
}

impl Pair {
    /// Starts both processes, each with `start`. `client` is the client's command line; this function adds the
    /// arguments for its socket.
    pub(crate) fn start(
        tun: &Tun,
        mut client: Command,
        mut start: impl FnMut(PairMember, &mut Command) -> std::io::Result<u32>,
    ) -> anyhow::Result<Self> {
        let program = this_program()?;
        let (ours, theirs) = quictun_ipc::sockets().context("cannot make the pair of sockets")?;
        let device = tun
            .as_fd()
            .try_clone_to_owned()
            .context("cannot duplicate the descriptor of the TUN device")?;
        let mut netstackd = Command::new(program);
        netstackd
            .arg0(NAME)
            .env_clear()
            .process_group(0)
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::from(device));
        with_standard_streams_only(&mut netstackd);
        let netstackd = start(PairMember::Netstackd, &mut netstackd);
        let netstackd = netstackd.context("cannot start the process with the network stack")?;
        client
            .args(["--netstack-fd", "0"])
            .process_group(0)
            .stdin(Stdio::from(ours));
        let client = start(PairMember::Client, &mut client).context("cannot start the client")?;
        Ok(Self { netstackd, client })
    }
}

/// Returns the path of this program. If another file has taken its place since, which may be another version, the path
/// still leads to this one.
pub(crate) fn this_program() -> anyhow::Result<PathBuf> {
    let path = std::env::current_exe().context("cannot find this program's file")?;
    // For a replaced file the kernel appends ` (deleted)` to the path.
    Ok(if path.exists() { path } else { SELF.into() })
}

/// Resets the TCP connections that go through the device of this network: no process holds their other end any more.
pub(crate) fn end_flows() {
    let own: Vec<IpAddr> = tun_device::ADDRESSES.iter().map(|it| it.own).collect();
    if let Err(error) = end_tcp(&own) {
        say(&format!(
            "quictun: connections through the device may hang until their programs send something: {error}"
        ));
    }
}
