//! `--tun`: a host's connections go through the tunnel, and no rule or route is left when the client ends.

use std::convert::Infallible;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::mpsc::channel;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use quictun_e2e::load::carriers::udp_block::swallow_udp;
use quictun_skip::skipped;
use quictun_sys::set_unicast_device;
use quictun_testbed::application::Application;
use quictun_testbed::deadline;
use quictun_testbed::isolation::isolated_with;
use quictun_testbed::machine::{self, Machine};
use quictun_testbed::postgresql::Database;
use quictun_testbed::program::{Program, installed, output};
use quictun_testbed::tunnel::{Home, START};
use rustix::process::Signal;

use crate::wrapped::{FILE, HOSTS, QUESTION, is_root, name_server, serve, url};
use crate::wrapped_programs::{psql_copies_all, ssh_carries_all};
use crate::{endings, iperf3};

const SOON: Duration = Duration::from_secs(20);

/// The addresses of the server's machine and of this one on the cable.
pub(crate) const SERVER: &str = "10.1.0.2";
const CLIENT: &str = "10.1.0.1";

/// The IPv6 addresses of the two machines.
const SERVER_V6: &str = "fd00:1::2";
const CLIENT_V6: &str = "fd00:1::1";

/// Additional addresses of the server's machine: a neighbour, and an address to exclude. Except for the neighbour, no
/// route leads to these, nor to [`HOSTS`], but through the tunnel.
const OTHERS: [&str; 2] = ["10.1.0.3", "198.51.100.9"];

/// A neighbour with IPv6. The device itself must have the address, or it does not answer.
const OTHER_V6: &str = "fd00:1::3";

/// Two machines, with a server on the far one.
pub(crate) struct Lan {
    pub(crate) far: Machine,
    server: Program,
    home: Home,
    flags: Vec<String>,
}

impl Lan {
    /// Starts the machines and the server; returns `None` if TUN devices are not available.
    pub(crate) fn start(test: &str) -> Result<Option<Self>> {
        if let Err(why) = std::fs::File::open("/dev/net/tun") {
            skipped(test, format_args!("/dev/net/tun: {why}"));
            return Ok(None);
        }
        let far = Machine::new("server machine")?;
        Machine::here().join(
            &far,
            "lan0",
            &format!("{CLIENT}/24"),
            &format!("{SERVER}/24"),
        )?;
        Machine::here().run(&format!("ip address add {CLIENT_V6}/64 dev lan0 nodad"))?;
        for address in [SERVER_V6, OTHER_V6] {
            far.run(&format!("ip address add {address}/64 dev lan0 nodad"))?;
        }
        for address in OTHERS.iter().chain(&HOSTS) {
            far.run(&format!("ip address add {address} dev lo"))?;
        }
        let home = Home::new()?;
        let (server, flags) = home.open_server(&far)?;
        Ok(Some(Self {
            far,
            server,
            home,
            flags,
        }))
    }

    pub(crate) fn kill_server(&mut self) -> Result<()> {
        self.server.kill()
    }

    /// Returns a command that runs `quictun` on this machine with the lan's home.
    pub(crate) fn quictun(&self) -> Result<Command> {
        self.home.command(&Machine::here(), "quictun")
    }

    /// Returns `quictun run` with these additional flags; the caller adds the command to run.
    pub(crate) fn run_command(&self, more: &[&str]) -> Result<Command> {
        let mut command = self.quictun()?;
        command.args(["run", "--server", "10.1.0.2:7500"]);
        command.args(&self.flags).args(more);
        Ok(command)
    }

    /// Returns the command of a client with its own device.
    pub(crate) fn client_command(&self, more: &[&str]) -> Result<Command> {
        self.command("10.1.0.2:7500", &[&["--tun"], more].concat())
    }

    fn command(&self, server: &str, more: &[&str]) -> Result<Command> {
        let mut command = self.home.command(&Machine::here(), "quictun")?;
        command.args(["client", "--server", server]);
        command.args(&self.flags).args(more);
        Ok(command)
    }

    /// Starts a client with its own device.
    pub(crate) fn client(&self, more: &[&str]) -> Result<Program> {
        self.client_of("10.1.0.2:7500", more)
    }

    fn client_of(&self, server: &str, more: &[&str]) -> Result<Program> {
        let command = self.command(server, &[&["--tun"], more].concat())?;
        Self::start_client(command)
    }

