//! Network faults: no packets arrive for a while, an address changes, a name resolves to another address.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use quictun_testbed::application::{Application, served_within, through_echo};
use quictun_testbed::deadline;
use quictun_testbed::isolation::isolated;
use quictun_testbed::machine::{Machine, run};
use quictun_testbed::payload::Payload;
use quictun_testbed::transfer::{EndlessSource, Transfer};
use quictun_testbed::tunnel::{Client, Home, Server};

const SOON: Duration = Duration::from_secs(15);

/// Rules that drop everything that arrives through the cable.
const DROP_ALL: &str = "table inet outage { chain cable { type filter hook prerouting priority 0; iifname lan0 drop; }; }\n";

/// Two machines on one cable, with a server on the far one and an endless application behind it.
struct EndlessTransfer {
    here: Machine,
    far: Machine,
    server: Server,
    client: Client,
    source: EndlessSource,
}

impl EndlessTransfer {
    fn new() -> Result<Self> {
        let (here, far) = (Machine::here(), Machine::new("far")?);
        here.join(&far, "lan0", "10.20.0.1/24", "10.20.0.2/24")?;
        let source = far.within(EndlessSource::new)?;
        let server = Server::start_at(&far, Home::new()?, &["--listen-on", "10.20.0.2:7500"])?;
        let client = Client::start(
            "10.20.0.2:7500",
            &["--token-source", &source.application.target()],
        )?;
        Ok(Self {
            here,
            far,
            server,
            client,
            source,
        })
    }
}

#[test]
fn a_transfer_outlives_8_s_without_packets() -> Result<()> {
    const OUTAGE: Duration = Duration::from_secs(8);
    isolated(|| {
        let site = EndlessTransfer::new()?;
        let transfer = Transfer::start(&site.client.forward)?;
        transfer.advance(20 << 20, SOON)?;
        let rules = tempfile::NamedTempFile::new()?;
        std::fs::write(rules.path(), DROP_ALL)?;
        for machine in [&site.here, &site.far] {
            machine.run(&format!("nft -f {}", rules.path().display()))?;
        }
        let since = Instant::now();
        while since.elapsed() < OUTAGE {
            let before = transfer.progress();
            // Data in the socket buffers may still arrive at first.
            let stalled = transfer.advance(1, Duration::from_secs(2)).is_err();
            ensure!(
                stalled || since.elapsed() < OUTAGE / 2,
                "data arrives through a dead link, at {before}"
            );
        }
        for machine in [&site.here, &site.far] {
            machine.run("nft delete table inet outage")?;
        }
        transfer.advance(20 << 20, SOON)?;
        transfer.finish(&site.source)
    })
}

#[test]
fn a_transfer_continues_when_the_client_changes_its_address() -> Result<()> {
    isolated(|| {
        let mut site = EndlessTransfer::new()?;
        let transfer = Transfer::start(&site.client.forward)?;
        transfer.advance(20 << 20, SOON)?;
        for (old, new) in [(1, 7), (7, 8)] {
            site.here
                .run(&format!("ip addr del 10.20.0.{old}/24 dev lan0"))?;
            site.here
                .run(&format!("ip addr add 10.20.0.{new}/24 dev lan0"))?;
            let took = transfer.advance(20 << 20, SOON)?;
            ensure!(
                took < Duration::from_secs(5),
                "continuing after a change of address took {took:?}"
            );
            let address = format!("\"to\": \"10.20.0.{new}:");
            site.server.program.wait_for(&address, SOON)?;
        }
        transfer.finish(&site.source)
    })
}

#[test]
fn the_servers_name_is_looked_up_again_when_it_is_dialled_again() -> Result<()> {
    isolated(|| {
        let hosts = tempfile::NamedTempFile::new()?;
        let name = |address: &str| {
            std::fs::write(hosts.path(), format!("{address} server.quictun.test\n"))
        };
        name("127.0.0.2")?;
        run(&format!(
            "mount --bind {} /etc/hosts",
            hosts.path().display()
        ))?;
        let application = Application::echo()?;
        let payload = Payload::new(51, 100_000);
        let mut first = Server::start(&["--listen-on", "127.0.0.2:7500"])?;
        let client = Client::start(
            "server.quictun.test:7500",
            &["--token-source", &application.target()],
        )?;
        through_echo(&client.forward, payload)?;
        first.program.kill()?;
        name("127.0.0.3")?;
        let second = Server::start(&["--listen-on", "127.0.0.3:7500"])?;
        served_within(&client.forward, payload, Duration::from_secs(8))?;
        deadline::until("the client to connect to the second server", SOON, || {
            second.program.has_printed("connect request accepted")
        })
    })
}
