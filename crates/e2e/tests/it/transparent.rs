//! `--redirect` and `--tproxy`: connections that nftables leads to the client go through the tunnel, over both families
//! and without loops.

use std::net::{SocketAddr, UdpSocket};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use quictun_e2e::load::carriers::udp_block::swallow_udp;
use quictun_testbed::application::{Application, echo, through_echo};
use quictun_testbed::connection::Endpoint;
use quictun_testbed::deadline;
use quictun_testbed::isolation::isolated;
use quictun_testbed::machine::Machine;
use quictun_testbed::payload::Payload;
use quictun_testbed::program::{Program, installed};
use quictun_testbed::tunnel::{Home, START};

const SOON: Duration = Duration::from_secs(20);
const SOME: Payload = Payload {
    seed: 7501,
    bytes: 1 << 18,
};

/// Addresses of the far machine that are reachable only through the tunnel.
const HOSTS: [&str; 2] = ["198.51.100.7", "2001:db8:1::7"];

/// An address of this machine that the far machine reaches from the first of [`HOSTS`], as an outside host would.
const HERE: &str = "10.9.0.1";

/// A server on a far machine, with an echo at each of [`HOSTS`], and the flags of its clients.
struct EchoServer {
    home: Home,
    echoes: Vec<SocketAddr>,
    flags: Vec<String>,
    _server: Program,
    machine: Machine,
}

impl EchoServer {
    fn start() -> Result<Self> {
        let far = Machine::new("server machine")?;
        Machine::here().join(&far, "lan0", "10.1.0.1/24", "10.1.0.2/24")?;
        Machine::here().run("ip address add fd00:1::1/64 dev lan0 nodad")?;
        // The kernel needs a route before it consults the packet filter.
        Machine::here().run("ip route add 198.51.100.0/24 dev lan0")?;
        Machine::here().run("ip route add 2001:db8:1::/64 dev lan0")?;
        let mut echoes = Vec::new();
        for host in HOSTS {
            let at = SocketAddr::new(host.parse()?, 7000);
            // Without this flag, a process cannot bind an IPv6 address until the kernel has finished duplicate detection.
            let flag = if at.is_ipv6() { "nodad" } else { "" };
            far.run(&format!("ip address add {host} dev lo {flag}"))?;
            // The echo listens until the process ends.
            far.within(|| Application::tcp_on(at, echo).map(drop))?;
            echoes.push(at);
        }
        Machine::here().run(&format!("ip address add {HERE} dev lo"))?;
        far.run(&format!(
            "ip route add {HERE} via 10.1.0.1 src {}",
            HOSTS[0]
        ))?;
        let home = Home::new()?;
        let (server, mut flags) = home.open_server(&far)?;
        flags.extend(["--server", "10.1.0.2:7500"].map(str::to_owned));
        Ok(Self {
            flags,
            home,
            echoes,
            _server: server,
            machine: far,
        })
    }

    fn client(&self, more: &[&str]) -> Result<Program> {
        let mut command = self.home.command(&Machine::here(), "quictun")?;
        command.arg("client").args(&self.flags).args(more);
        Program::start("client", &mut command)
    }
}

/// Runs the commands that `quictun doctor` prints for this flag.
pub(crate) fn apply_rules(home: &Home, flag: &str, port: &str) -> Result<()> {
    apply_rules_of(home, &[flag, port])
}

/// Runs the commands that `quictun doctor` prints for these flags.
fn apply_rules_of(home: &Home, flags: &[&str]) -> Result<()> {
    installed("nft", "nftables")?;
    let output = home
        .command(&Machine::here(), "quictun")?
        .arg("doctor")
        .args(flags)
        .output()?;
    ensure!(output.status.success(), "{output:?}");
    let commands = String::from_utf8(output.stdout)?;
    let done = Command::new("sh")
        .args(["-e", "-c", &commands])
        .stdin(Stdio::null())
        .output()?;
    ensure!(done.status.success(), "{commands}\n{done:?}");
    Ok(())
}

#[test]
fn connections_redirected_by_nftables_reach_their_original_destination() -> Result<()> {
    isolated(|| {
        let far = EchoServer::start()?;
        let mut client = far.client(&["--redirect", "7501", "--tproxy", "7502"])?;
        client.wait_for("Client endpoint start up successful", START)?;
        let here = SocketAddr::new(HERE.parse()?, 7100);
        let _application = Application::tcp_on(here, echo)?;
        for (flag, port, table) in [
            ("--redirect", "7501", "quictun_redirect"),
            ("--tproxy", "7502", "quictun_tproxy"),
        ] {
            apply_rules(&far.home, flag, port).with_context(|| flag.to_owned())?;
            for &at in &far.echoes {
                through_echo(&Endpoint::Tcp(at), SOME)
                    .with_context(|| format!("{flag} to {at}"))?;
                client.wait_for(&format!("\"target\": \"tcp:{at}\""), SOON)?;
            }
            // The commands can run again, and connections from outside to this machine keep working.
            apply_rules(&far.home, flag, port).with_context(|| flag.to_owned())?;
            far.machine
                .within(|| through_echo(&Endpoint::Tcp(here), SOME))
                .with_context(|| format!("{flag}, a connection from outside"))?;
            Machine::here().run(&format!("nft delete table inet {table}"))?;
        }
        for direct in [
            "127.0.0.1:7501",
            "[::1]:7501",
            "127.0.0.1:7502",
            "10.1.0.1:7502",
        ] {
            let direct = Endpoint::Tcp(direct.parse()?);
            let ending = direct.ending()?;
            ensure!(ending.is_reset(), "{direct}: {ending:?}");
        }
        client.wait_for("a connection was made to the listener itself", SOON)?;
        Ok(())
    })
}

