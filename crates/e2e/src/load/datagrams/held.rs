//! Many datagram flows: idle ones, and ones that end.
//!
//! A client has about 700 flows on each worker of a server, before a new one ends an idle one. So many idle flows have many
//! clients, which the server knows by name.

use std::fmt::Write as _;
use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use quictun_testbed::deadline;
use quictun_testbed::program::Program;
use quictun_testbed::tunnel::{Home, START, listen_address, server_pin};

use super::traffic::{DatagramApplication, connect};
use super::{APPLICATION, FORWARD, SERVER};
use crate::load::machines::{LinkKind, LinkedMachines};
use crate::load::report::{LoadReport, figure};
use crate::load::tunnel::{LoadOptions, allow_files};

/// The size of `idle` and its limit.
#[derive(Args, Clone, Copy, Debug)]
pub struct IdleOptions {
    /// Number of idle flows to hold.
    #[arg(long, default_value_t = 10_000)]
    pub flows: usize,
    /// Resident KiB that a flow may cost at each end.
    #[arg(long, default_value_t = 12.0)]
    pub max_kib: f64,
}

/// The size of `churn` and its limits.
#[derive(Args, Clone, Copy, Debug)]
pub struct ChurnOptions {
    /// Total number of flows.
    #[arg(long, default_value_t = 100_000)]
    pub flows: u64,
    /// Number of concurrent programs, each of which has one flow after the other.
    #[arg(long, default_value_t = 64)]
    pub parallel: u64,
    /// Percent by which memory may grow after the first tenth of the flows.
    #[arg(long, default_value_t = 5.0)]
    pub max_growth: f64,
    /// Maximum number of additional descriptors that each program may hold after the flows.
    #[arg(long, default_value_t = 4.0)]
    pub max_descriptors: f64,
}

/// Flows of one client.
const FLOWS_EACH: usize = 700;

/// Flows of each client before memory is first measured.
const WARM_EACH: usize = 8;

/// Descriptors for everything else.
const RESERVE: u64 = 256;

/// Time in which flows end that are idle after a second.
const END: Duration = Duration::from_secs(30);

/// The sides, in the order of [`HeldSite::memory`].
const SIDES: [&str; 2] = ["server", "clients"];

/// Opens flows, uses each once, and holds them.
///
/// # Errors
///
/// Fails if a flow cannot be opened, or does not stay.
pub fn idle(plan: &LoadOptions, load: &IdleOptions) -> Result<LoadReport> {
    let flows = load.flows;
    allow_files(flows as u64 + RESERVE)?;
    let machines = machines(plan)?;
    let clients = flows.div_ceil(FLOWS_EACH);
    let site = HeldSite::start(&machines, plan, clients, "1h")?;
    let mut held = Vec::new();
    let open = |held: &mut Vec<UdpSocket>, count: usize| -> Result<()> {
        while held.len() < count {
            let number = held.len();
            let at = forward(number % clients);
            let socket = machines.near.within(|| connect(at));
            held.push(socket.with_context(|| format!("flow {number}"))?);
        }
        Ok(())
    };
    let warm = WARM_EACH * clients;
    open(&mut held, warm)?;
    let (before, descriptors) = (site.memory()?, site.server.descriptors()?);
    open(&mut held, warm.max(flows))?;
    let (after, sockets) = (site.memory()?, site.server.descriptors()?);
    let opened = held.len() - warm;
    ensure!(
        sockets - descriptors == opened,
        "the server has {} sockets for {opened} flows",
        sockets - descriptors
    );
    let title = format!("{flows} idle datagram flows, {clients} clients");
    let mut report = LoadReport::new(title);
    for (at, side) in SIDES.into_iter().enumerate() {
        let kib = |bytes: u64| figure(bytes) / 1024.0;
        report.add(format!("{side}: resident before"), kib(before[at]), "KiB");
        report.add(format!("{side}: resident with them"), kib(after[at]), "KiB");
        let each = kib(after[at].saturating_sub(before[at])) / figure(opened as u64);
        let row = format!("{side}: resident per flow");
        report.add_limited(row, each, "KiB", Some(load.max_kib));
    }
    site.end()?;
    machines.end()?;
    Ok(report)
}