    /// Starts a client from a copy of the program.
    pub(crate) fn client_from(&self, file: &Path) -> Result<Program> {
        let mut command = Machine::here().command(file);
        self.home.settle(&mut command);
        command.args(["client", "--server", "10.1.0.2:7500", "--tun"]);
        command.args(&self.flags);
        Self::start_client(command)
    }

    fn start_client(mut command: Command) -> Result<Program> {
        // A process group of its own, as a shell creates it, so that a test can signal the group as a terminal does.
        command.process_group(0);
        let mut client = Program::start("client", &mut command)?;
        client.wait_for("connected to server endpoint", START)?;
        Ok(client)
    }

    /// Returns the source address that a program at `address` on the far machine sees for a connection from this
    /// machine.
    fn seen_from(&self, address: &str) -> Result<IpAddr> {
        let address: IpAddr = address.parse()?;
        let listener = self.far.within(|| Ok(TcpListener::bind((address, 0))?))?;
        let there = listener.local_addr()?;
        let connected = TcpStream::connect_timeout(&there, SOON);
        let _here = connected.with_context(|| format!("connecting to {address}"))?;
        Ok(accept(&listener)?.1.ip())
    }

    /// Checks that these addresses are reached through the tunnel. For such connections, the server connects to its own
    /// address.
    pub(crate) fn check_through(&self, addresses: &[&str]) -> Result<()> {
        for address in addresses {
            let seen = self.seen_from(address)?;
            ensure!(
                seen == address.parse::<IpAddr>()?,
                "{address} was reached outside the tunnel, from {seen}"
            );
        }
        Ok(())
    }

    fn check_bypass(&self, addresses: &[&str]) -> Result<()> {
        for address in addresses {
            let us = if address.contains(':') {
                CLIENT_V6
            } else {
                CLIENT
            };
            let seen = self.seen_from(address)?;
            ensure!(
                seen == us.parse::<IpAddr>()?,
                "{address} was reached through the tunnel, from {seen}"
            );
        }
        Ok(())
    }
}

/// Accepts a connection. If none comes, this is an error.
pub(crate) fn accept(listener: &TcpListener) -> Result<(TcpStream, SocketAddr)> {
    listener.set_nonblocking(true)?;
    deadline::wait("a connection", SOON, || match listener.accept() {
        Ok(accepted) => Ok(Some(accepted)),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error.into()),
    })
}

/// Returns all state that a client might leave behind.
pub(crate) fn routing() -> Result<String> {
    let mut all = String::new();
    for line in [
        "ip -o link show",
        "ip rule show",
        "ip -6 rule show",
        "ip route show table all",
        "ip -6 route show table all",
    ] {
        // The output includes link-local addresses, which the kernel probes for a second before it adds a route. Ignore
        // them.
        let text = machine::run(line)?;
        let lines = text.lines().filter(|line| !line.contains("fe80::"));
        all.extend(lines.flat_map(|line| [line, "\n"]));
    }
    Ok(all)
}

pub(crate) fn end(mut client: Program) -> Result<()> {
    client.signal(Signal::TERM)?;
    let status = client.wait_end(SOON)?;
    ensure!(status.success(), "{status}");
    Ok(())
}

#[test]
fn all_traffic_uses_the_tunnel_except_neighbours_the_server_and_exclusions() -> Result<()> {
    isolated_with(Lan::start, |lan| {
        let before = routing()?;
        let client = lan.client(&["--exclude", "198.51.100.0/24"])?;
        lan.check_through(&HOSTS)?;
        lan.check_bypass(&[SERVER, SERVER_V6, "10.1.0.3", OTHER_V6])?;
        ensure!(
            lan.seen_from("198.51.100.9").is_err(),
            "the excluded address was reached"
        );
        end(client)?;
        let after = routing()?;
        ensure!(before == after, "before:\n{before}\nafter:\n{after}");
        Ok(())
    })
}

/// Forwards one DNS query from the loopback device, as systemd-resolved does: it sends the query through a specific
/// device to that device's name server.
fn forward_one(loopback: &UdpSocket) -> Result<()> {
    let mut packet = [0; 512];
    let (length, asker) = loopback.recv_from(&mut packet)?;
    let upstream = UdpSocket::bind("0.0.0.0:0")?;
    let device = machine::run("ip -o link show lan0")?;
    let index = device.split(':').next().unwrap_or_default();
    set_unicast_device(&upstream, index.parse()?)?;
    upstream.connect("10.1.0.3:53")?;
    upstream.set_read_timeout(Some(SOON))?;
    upstream.send(&packet[..length])?;
    let length = upstream.recv(&mut packet).context("receiving the answer")?;
    loopback.send_to(&packet[..length], asker)?;
    Ok(())
}

