//! A pair of our programs under load, with its application, on loopback or on two machines.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::machine::Machine;
use crate::program::Program;
use crate::rest;
use crate::tunnel::{Client, Home, Server};
use crate::{application, deadline};

const FAR: Ipv4Addr = Ipv4Addr::new(10, 30, 0, 2);
const SETTLED: Duration = Duration::from_secs(10);

/// Where the two programs run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// On one machine.
    Loopback,
    /// On two network namespaces joined by a cable. Only inside [`crate::isolation`].
    Veth,
}

/// What is started, and how.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Where.
    pub link: Link,
    /// More arguments of `quictun-server`.
    pub server: Vec<String>,
    /// More arguments of `quictun-client`.
    pub client: Vec<String>,
}

/// Both programs, ready for load.
#[derive(Debug)]
pub struct Site {
    /// The client.
    pub client: Client,
    /// The server.
    pub server: Server,
    /// The application, where it is a process of its own.
    application: Option<Program>,
    /// The HTTP interfaces of server and client.
    http: [SocketAddr; 2],
    far: Machine,
}

impl Site {
    /// Has `serve` serve an application's listener, on threads of its own, and starts a tunnel that leads
    /// there. Returns the listener's address as well.
    ///
    /// # Errors
    ///
    /// Where anything does not start.
    pub fn start(
        plan: &Plan,
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

    /// Has `application` start one that listens on the given address, and starts a tunnel that leads there.
    /// Returns the application's address as well.
    ///
    /// # Errors
    ///
    /// Where anything does not start.
    pub fn start_with(
        plan: &Plan,
        application: impl FnOnce(&Machine, SocketAddr) -> Result<(SocketAddr, Option<Program>)>,
    ) -> Result<(Self, SocketAddr)> {
        let (far, address) = match plan.link {
            Link::Loopback => (Machine::here(), Ipv4Addr::LOCALHOST),
            Link::Veth => {
                let far = Machine::new("far")?;
                Machine::here().join(&far, "lan0", "10.30.0.1/24", &format!("{FAR}/24"))?;
                (far, FAR)
            }
        };
        let (target, application) = application(&far, (address, 0).into())?;
        let [server_http, client_http] = free_ports()?;
        let arguments = [
            format!("--listen-on={address}:0"),
            format!("--httpd-listen-on=127.0.0.1:{server_http}"),
        ];
        let server = Server::start_at(&far, Home::new()?, &borrowed(&arguments, &plan.server))?;
        let arguments = [
            format!("--token-source=tcp:{target}"),
            format!("--httpd-listen-on=127.0.0.1:{client_http}"),
        ];
        let endpoint = server.address.to_string();
        let client = Client::start_at(
            &Machine::here(),
            Home::new()?,
            &endpoint,
            &borrowed(&arguments, &plan.client),
        )?;
        let http =
            [server_http, client_http].map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
        Ok((
            Self {
                client,
                server,
                application,
                http,
                far,
            },
            target,
        ))
    }

    /// Resident memory of server and client, bytes.
    ///
    /// # Errors
    ///
    /// Where one has ended.
    pub fn memory(&self) -> Result<[u64; 2]> {
        Ok([
            self.server.program.resident_bytes()?,
            self.client.program.resident_bytes()?,
        ])
    }

    /// Open descriptors of server and client.
    ///
    /// # Errors
    ///
    /// Where one has ended.
    pub fn descriptors(&self) -> Result<[usize; 2]> {
        Ok([
            self.server.program.descriptors()?,
            self.client.program.descriptors()?,
        ])
    }

    /// Flows that server and client have open.
    ///
    /// # Errors
    ///
    /// Where one does not answer.
    pub fn flows(&self) -> Result<[u64; 2]> {
        let server = self.far.within(|| flows(self.http[0]))?;
        Ok([server, flows(self.http[1])?])
    }

    /// Ends a load that went well: all programs must be alive.
    ///
    /// # Errors
    ///
    /// Where one has ended.
    pub fn end(mut self) -> Result<()> {
        let ours = [&mut self.client.program, &mut self.server.program];
        for program in ours.into_iter().chain(&mut self.application) {
            if let Some(status) = program.ended()? {
                bail!("a program ended: {status}");
            }
            program.hush();
        }
        Ok(())
    }

    /// Waits until both sides have as many flows open as told.
    ///
    /// # Errors
    ///
    /// Where that does not come to be.
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
    let answer = rest::get(http, "/v1/connections")?.json()?;
    let connections = answer["connections"].as_array().context("no connections")?;
    Ok(connections
        .iter()
        .filter_map(|connection| connection["flows"].as_u64())
        .sum())
}

fn borrowed<'a>(first: &'a [String], second: &'a [String]) -> Vec<&'a str> {
    first.iter().chain(second).map(String::as_str).collect()
}

/// Ports that were free a moment ago.
fn free_ports() -> Result<[u16; 2]> {
    let listen = || TcpListener::bind((IpAddr::from(Ipv4Addr::LOCALHOST), 0));
    let (first, second) = (listen()?, listen()?);
    Ok([first.local_addr()?.port(), second.local_addr()?.port()])
}

/// Makes room for `wanted` open files in this process.
///
/// # Errors
///
/// Where the hard limit is lower, with the remedy.
pub fn allow_files(wanted: u64) -> Result<()> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= wanted) {
        return Ok(());
    }
    // Root may raise the hard limit as well.
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
