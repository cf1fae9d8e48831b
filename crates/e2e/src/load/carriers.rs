//! The carriers of a native tunnel, QUIC and TLS over TCP, with real programs and real packets.
//!
//! * [`outage`] drops UDP under running programs, and lets it pass again.
//! * [`upgrades`] replaces the processes of the tunnel under running programs.
//! * [`first_byte`] measures the time that the choice of a carrier takes.
//! * [`rates`] compares carriers, an earlier build and ssh on clean links, and `grid` the carriers on lossy ones.

pub mod first_byte;
mod flow_rate;
mod grid;
mod iperf3;
pub mod native_tunnel;
pub mod outage;
mod program;
mod progress;
mod psql;
pub mod rates;
mod rsync;
mod ssh;
pub mod udp_block;
pub mod upgrades;

use anyhow::Result;
use clap::Subcommand;

use super::machines::{EmulatedPath, LinkKind};
use super::report::LoadReport;

/// One of the measurements.
#[derive(Clone, Debug, Subcommand)]
pub enum CarriersLoad {
    /// Drops UDP under ssh, psql, rsync and iperf3 on an emulated link, and lets it pass again: measures the longest time
    /// without progress that the program sees, and the time until QUIC carries again. Each program verifies what it
    /// receives.
    Outage(outage::OutageOptions),
    /// Replaces the server and the client under ssh, psql, rsync and iperf3 on an emulated link, in turns: measures the
    /// longest time without progress that the program sees. Each program verifies what it receives.
    Upgrades(upgrades::UpgradeOptions),
    /// Measures the time from an application's first connection to a new client to the first byte of an answer, on an
    /// emulated link: UDP passes, disappears or is rejected, or is known to disappear.
    FirstByte(first_byte::FirstByteOptions),
    /// Measures rate and processor time of both carriers, of an earlier build and of `ssh -L`, in turns, on two cables:
    /// one with offloads and one that carries single packets. --link chooses one of them.
    Rates(rates::RatesOptions),
    /// Measures the rate of both carriers and of the client's own choice on emulated links with delay, loss and jitter.
    Grid(grid::GridOptions),
}

/// The links, and additional arguments for the programs.
#[derive(Clone, Debug)]
pub struct CarriersPlan {
    /// The path between the machines of all measurements except [`rates`].
    pub path: EmulatedPath,
    /// The links of [`rates`].
    pub cables: Vec<LinkKind>,
    /// Additional arguments for `quictun server`.
    pub server: Vec<String>,
    /// Additional arguments for `quictun client`.
    pub client: Vec<String>,
}

/// Measures, and reports. Must run in [`quictun_testbed::isolation`].
///
/// # Errors
///
/// Fails if a tunnel or a program does not work, or if a byte is wrong.
pub fn run(plan: &CarriersPlan, load: &CarriersLoad) -> Result<LoadReport> {
    match load {
        CarriersLoad::Outage(load) => outage::run(plan, load),
        CarriersLoad::Upgrades(load) => upgrades::run(plan, load),
        CarriersLoad::FirstByte(load) => first_byte::run(plan, load),
        CarriersLoad::Rates(load) => rates::run(plan, load),
        CarriersLoad::Grid(load) => grid::run(plan, load),
    }
}
