//! A client and a server of this workspace under load, with the application, on loopback or on two machines.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use quictun_testbed::connection::Endpoint;
use quictun_testbed::machine::Machine;
use quictun_testbed::program::Program;
use quictun_testbed::rest;
use quictun_testbed::tunnel::{Client, Home, Server};
use quictun_testbed::work::Work;
use quictun_testbed::{application, deadline};

use super::machines::{LinkKind, LinkedMachines};
use super::relay::Relay;

const SETTLED: Duration = Duration::from_secs(10);

/// The programs to start and their settings.
#[derive(Clone, Debug)]
pub struct LoadOptions {
    /// The link between the two programs.
    pub link: LinkKind,
    /// Additional arguments for `quictun-server`.
    pub server: Vec<String>,
    /// Additional arguments for `quictun-client`.
    pub client: Vec<String>,
    /// The directory of the programs; `None` for the programs under test.
    pub programs: Option<PathBuf>,
    /// True if clients reach the server through a [`Relay`].
    pub is_relayed: bool,
}

/// Both programs, ready for load.
#[derive(Debug)]
pub struct LoadTunnel {
    /// The first client of the site.
    pub client: Client,
    /// The server of the site.
    pub server: Server,
    /// The relay in front of the clients, if the plan has one.
    pub relay: Option<Relay>,
    /// The clients in addition to the first one.
    others: Vec<Client>,
    /// The application, if it is a separate process.
    application: Option<Program>,
    /// The HTTP interfaces of server and client.
    http: [SocketAddr; 2],
    machines: LinkedMachines,
    target: SocketAddr,
}

impl LoadTunnel {
    /// Starts an application that `serve` runs on its own threads, and a tunnel that leads to it. Also returns the
    /// address of the application's listener.
    ///
    /// # Errors
    ///
    /// Fails if any part does not start.
    pub fn start(
        plan: &LoadOptions,
        serve: impl FnOnce(TcpListener) + Send,
    ) -> Result<(Self, SocketAddr)> {
        Self::start_with(plan, |far, address| {
            let target = far.within(|| {
                let listener = application::listen(address)?;
                let target = listener.local_addr()?;
                serve(listener);
                Ok(target)
            })?;
            Ok((target, None))
        })
    }

    /// Starts an application with `application`, which receives the address to listen on, and a tunnel that leads to
    /// it. Also returns the application's address.
    ///
    /// # Errors
    ///
    /// Fails if any part does not start.
    pub fn start_with(
        plan: &LoadOptions,
        application: impl FnOnce(&Machine, SocketAddr) -> Result<(SocketAddr, Option<Program>)>,
    ) -> Result<(Self, SocketAddr)> {
        let machines = LinkedMachines::new(&plan.link)?;
        if plan.is_relayed && matches!(plan.link, LinkKind::Veth | LinkKind::Packets) {
            // The clients' path has the cable's MTU from end to end. On loopback, each new connection probes with
            // 64 KiB, which takes the server a millisecond.
            machines.near.run("ip link set dev lo mtu 1500")?;
        }
        let LinkedMachines {
            near, far, address, ..
        } = &machines;
        let (target, application) = application(far, (*address, 0).into())?;
        let [server_http, client_http] = free_ports()?;
        let arguments = [
            format!("--listen-on={address}:0"),
            format!("--httpd-listen-on=127.0.0.1:{server_http}"),
        ];
        let home = || Ok::<_, anyhow::Error>(Home::new()?.with_programs(plan.programs.as_deref()));
        let server = Server::start_at(far, home()?, &borrowed(&arguments, &plan.server))?;
        let relay = || near.within(|| Relay::start(server.address));
        let relay = plan.is_relayed.then(relay).transpose()?;
        let arguments = [
            format!("--token-source=tcp:{target}"),
            format!("--httpd-listen-on=127.0.0.1:{client_http}"),
        ];
        let dialled = relay.as_ref().map_or(server.address, |relay| relay.address);
        let endpoint = dialled.to_string();
        let client = Client::start_at(
            near,
            home()?,
            &endpoint,
            &borrowed(&arguments, &plan.client),
        )?;
        let http =
            [server_http, client_http].map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
        Ok((
            Self {
                client,
                server,
                relay,
                others: Vec::new(),
                application,
                http,
                machines,
                target,
            },
            target,
        ))
    }

    /// Starts `count` additional clients that lead to the same application in the same way.
    ///
    /// # Errors
    ///
    /// Fails if a client does not start.
    pub fn add_clients(&mut self, plan: &LoadOptions, count: usize) -> Result<()> {
        let dialled = self.relay.as_ref().map(|relay| relay.address);
        let dialled = dialled.unwrap_or(self.server.address);
        for number in 0..count {
            let client = self.another_client(plan, dialled);
            let client = client.with_context(|| format!("client {number}"))?;
            self.others.push(client);
        }
        Ok(())
    }

    /// Starts a client that dials `server` and leads to the same application.
    ///
    /// # Errors
    ///
    /// Fails if the client does not start.
    pub fn another_client(&self, plan: &LoadOptions, server: SocketAddr) -> Result<Client> {
        let arguments = [format!("--token-source=tcp:{}", self.target)];
        let home = Home::new()?.with_programs(plan.programs.as_deref());
        let arguments = borrowed(&arguments, &plan.client);
        Client::start_at(&self.machines.near, home, &server.to_string(), &arguments)
    }