#[test]
fn a_forwarder_on_the_loopback_device_asks_through_the_tunnel() -> Result<()> {
    isolated_with(Lan::start, |lan| {
        let server = || Application::tcp_on("203.0.113.9:53".parse()?, name_server);
        let _server = lan.far.within(server)?;
        let client = lan.client(&["--dns", "203.0.113.9"])?;
        let loopback = UdpSocket::bind("127.0.0.53:53")?;
        let asker = UdpSocket::bind("127.0.0.1:0")?;
        for socket in [&loopback, &asker] {
            socket.set_read_timeout(Some(SOON))?;
        }
        asker.send_to(QUESTION, loopback.local_addr()?)?;
        forward_one(&loopback)?;
        let mut answer = [0; 512];
        let length = asker.recv(&mut answer)?;
        let address: Ipv4Addr = HOSTS[0].parse()?;
        ensure!(
            answer[..length].ends_with(&address.octets()),
            "{:?}",
            &answer[..length]
        );
        end(client)
    })
}

// The rules lead the server's own address into the device, too, except for marked packets.
#[test]
fn chosen_networks_go_through_the_tunnel_over_tls_where_udp_is_blocked() -> Result<()> {
    isolated_with(Lan::start, |lan| {
        installed("nft", "nftables")?;
        swallow_udp(&lan.far)?;
        let client = lan.client(&["--route", "10.0.0.0/8,203.0.113.0/24"])?;
        // Each connection takes a socket that was opened before the process was confined.
        let connected = |client: &Program| client.count("connected to server endpoint");
        for _ in 0..3 {
            lan.check_through(&["10.1.0.3", "203.0.113.9", SERVER])?;
            let before = connected(&client);
            lan.far.run("ss -K -t -H state established sport = 7500")?;
            deadline::until("another connection", SOON, || connected(&client) > before)?;
        }
        lan.check_through(&["203.0.113.9"])?;
        end(client)
    })
}

#[test]
fn chosen_networks_go_through_the_tunnel_even_around_the_server() -> Result<()> {
    isolated_with(Lan::start, |lan| {
        let before = routing()?;
        let client = lan.client(&["--route", "10.0.0.0/8,203.0.113.0/24"])?;
        // Only the tunnel's own packets to the server bypass it.
        lan.check_through(&["10.1.0.3", "203.0.113.9", SERVER])?;
        lan.check_bypass(&[OTHER_V6])?;
        ensure!(
            lan.seen_from("2001:db8::9").is_err(),
            "an address outside the chosen networks was reached"
        );
        // Only one such device can exist.
        let second = output(&mut lan.command("10.1.0.2:7500", &["--tun"])?)?;
        let said = String::from_utf8_lossy(&second.stderr);
        ensure!(
            !second.status.success() && said.contains("another client has the TUN device"),
            "{second:?}"
        );
        lan.check_through(&["203.0.113.9"])?;
        end(client)?;
        // The same with the server's IPv6 address.
        let client = lan.client_of("[fd00:1::2]:7500", &["--route", "fd00::/16"])?;
        lan.check_through(&[OTHER_V6, SERVER_V6])?;
        lan.check_bypass(&[SERVER, "10.1.0.3"])?;
        end(client)?;
        let after = routing()?;
        ensure!(before == after, "before:\n{before}\nafter:\n{after}");
        Ok(())
    })
}

#[test]
fn the_rules_of_a_killed_client_keep_its_networks_closed_until_the_next_start() -> Result<()> {
    isolated_with(Lan::start, |lan| {
        let before = routing()?;
        let mut client = lan.client(&["--route", "10.0.0.0/8,203.0.113.0/24,fd00::/16"])?;
        lan.check_through(&["10.1.0.3", OTHER_V6])?;
        client.signal(Signal::KILL)?;
        client.wait_end(SOON)?;
        for address in ["10.1.0.3", OTHER_V6, SERVER, SERVER_V6] {
            let address = SocketAddr::new(address.parse()?, 7500);
            let reached = TcpStream::connect_timeout(&address, Duration::from_millis(200));
            let refused = reached.as_ref().is_err_and(|error| {
                // A refusal by the other machine would be ECONNREFUSED.
                error.kind() != ErrorKind::ConnectionRefused
            });
            ensure!(refused, "{address}: {reached:?}");
        }
        let mut client = lan.client(&["--route", "203.0.113.9"])?;
        client.wait_for(
            "removed the rules and routes of a client that was killed",
            SOON,
        )?;
        lan.check_through(&["203.0.113.9"])?;
        lan.check_bypass(&["10.1.0.3", OTHER_V6, SERVER, SERVER_V6])?;
        end(client)?;
        let after = routing()?;
        ensure!(before == after, "before:\n{before}\nafter:\n{after}");
        Ok(())
    })
}

