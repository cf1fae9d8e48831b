//! Datagrams through `-L udp:`, with real programs and real packets.
//!
//! * [`latency`] measures round trips of small datagrams, alone and beside a bulk transfer.
//! * [`packets`] compares packets per second and processor time with hysteria and `WireGuard`.
//! * [`held`] holds many idle flows, and opens many that end.

pub mod held;
pub mod latency;
pub mod packets;
mod traffic;
pub mod wireguard;

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::Result;
use clap::Subcommand;

use super::carriers::native_tunnel::{NativeClient, NativeServer};
use super::carriers::rates::serve;
use super::machines::{EmulatedPath, LinkedMachines};
use super::measured::MeasuredApplication;
use super::report::LoadReport;
use super::tunnel::LoadOptions;
use traffic::DatagramApplication;

/// One of the measurements.
#[derive(Clone, Debug, Subcommand)]
pub enum DatagramsLoad {
    /// Sends 200-byte datagrams to an echo, 50 per second: measures the delay that the tunnel adds and the loss beside a
    /// bulk transfer on an emulated link, and the delay on a cable.
    Latency(latency::LatencyOptions),
    /// Sends 1200-byte datagrams on a cable: measures packets per second and processor time per packet beside hysteria and
    /// wireguard-go.
    Packets(packets::PacketsOptions),
    /// Holds idle flows: measures resident memory per flow.
    Idle(held::IdleOptions),
    /// Opens flows that end: memory must stay flat, and no descriptor may be left.
    Churn(held::ChurnOptions),
}

/// Measures, and reports. Must run in [`quictun_testbed::isolation`].
///
/// # Errors
///
/// Fails if a tunnel or a program does not work.
pub fn run(plan: &LoadOptions, path: EmulatedPath, load: &DatagramsLoad) -> Result<LoadReport> {
    match load {
        DatagramsLoad::Latency(load) => latency::run(plan, path, load),
        DatagramsLoad::Packets(load) => packets::run(plan, load),
        DatagramsLoad::Idle(load) => held::idle(plan, load),
        DatagramsLoad::Churn(load) => held::churn(plan, load),
    }
}

/// The port of the application on the far machine, and that of the forward to it on the near machine.
const APPLICATION: u16 = 9000;
const FORWARD: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 5400);

/// The port on which the server listens, on the far machine.
const SERVER: u16 = 7500;

/// A tunnel with a forward of connections and one of datagrams, and the applications of both.
struct DatagramSite<'a> {
    machines: &'a LinkedMachines,
    server: NativeServer<'a>,
    client: NativeClient<'a>,
    streams: MeasuredApplication,
    datagrams: DatagramApplication,
}

impl<'a> DatagramSite<'a> {
    fn start(machines: &'a LinkedMachines, plan: &LoadOptions) -> Result<Self> {
        let (streams, target) = serve(machines)?;
        let datagrams = DatagramApplication::default();
        machines.far.within(|| datagrams.serve(APPLICATION))?;
        let rule = format!("udp:127.0.0.1:{APPLICATION}");
        let allow = [&["--allow".to_owned(), rule][..], &plan.server].concat();
        let programs = plan.programs.as_deref();
        let server = NativeServer::start(machines, programs, SERVER, &target.to_string(), &allow)?;
        let forward = format!("udp:{FORWARD}=127.0.0.1:{APPLICATION}");
        let client = server.client(&[&["-L".to_owned(), forward][..], &plan.client].concat())?;
        Ok(Self {
            machines,
            server,
            client,
            streams,
            datagrams,
        })
    }

    /// Returns the address of the application, beside the tunnel.
    fn direct(&self) -> SocketAddr {
        (self.machines.address, APPLICATION).into()
    }

    /// Ends the tunnel; checks that both programs still run.
    fn end(self) -> Result<()> {
        self.client.end()?;
        self.server.end()
    }
}