    /// Returns the addresses at which each client's applications connect.
    pub fn forwards(&self) -> Vec<Endpoint> {
        let clients = std::iter::once(&self.client).chain(&self.others);
        clients.map(|client| client.forward.clone()).collect()
    }

    /// Returns the resident memory of server and client in bytes.
    ///
    /// # Errors
    ///
    /// Fails if one of them has ended.
    pub fn memory(&self) -> Result<[u64; 2]> {
        Ok([
            self.server.program.resident_bytes()?,
            self.client.program.resident_bytes()?,
        ])
    }

    /// Returns the combined work of server and client.
    ///
    /// # Errors
    ///
    /// Fails if one of them has ended.
    pub fn work(&self) -> Result<Work> {
        Ok(self.server.program.work()? + self.client.program.work()?)
    }

    /// Returns the number of open descriptors of server and client.
    ///
    /// # Errors
    ///
    /// Fails if one of them has ended.
    pub fn descriptors(&self) -> Result<[usize; 2]> {
        Ok([
            self.server.program.descriptors()?,
            self.client.program.descriptors()?,
        ])
    }

    /// Returns the number of open flows of server and client.
    ///
    /// # Errors
    ///
    /// Fails if one of them does not answer.
    pub fn flows(&self) -> Result<[u64; 2]> {
        let server = self.machines.far.within(|| flows(self.http[0]))?;
        Ok([server, self.machines.near.within(|| flows(self.http[1]))?])
    }

    /// Returns the number of bytes that both ends of all connections have received, including packet headers.
    ///
    /// # Errors
    ///
    /// Fails if one of them does not answer.
    pub fn received(&self) -> Result<u64> {
        let server = self
            .machines
            .far
            .within(|| sum(self.http[0], "received_bytes"))?;
        let client = self
            .machines
            .near
            .within(|| sum(self.http[1], "received_bytes"))?;
        Ok(server + client)
    }

    /// Runs `act` in the network of the client and its applications: connections made there cross the link.
    ///
    /// # Errors
    ///
    /// Returns the error of `act`.
    pub fn near<T: Send>(&self, act: impl FnOnce(&Client) -> Result<T> + Send) -> Result<T> {
        self.machines.near.within(|| act(&self.client))
    }

    /// Ends a load that went well; checks that all programs still run.
    ///
    /// # Errors
    ///
    /// Fails if a program has ended.
    pub fn end(mut self) -> Result<()> {
        let ours = [&mut self.client.program, &mut self.server.program];
        let others = self.others.iter_mut().map(|client| &mut client.program);
        for program in ours.into_iter().chain(others).chain(&mut self.application) {
            if let Some(status) = program.ended()? {
                bail!("a program ended: {status}");
            }
            program.silence();
        }
        self.machines.end()
    }

    /// Waits until both sides have exactly `wanted` open flows.
    ///
    /// # Errors
    ///
    /// Fails if that does not happen in time.
    pub fn settle(&self, wanted: u64) -> Result<()> {
        let mut last = [0; 2];
        deadline::wait(
            &format!("{wanted} open flows at both ends"),
            SETTLED,
            || {
                last = self.flows()?;
                Ok((last == [wanted; 2]).then_some(()))
            },
        )
        .with_context(|| format!("server and client have {last:?} flows open"))
    }
}

fn flows(http: SocketAddr) -> Result<u64> {
    sum(http, "flows")
}

/// Returns the sum of a figure over all connections.
fn sum(http: SocketAddr, figure: &str) -> Result<u64> {
    let answer = rest::get(http, "/v1/connections")?.json()?;
    let connections = answer["connections"].as_array().context("no connections")?;
    Ok(connections
        .iter()
        .filter_map(|connection| connection[figure].as_u64())
        .sum())
}

fn borrowed<'a>(first: &'a [String], second: &'a [String]) -> Vec<&'a str> {
    first.iter().chain(second).map(String::as_str).collect()
}

/// Returns ports that were free a moment ago.
fn free_ports() -> Result<[u16; 2]> {
    let listen = || TcpListener::bind((IpAddr::from(Ipv4Addr::LOCALHOST), 0));
    let (first, second) = (listen()?, listen()?);
    Ok([first.local_addr()?.port(), second.local_addr()?.port()])
}

/// Raises the limit of open files in this process to at least `wanted`.
///
/// # Errors
///
/// Fails if the hard limit is lower; the error names the remedy.
pub fn allow_files(wanted: u64) -> Result<()> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= wanted) {
        return Ok(());
    }
    // Root may also raise the hard limit.
    let maximum = limit.maximum.map(|maximum| maximum.max(wanted));
    setrlimit(
        Resource::Nofile,
        Rlimit {
            current: Some(wanted),
            maximum,
        },
    )
    .with_context(|| {
        format!(
            "{wanted} open files are needed, {:?} are allowed: raise the hard limit (ulimit -Hn)",
            limit.maximum
        )
    })
}