#[test]
fn invalid_detours_are_refused_with_the_remedy() -> Result<()> {
    isolated_with(Lan::start, |lan| {
        let before = routing()?;
        for (flags, why) in [
            (
                &["--tun", "--route", "10.1.0.2"][..],
                "--route 10.1.0.2/32 is the server itself",
            ),
            (
                &["--tun", "--route", "10.0.0.1/8"][..],
                "did you mean 10.0.0.0/8?",
            ),
            (
                &["--tun", "--route", "10.0.0.0/8", "--exclude", "10.0.0.0/8"][..],
                "keep one of the two",
            ),
            (
                &["--route", "10.0.0.0/8"][..],
                "leads nowhere without a device",
            ),
            (&["--tun", "--tun-fd", "0"][..], "keep one of them"),
        ] {
            let refused = output(&mut lan.command("10.1.0.2:7500", flags)?)?;
            let said = String::from_utf8_lossy(&refused.stderr);
            ensure!(
                !refused.status.success() && said.contains(why),
                "{refused:?}"
            );
        }
        // Another rule leads the server's address into the device before ours applies.
        for line in [
            "ip tuntap add dev quictun0 mode tun vnet_hdr",
            "ip link set quictun0 up",
            "ip route add 10.1.0.2 dev quictun0 table 500",
            "ip rule add priority 100 lookup 500",
        ] {
            machine::run(line)?;
        }
        let refused = output(&mut lan.command("10.1.0.2:7500", &["--tun"])?)?;
        let said = String::from_utf8_lossy(&refused.stderr);
        ensure!(
            !refused.status.success() && said.contains("because of another rule of this host"),
            "{refused:?}"
        );
        machine::run("ip rule del priority 100")?;
        machine::run("ip tuntap del dev quictun0 mode tun")?;
        ensure!(before == routing()?);
        Ok(())
    })
}

#[test]
fn unmodified_programs_use_the_tunnel() -> Result<()> {
    isolated_with(Lan::start, |lan| {
        let client = lan.client(&[])?;
        for host in HOSTS {
            let web = lan
                .far
                .within(|| Application::tcp_on(SocketAddr::new(host.parse()?, 0), serve))?;
            let file = lan.home.path().join("file");
            let url = url(host, &web)?;
            machine::run(&format!("curl -sS -g -o {} {url}", file.display()))?;
            FILE.read_to_end_of(&mut std::fs::File::open(&file)?)?;
            web.outcome(SOON)?;
        }
        let iperf3 = installed("iperf3", "iperf3")?;
        iperf3::moves_its_bytes(lan.far.command(&iperf3), |arguments| {
            machine::run(&format!("{} {arguments}", iperf3.display()))
        })?;
        let applications = lan.far.within(|| endings::applications(&HOSTS))?;
        let addresses: Vec<_> = applications.iter().map(Application::target).collect();
        endings::end_all(&addresses.join(" "))?;
        for application in applications {
            application.outcome(SOON)?;
        }
        end(client)
    })
}

// A host with `--tun` may have any other program that sends datagrams.
#[test]
fn datagrams_of_programs_use_the_tunnel() -> Result<()> {
    isolated_with(Lan::start, |lan| {
        let client = lan.client(&[])?;
        for host in HOSTS {
            let address: IpAddr = host.parse()?;
            let target = lan.far.within(|| Ok(UdpSocket::bind((address, 0))?))?;
            target.set_read_timeout(Some(SOON))?;
            let program = UdpSocket::bind((if address.is_ipv4() { "0.0.0.0" } else { "::" }, 0))?;
            program.set_read_timeout(Some(SOON))?;
            program.connect(target.local_addr()?)?;
            let mut buffer = vec![0; 65_535];
            for length in [0, 1, 1472, 9000] {
                program.send(&vec![7; length])?;
                let (came, source) = target.recv_from(&mut buffer)?;
                ensure!(came == length && source.ip() == address, "from {source}");
                target.send_to(&buffer[..came], source)?;
                ensure!(program.recv(&mut buffer)? == length);
            }
        }
        end(client)
    })
}

/// Runs a line in a shell on this machine.
fn shell(line: &str) -> Result<Output> {
    output(Machine::here().command("sh").args(["-c", line]))
}

