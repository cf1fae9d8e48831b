//! A network that does not carry UDP, made with nftables.

use anyhow::Result;
use quictun_testbed::machine::Machine;

use crate::load::machines::LinkedMachines;

/// The fate of UDP packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UdpFate {
    /// They disappear in both directions.
    Swallowed,
    /// The far machine answers them with ICMP: port unreachable.
    Rejected,
}

impl UdpFate {
    /// Returns the chains of the near and of the far machine.
    fn chains(self) -> [&'static str; 2] {
        const REJECT: &str =
            "chain arrivals { type filter hook input priority 0; meta l4proto udp reject; };";
        match self {
            Self::Swallowed => [DROP; 2],
            Self::Rejected => ["", REJECT],
        }
    }
}

/// The chain that drops UDP, but not that of a machine to itself.
const DROP: &str = "chain arrivals { type filter hook prerouting priority 0; iifname != lo meta l4proto udp drop; };";

/// Drops all UDP packets that arrive at a machine from others.
///
/// # Errors
///
/// Fails if nftables is not installed or not permitted.
pub fn swallow_udp(machine: &Machine) -> Result<()> {
    add_table(machine, DROP)
}

fn add_table(machine: &Machine, chain: &str) -> Result<()> {
    let file = tempfile::NamedTempFile::new()?;
    std::fs::write(file.path(), format!("table inet no_udp {{ {chain} }}\n"))?;
    machine.run(&format!("nft -f {}", file.path().display()))?;
    Ok(())
}

/// Blocks UDP between two machines.
///
/// # Errors
///
/// Fails if nftables is not installed or not permitted.
pub fn block_udp(machines: &LinkedMachines, fate: UdpFate) -> Result<()> {
    let [near, far] = fate.chains();
    add_table(&machines.near, near)?;
    add_table(&machines.far, far)
}

/// Lets UDP pass again.
///
/// # Errors
///
/// Fails if UDP is not blocked.
pub fn pass_udp(machines: &LinkedMachines) -> Result<()> {
    for machine in [&machines.near, &machines.far] {
        machine.run("nft delete table inet no_udp")?;
    }
    Ok(())
}