/// Opens flows, uses each once, and leaves it: it is idle after a second, or ends early for another one.
///
/// # Errors
///
/// Fails if a flow cannot be opened.
pub fn churn(plan: &LoadOptions, load: &ChurnOptions) -> Result<LoadReport> {
    allow_files(load.parallel + RESERVE)?;
    let machines = machines(plan)?;
    let site = HeldSite::start(&machines, plan, 1, "1s")?;
    let descriptors = site.descriptors()?;
    let storm = |flows: u64| -> Result<()> {
        let begun = AtomicU64::new(0);
        std::thread::scope(|scope| {
            let program = || {
                while begun.fetch_add(1, Ordering::Relaxed) < flows {
                    machines.near.within(|| connect(FORWARD))?;
                }
                Ok::<_, anyhow::Error>(())
            };
            let threads: Vec<_> = (0..load.parallel).map(|_| scope.spawn(program)).collect();
            threads.into_iter().try_for_each(|thread| {
                let done = thread.join();
                done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            })
        })?;
        // If some stay, the report shows that.
        drop(deadline::until("the flows to end", END, || {
            site.descriptors().is_ok_and(|now| now[0] <= descriptors[0])
        }));
        Ok(())
    };
    storm(load.flows.div_ceil(10))?;
    let warm = site.memory()?;
    storm(load.flows - load.flows.div_ceil(10))?;
    let (memory, left) = (site.memory()?, site.descriptors()?);
    let title = format!("{} datagram flows, {} at once", load.flows, load.parallel);
    let mut report = LoadReport::new(title);
    for (at, side) in SIDES.into_iter().enumerate() {
        let kib = |bytes: u64| figure(bytes) / 1024.0;
        report.add(format!("{side}: resident when warm"), kib(warm[at]), "KiB");
        report.add(
            format!("{side}: resident at the end"),
            kib(memory[at]),
            "KiB",
        );
        let growth = (kib(memory[at]) / kib(warm[at]) - 1.0) * 100.0;
        let row = format!("{side}: growth");
        report.add_limited(row, growth, "%", Some(load.max_growth));
        let left = figure(left[at].saturating_sub(descriptors[at]) as u64);
        let row = format!("{side}: descriptors left");
        report.add_limited(row, left, "", Some(load.max_descriptors));
    }
    site.end()?;
    machines.end()?;
    Ok(report)
}

fn machines(plan: &LoadOptions) -> Result<LinkedMachines> {
    LinkedMachines::new(match &plan.link {
        LinkKind::Loopback => &LinkKind::Veth,
        link => link,
    })
}

/// Returns the address of a client's forward.
fn forward(client: usize) -> SocketAddr {
    let number = u16::try_from(client).unwrap_or(u16::MAX);
    SocketAddr::new(FORWARD.ip(), FORWARD.port().saturating_add(number))
}

/// A server, and clients that it knows by their secrets.
struct HeldSite {
    server: Program,
    clients: Vec<(Program, Home)>,
    _home: Home,
}

impl HeldSite {
    /// Starts the programs. Flows end after `idle` without a datagram.
    fn start(
        machines: &LinkedMachines,
        plan: &LoadOptions,
        clients: usize,
        idle: &str,
    ) -> Result<Self> {
        machines
            .far
            .within(|| DatagramApplication::default().serve(APPLICATION))?;
        let home = Home::new()?.with_programs(plan.programs.as_deref());
        let mut file = String::new();
        for number in 0..clients {
            let secret = format!("a secret of client number {number}");
            fs::write(home.path().join(format!("{number}.psk")), secret)?;
            writeln!(
                file,
                "[[client]]\nname = 'c{number}'\npsk_file = '{number}.psk'\n\
                 allow = ['udp:127.0.0.1:{APPLICATION}']"
            )?;
        }
        fs::write(home.path().join("server.toml"), file)?;
        let mut command = home.command(&machines.far, "quictun")?;
        let listen = SocketAddr::new(machines.address, SERVER).to_string();
        command.args(["server", "-c", "server.toml", "--listen", &listen]);
        command.args(["--http", "off", "--datagram-idle", idle]);
        let mut server = Program::start("server", command.args(&plan.server))?;
        let line = server.wait_for("Server endpoint start up successful", START)?;
        let (address, pin) = (listen_address(&line)?, server_pin(&line)?);
        let start = |number| {
            let own = Home::new()?.with_programs(plan.programs.as_deref());
            let mut command = own.command(&machines.near, "quictun")?;
            let secret = home.path().join(format!("{number}.psk"));
            let forwards = format!("udp:{}=127.0.0.1:{APPLICATION}", forward(number));
            command.args(["client", "--server", &address, "--pin", &pin]);
            command.arg("--psk-file").arg(secret);
            command.args(["--http", "off", "--datagram-idle", idle, "-L", &forwards]);
            let mut program = Program::start("client", command.args(&plan.client))?;
            program.wait_for("Client endpoint start up successful", START)?;
            Ok((program, own))
        };
        Ok(Self {
            clients: (0..clients).map(start).collect::<Result<Vec<_>>>()?,
            server,
            _home: home,
        })
    }

    /// Returns the resident memory of the server and of all clients, bytes.
    fn memory(&self) -> Result<[u64; 2]> {
        let clients = self.clients.iter().map(|(it, _)| it.resident_bytes());
        let clients = clients.sum::<Result<u64>>()?;
        Ok([self.server.resident_bytes()?, clients])
    }

    fn descriptors(&self) -> Result<[usize; 2]> {
        let clients = self.clients.iter().map(|(it, _)| it.descriptors());
        let clients = clients.sum::<Result<usize>>()?;
        Ok([self.server.descriptors()?, clients])
    }

    /// Ends the programs; checks that all of them still run.
    fn end(mut self) -> Result<()> {
        let clients = self.clients.iter_mut().map(|(client, _)| client);
        for program in clients.chain([&mut self.server]) {
            if let Some(status) = program.ended()? {
                anyhow::bail!("a program ended: {status}");
            }
            program.silence();
        }
        Ok(())
    }
}