/// Answers datagrams to an address with their content, if they come from the same host: from the server, through the
/// tunnel.
fn echo_datagrams_of_the_server(at: SocketAddr) -> Result<()> {
    let socket = UdpSocket::bind(at)?;
    std::thread::spawn(move || {
        let mut buffer = vec![0; 65_535];
        while let Ok((length, source)) = socket.recv_from(&mut buffer) {
            if source.ip() == at.ip() {
                // A source that has ended refuses the answer.
                let _sent = socket.send_to(&buffer[..length], source);
            }
        }
    });
    Ok(())
}

/// Sends datagrams of several lengths until each is answered, from the address that they are sent to.
fn exchange_datagrams(at: SocketAddr) -> Result<()> {
    let any = if at.is_ipv4() { "0.0.0.0" } else { "::" };
    let program = UdpSocket::bind((any, 0))?;
    program.set_read_timeout(Some(Duration::from_millis(200)))?;
    let mut buffer = vec![0; 65_535];
    for length in [0, 1, 1200, 9000, 60_000] {
        let payload = vec![7; length];
        deadline::until(&format!("{length} bytes of {at}"), SOON, || {
            let sent = program.send_to(&payload, at);
            let came = sent.and_then(|_| program.recv_from(&mut buffer));
            matches!(came, Ok((came, from)) if (came, from) == (length, at))
        })?;
    }
    Ok(())
}

#[test]
fn datagrams_led_by_nftables_reach_their_destination_and_are_answered_from_there() -> Result<()> {
    isolated(|| {
        let far = EchoServer::start()?;
        // A machine of which this one is the router.
        let lan = Machine::new("a machine of the LAN")?;
        Machine::here().join(&lan, "lan1", "10.2.0.1/24", "10.2.0.2/24")?;
        lan.run("ip route add default via 10.2.0.1")?;
        let mut client = far.client(&["--tproxy", "7502"])?;
        client.wait_for("Client endpoint start up successful", START)?;
        apply_rules_of(&far.home, &["--tproxy", "7502", "--udp"])?;
        for (host, port) in HOSTS
            .into_iter()
            .flat_map(|host| [(host, 53), (host, 7001)])
        {
            let at = SocketAddr::new(host.parse()?, port);
            far.machine.within(|| echo_datagrams_of_the_server(at))?;
            exchange_datagrams(at)?;
            if at.is_ipv4() {
                lan.within(|| exchange_datagrams(at))
                    .context("from the LAN")?;
            }
        }
        // CAP_NET_BIND_SERVICE and CAP_NET_RAW, and no others.
        let status = std::fs::read_to_string(format!("/proc/{}/status", client.pid()))?;
        ensure!(status.contains("CapEff:\t0000000000002400\n"), "{status}");
        // One to the listener itself is dropped, and does not come back to it.
        let direct = UdpSocket::bind("127.0.0.1:0")?;
        direct.send_to(b"x", "127.0.0.1:7502")?;
        for &at in &far.echoes {
            through_echo(&Endpoint::Tcp(at), SOME).with_context(|| at.to_string())?;
        }
        Ok(())
    })
}

// The client dials its server by TCP, which the rules would lead back to the client.
#[test]
fn redirected_connections_go_over_tls_where_udp_is_blocked() -> Result<()> {
    isolated(|| {
        let mut far = EchoServer::start()?;
        swallow_udp(&far.machine)?;
        apply_rules(&far.home, "--redirect", "7501")?;
        let server = format!("{}:7500", HOSTS[0]);
        far.flags
            .retain(|flag| flag != "10.1.0.2:7500" && flag != "--server");
        let mut client = far.client(&["--server", &server, "--redirect", "7501"])?;
        client.wait_for("connected to server endpoint", START)?;
        for &at in &far.echoes {
            through_echo(&Endpoint::Tcp(at), SOME).with_context(|| at.to_string())?;
            client.wait_for(&format!("\"target\": \"tcp:{at}\""), SOON)?;
        }
        ensure!(
            !client.has_printed(&format!("\"target\": \"tcp:{server}\"")),
            "the client carries its own connection"
        );
        Ok(())
    })
}
