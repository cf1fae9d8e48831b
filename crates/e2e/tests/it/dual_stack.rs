//! Targets with addresses of both families, of which one does not answer.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use quictun_testbed::application::{Application, echo, through_echo};
use quictun_testbed::connection::{DirectionEnd, Endpoint};
use quictun_testbed::deadline;
use quictun_testbed::isolation::isolated;
use quictun_testbed::machine::{self, Machine};
use quictun_testbed::payload::Payload;
use quictun_testbed::tunnel::{Client, Home, Server, Tunnel, server_pin};

const SOON: Duration = Duration::from_secs(15);
const SOME: Payload = Payload {
    seed: 812,
    bytes: 10_000,
};
/// Flows after the first one. Each would cause an attempt over IPv6 if nothing were remembered.
const FLOWS: u64 = 10;
const TARGET: &str = "tcp:dual.test:7000";

/// Counts connection attempts over IPv6, and drops them.
const BLACK_HOLE: &str = "table inet hole { chain input { type filter hook input priority 0; meta nfproto ipv6 tcp flags syn counter drop; }; }\n";

/// A host with an echo, whose name has an IPv4 and an IPv6 address. IPv6 does not reach it.
struct DualStackHost {
    far: Machine,
    /// The file that is mounted over `/etc/hosts`.
    _hosts: tempfile::NamedTempFile,
    _echo: Application,
}

impl DualStackHost {
    fn new() -> Result<Self> {
        let (here, far) = (Machine::here(), Machine::new("far")?);
        for host in [&here, &far] {
            // An address that the kernel adds by itself is a change of the network.
            host.run("sysctl -q -w net.ipv6.conf.default.addr_gen_mode=1")?;
        }
        here.join(&far, "lan0", "10.20.0.1/24", "10.20.0.2/24")?;
        for (host, number) in [(&here, 1), (&far, 2)] {
            host.run(&format!("ip addr add 2001:db8::{number}/64 dev lan0 nodad"))?;
        }
        let rules = tempfile::NamedTempFile::new()?;
        std::fs::write(rules.path(), BLACK_HOLE)?;
        far.run(&format!("nft -f {}", rules.path().display()))?;
        let hosts = tempfile::NamedTempFile::new()?;
        std::fs::write(hosts.path(), "2001:db8::2 dual.test\n10.20.0.2 dual.test\n")?;
        let path = hosts.path().display();
        machine::run(&format!("mount --bind {path} /etc/hosts"))?;
        let echo = far.within(|| Application::tcp_on("10.20.0.2:7000".parse()?, echo))?;
        Ok(Self {
            far,
            _hosts: hosts,
            _echo: echo,
        })
    }

    /// Returns the number of connection attempts over IPv6.
    fn ipv6_attempts(&self) -> Result<u64> {
        let rules = self.far.run("nft list ruleset")?;
        let count = rules.split_once("packets ").map(|(_, rest)| rest);
        let count = count.and_then(|rest| rest.split(' ').next());
        Ok(count.with_context(|| rules.clone())?.parse()?)
    }
}

// PROTOCOL OPEN-13. One second for a whole dial is too short for addresses that wait for one another.
#[test]
fn broken_ipv6_at_the_server_delays_a_dual_stack_target_once() -> Result<()> {
    isolated(|| {
        let host = DualStackHost::new()?;
        let tunnel = Tunnel::with(TARGET, &["--dial-timeout", "1s"], &[])?;
        through_echo(&tunnel.client.forward, SOME)?;
        let attempts = host.ipv6_attempts()?;
        ensure!(attempts > 0, "IPv6 comes first");
        for _ in 0..FLOWS {
            through_echo(&tunnel.client.forward, SOME)?;
        }
        let more = host.ipv6_attempts()? - attempts;
        ensure!(more < FLOWS, "{more} attempts for {FLOWS} flows");
        let attempts = attempts + more;
        machine::run("ip addr add 10.20.0.77/24 dev lan0")?;
        deadline::until("IPv6 to be tried in another network", SOON, || {
            through_echo(&tunnel.client.forward, SOME).is_ok()
                && host.ipv6_attempts().is_ok_and(|now| now > attempts)
        })
    })
}

// PROTOCOL OPEN-13.
#[test]
fn broken_ipv6_at_the_client_delays_a_reverse_forward_once() -> Result<()> {
    isolated(|| {
        let host = DualStackHost::new()?;
        let home = Home::new()?;
        let mut command = home.command(&Machine::here(), "quictun")?;
        command.args(["server", "--listen", "127.0.0.1:0", "--http", "off"]);
        command.args(["--listen-for", "127.0.0.1:7100"]);
        let server = Server::from_command(home, &mut command)?;
        let pin = server_pin(&server.program.lines().join("\n"))?;
        let mut command = server.home.command(&Machine::here(), "quictun")?;
        command.args([
            "client",
            "--server",
            &server.address.to_string(),
            "--pin",
            &pin,
        ]);
        command.args(["--psk-file", "state/client.psk", "--http", "off"]);
        command.args(["-R", &format!("7100={}", TARGET.trim_start_matches("tcp:"))]);
        command.args(["-L", "127.0.0.1:0=127.0.0.1:9"]);
        let mut client = Client::from_command(Home::new()?, &mut command)?;
        client
            .program
            .wait_for("the server listens for this client", SOON)?;
        let listener = Endpoint::parse("127.0.0.1:7100")?;
        through_echo(&listener, SOME)?;
        let attempts = host.ipv6_attempts()?;
        ensure!(attempts > 0, "IPv6 comes first");
        for _ in 0..FLOWS {
            through_echo(&listener, SOME)?;
        }
        let more = host.ipv6_attempts()? - attempts;
        ensure!(more < FLOWS, "{more} attempts for {FLOWS} flows");
        Ok(())
    })
}

#[test]
fn a_server_dials_by_one_family_only_if_asked_to() -> Result<()> {
    isolated(|| {
        let host = DualStackHost::new()?;
        let four = Tunnel::with(TARGET, &["--ip", "4"], &[])?;
        through_echo(&four.client.forward, SOME)?;
        ensure!(host.ipv6_attempts()? == 0);
        let six = ["--ip", "6", "--dial-timeout", "1s"];
        for target in [TARGET, "tcp:10.20.0.2:7000", "tcp4:dual.test:7000"] {
            let six = Tunnel::with(target, &six, &[])?;
            let end = six.client.forward.ending()?;
            ensure!(
                matches!(end, DirectionEnd::Reset { .. }),
                "{target}: {end:?}"
            );
        }
        ensure!(host.ipv6_attempts()? > 0);
        Ok(())
    })
}
