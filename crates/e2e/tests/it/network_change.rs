//! The route to the server changes while data is in flight: the kernel notifies the client.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use quictun_testbed::application::listen;
use quictun_testbed::connection::Connection;
use quictun_testbed::deadline;
use quictun_testbed::isolation::isolated;
use quictun_testbed::machine::Machine;
use quictun_testbed::tunnel::{Client, Home, Server};

const SOON: Duration = Duration::from_secs(15);

/// The server's address, reachable by two cables.
const SERVER: &str = "10.99.0.1:7500";

/// Timers that do not expire before this test gives up.
const SLOW: [&str; 4] = ["--keep-alive", "100s", "--idle-timeout", "110s"];

/// Data to put in flight at once: within the initial window, so that it needs no permission from the peer.
const BYTES: [u8; 8000] = [7; 8000];

/// The maximum number of the client's datagrams until that data has arrived: probes, path validation, acknowledgements.
const DATAGRAMS: u64 = 16;

/// Two machines, connected by the cables `lan0` and `lan1`.
struct TwoCableHosts {
    here: Machine,
    far: Machine,
}

impl TwoCableHosts {
    fn new() -> Result<Self> {
        let (here, far) = (Machine::here(), Machine::new("far")?);
        here.join(&far, "lan0", "10.20.0.1/24", "10.20.0.2/24")?;
        here.join(&far, "lan1", "10.21.0.1/24", "10.21.0.2/24")?;
        far.run("ip addr add 10.99.0.1/32 dev lo")?;
        for machine in [&here, &far] {
            machine.run("nft add table inet cut")?;
            machine
                .run("nft add chain inet cut in { type filter hook prerouting priority 0 ; }")?;
        }
        let site = Self { here, far };
        site.route_over(0)?;
        Ok(site)
    }

    fn route_over(&self, cable: u8) -> Result<()> {
        let route = format!("ip route replace 10.99.0.1/32 via 10.2{cable}.0.2");
        self.here.run(&route)?;
        Ok(())
    }

    /// Drops all packets on a cable without the devices noticing.
    fn cut(&self, cable: u8) -> Result<()> {
        for machine in [&self.here, &self.far] {
            let rule = format!("nft add rule inet cut in iifname lan{cable} counter drop");
            machine.run(&rule)?;
        }
        Ok(())
    }
}

/// Returns the packets counted by the first counter in a machine's rules.
fn counted(machine: &Machine) -> Result<u64> {
    let rules = machine.run("nft list chain inet cut in")?;
    let (_, rest) = rules.split_once("counter packets ").context("no counter")?;
    let number = rest.split(' ').next().unwrap_or_default();
    Ok(number.parse()?)
}

fn arrives(connection: &mut Connection) -> Result<()> {
    let mut bytes = [0; BYTES.len()];
    connection.read_exact(&mut bytes)?;
    ensure!(bytes == BYTES);
    Ok(())
}

/// Opens a flow from this machine to a listener beside the server, and checks it in both directions.
fn flow(client: &Client, listener: &std::net::TcpListener) -> Result<(Connection, TcpStream)> {
    let mut near = client.forward.connect()?;
    near.set_timeout(SOON)?;
    let (mut far, _) = listener.accept()?;
    near.write_all(&BYTES)?;
    far.read_exact(&mut [0; BYTES.len()])?;
    far.write_all(&BYTES)?;
    arrives(&mut near)?;
    Ok((near, far))
}

#[test]
fn bytes_in_flight_arrive_once_the_route_avoids_a_black_hole() -> Result<()> {
    isolated(|| {
        let site = TwoCableHosts::new()?;
        let listener = site
            .far
            .within(|| listen((Ipv4Addr::LOCALHOST, 0).into()))?;
        let flags = [&["--listen-on", SERVER], &SLOW[..]].concat();
        let mut server = Server::start_at(&site.far, Home::new()?, &flags)?;
        let target = format!("tcp:{}", listener.local_addr()?);
        let flags = [
            "--token-source",
            &target,
            "--connections",
            "1",
            "--log-level",
            "debug",
        ];
        let mut client = Client::start(SERVER, &[&flags[..], &SLOW[..]].concat())?;
        let (mut near, mut far) = flow(&client, &listener)?;
        let changed = "the network has changed: asking the server at once";
        ensure!(!client.program.has_printed(changed), "reported too early");

        site.cut(0)?;
        far.write_all(&BYTES)?;
        deadline::until("the cut cable to drop packets", SOON, || {
            counted(&site.here).is_ok_and(|lost| lost > 0)
        })?;
        site.far
            .run("nft insert rule inet cut in iifname lan1 udp dport 7500 counter")?;
        site.route_over(1)?;
        arrives(&mut near)?;
        let asked = counted(&site.far)?;
        ensure!(
            (1..=DATAGRAMS).contains(&asked),
            "the client sent {asked} datagrams before the data arrived"
        );
        client.program.wait_for(changed, SOON)?;
        server.program.wait_for("\"to\": \"10.21.0.1:", SOON)?;

        // The connection's source address disappears, so the client uses another one.
        site.here.run("ip link del lan0")?;
        site.here.run("ip addr del 10.21.0.1/24 dev lan1")?;
        site.here.run("ip addr add 10.21.0.7/24 dev lan1")?;
        site.route_over(1)?;
        far.write_all(&BYTES)?;
        arrives(&mut near)?;
        server.program.wait_for("\"to\": \"10.21.0.7:", SOON)?;
        ensure!(
            !client
                .program
                .has_printed("connection to server endpoint lost"),
            "the connection did not survive the changes"
        );
        Ok(())
    })
}
