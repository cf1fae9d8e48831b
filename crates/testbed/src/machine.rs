//! Hosts made of network namespaces, connected by cables (veth pairs).
//!
//! Use these only inside [`crate::isolation::isolated`]. The test itself runs on [`Machine::here`].

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::program::{self, Program, installed};

/// The programs of [`Machine::run`] that a bare system lacks, each with its package.
const PACKAGES: [(&str, &str); 4] = [
    ("ip", "iproute2"),
    ("nft", "nftables"),
    ("ethtool", "ethtool"),
    ("pgrep", "procps"),
];

/// A host with its own addresses, routes, ports and firewall.
#[derive(Debug)]
pub struct Machine {
    namespace: PathBuf,
    holder: Holder,
}

/// Keeps a host's namespace alive.
#[derive(Debug)]
enum Holder {
    /// The test runs in the namespace.
    Test,
    /// A process inside the namespace; cables refer to the namespace by its id.
    Process(Program),
    /// A descriptor of this process, to which [`Machine::namespace`] refers.
    Descriptor(#[expect(dead_code, reason = "held open, never read")] OwnedFd),
}

impl Machine {
    /// Returns the host on which the test runs.
    pub fn here() -> Self {
        Self {
            namespace: "/proc/self/ns/net".into(),
            holder: Holder::Test,
        }
    }

    /// Returns the host of an existing network namespace.
    pub fn of(namespace: OwnedFd) -> Self {
        let descriptor = namespace.as_raw_fd();
        let path = format!("/proc/{}/fd/{descriptor}", std::process::id());
        Self {
            namespace: path.into(),
            holder: Holder::Descriptor(namespace),
        }
    }

    /// Creates a host that has only a loopback device.
    ///
    /// # Errors
    ///
    /// Fails if namespaces are not permitted.
    pub fn new(name: &str) -> Result<Self> {
        let mut hold = program::command("unshare");
        hold.args([
            "--net",
            "--",
            "sh",
            "-c",
            "ip link set lo up && echo up && exec cat",
        ]);
        let mut holder = Program::start(name, &mut hold)?;
        holder.wait_for("up", Duration::from_secs(20))?;
        // The process prints nothing more, and a program may read the output of a load tool.
        holder.silence();
        let namespace = format!("/proc/{}/ns/net", holder.pid()).into();
        Ok(Self {
            namespace,
            holder: Holder::Process(holder),
        })
    }

    /// Returns a command that runs on this host and dies with the calling thread.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        if self.is_test() {
            return program::command(program);
        }
        let mut net = std::ffi::OsString::from("--net=");
        net.push(&self.namespace);
        let mut command = Command::new("nsenter");
        command
            .arg(net)
            .args(["--", "setpriv", "--pdeathsig", "KILL", "--"])
            .arg(program);
        command
    }

    /// Runs a command line to its end and returns its output. The line is split at white space, without quoting.
    ///
    /// # Errors
    ///
    /// Fails if the command fails; the error contains its output.
    pub fn run(&self, line: &str) -> Result<String> {
        let mut words = line.split_whitespace();
        let program = words.next().context("an empty command line")?;
        let program = match PACKAGES.iter().find(|(of, _)| *of == program) {
            Some((_, package)) => installed(program, package)?,
            None => program.into(),
        };
        program::run(self.command(program).args(words)).with_context(|| line.to_owned())
    }

    fn is_test(&self) -> bool {
        matches!(self.holder, Holder::Test)
    }

    /// Runs `act` on a thread in this host's network; sockets created there stay there.
    ///
    /// # Errors
    ///
    /// Fails if the host's namespace cannot be entered, and returns the error of `act`.
    pub fn within<T: Send>(&self, act: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        let namespace = File::open(&self.namespace)?;
        std::thread::scope(|scope| {
            let entered = scope.spawn(move || {
                if !self.is_test() {
                    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
                }
                act()
            });
            entered
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Connects two hosts with a cable: an interface named `device` at both ends, with these addresses (`10.0.0.1/24`).
    ///
    /// # Errors
    ///
    /// Fails if `other` was not made by [`Machine::new`], or if a command fails.
    pub fn join(
        &self,
        other: &Self,
        device: &str,
        address: &str,
        other_address: &str,
    ) -> Result<()> {
        let Holder::Process(peer) = &other.holder else {
            bail!("a cable needs a host made by Machine::new at its other end");
        };
        let peer = peer.pid();
        self.run(&format!(
            "ip link add {device} type veth peer name {device} netns {peer}"
        ))?;
        for (host, address) in [(self, address), (other, other_address)] {
            // Without duplicate address detection the address can be used at once.
            host.run(&format!("ip addr add {address} dev {device} nodad"))?;
            host.run(&format!("ip link set {device} up"))?;
        }
        Ok(())
    }
}

/// Runs a command line on the host of the test.
///
/// # Errors
///
/// Fails if the command fails; the error contains its output.
pub fn run(line: &str) -> Result<String> {
    Machine::here().run(line)
}