#[test]
fn unmodified_ssh_uses_the_tunnel() -> Result<()> {
    isolated_with(Lan::start, |lan| {
        if !is_root()? {
            let test = "detour::unmodified_ssh_uses_the_tunnel";
            skipped(test, "sshd needs to change to a user other than root");
            return Ok(());
        }
        let client = lan.client(&[])?;
        ssh_carries_all(
            &|address, keys| lan.far.within(|| keys.sshd(address)),
            &shell,
        )?;
        end(client)
    })
}

#[test]
fn unmodified_psql_uses_the_tunnel() -> Result<()> {
    isolated_with(Lan::start, |lan| {
        if !is_root()? {
            let test = "detour::unmodified_psql_uses_the_tunnel";
            skipped(test, "postgres needs to run as a user other than root");
            return Ok(());
        }
        let client = lan.client(&[])?;
        let (ready, is_ready) = channel();
        let (done, is_done) = channel::<Infallible>();
        let (far, home) = (&lan.far, lan.home.path());
        std::thread::scope(|scope| {
            // The database is killed when the thread that started it ends.
            let served = scope.spawn(move || {
                far.within(move || {
                    let database = Database::start(&HOSTS.join(","))?;
                    ready.send(())?;
                    let Err(_) = is_done.recv();
                    database.stop()
                })
            });
            let asked = is_ready.recv().context("the database did not start");
            let copied = asked.and_then(|()| psql_copies_all(home, &shell));
            drop(done);
            served
                .join()
                .map_err(|_| anyhow!("the database's thread panicked"))??;
            copied
        })?;
        end(client)
    })
}

#[test]
fn the_compat_client_has_detours_too() -> Result<()> {
    isolated_with(Lan::start, |lan| {
        let mut serve = lan.home.command(&lan.far, "quictun-server")?;
        serve.args(["--listen-on", "10.1.0.2:7501", "--httpd-listen-on", "off"]);
        let mut server = Program::start("quictun-server", &mut serve)?;
        server.wait_for("Server endpoint start up successful", START)?;
        let mut command = lan.home.command(&Machine::here(), "quictun-client")?;
        command.args([
            "--server-endpoint",
            "10.1.0.2:7501",
            "--httpd-listen-on",
            "off",
        ]);
        command.args([
            "--insecure-skip-verify",
            "--tun",
            "--route",
            "203.0.113.0/24",
        ]);
        let mut client = Program::start("quictun-client", &mut command)?;
        client.wait_for("connected to server endpoint", START)?;
        lan.check_through(&["203.0.113.9"])?;
        end(client)
    })
}

/// Runs the command after the first two words as the service does: all settings of the kernel are read-only, except
/// those in the second word.
const AS_THE_SERVICE: &str = "mount --rbind /proc/sys /proc/sys || exit
for path in $1; do mount --bind ${path#-} ${path#-} || exit; done
mount -o remount,bind,ro /proc/sys || exit
shift
exec \"$@\"";

#[test]
fn the_service_for_a_host_works_with_a_strict_check_of_source_addresses() -> Result<()> {
    let unit = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../packaging/systemd/quictun-client-tun.service");
    let unit = std::fs::read_to_string(unit)?;
    ensure!(unit.contains("\nProtectKernelTunables=yes\n"));
    let paths = unit
        .lines()
        .filter_map(|line| line.strip_prefix("ReadWritePaths="));
    let paths: Vec<&str> = paths.collect();
    isolated_with(Lan::start, |lan| {
        std::fs::write("/proc/sys/net/ipv4/conf/lan0/rp_filter", "1")?;
        let before = routing()?;
        let service = |paths: &str| -> Result<Command> {
            let client = lan.client_command(&[])?;
            let mut command = Machine::here().command("unshare");
            lan.home.settle(&mut command);
            command
                .args(["--mount", "sh", "-c", AS_THE_SERVICE, "sh", paths])
                .arg(client.get_program())
                .args(client.get_args());
            Ok(command)
        };
        let client = Lan::start_client(service(&paths.join(" "))?)?;
        lan.check_through(&OTHERS[1..])?;
        end(client)?;
        let refused = output(&mut service("")?)?;
        let said = String::from_utf8_lossy(&refused.stderr);
        ensure!(
            refused.status.code() == Some(1)
                && said.contains("rp_filter is 1 for lan0")
                && said.contains("sysctl -w net.ipv4.conf.all.src_valid_mark=1"),
            "{refused:?}"
        );
        ensure!(before == routing()?);
        Ok(())
    })
}
