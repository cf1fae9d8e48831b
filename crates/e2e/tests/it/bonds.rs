//! Programs keep working when the connection under them is lost or replaced; they only notice a delay (PROTOCOL section
//! 5.8).
//!
//! A blackout lasts until both ends have lost the connection, and the client's sleep until the server has.
//! `QUICTUN_E2E_BLACKOUT_S` makes both longer, and `QUICTUN_E2E_RSYNC_MB` makes rsync transfer more. For ten minutes and a
//! gigabyte:
//!
//! ```text
//! QUICTUN_E2E_BLACKOUT_S=600 QUICTUN_E2E_RSYNC_MB=1000 QUICTUN_E2E_DEADLINE_S=1500 \
//!     cargo test --release -p quictun-e2e --test e2e outlive_a_blackout
//! ```

use std::fs::File;
use std::io::{PipeWriter, Write as _};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use quictun_testbed::application::Application;
use quictun_testbed::connection::Endpoint;
use quictun_testbed::isolation::isolated;
use quictun_testbed::machine::Machine;
use quictun_testbed::openssh::SshKeys;
use quictun_testbed::payload::Payload;
use quictun_testbed::postgresql::Database;
use quictun_testbed::program::{Program, command, installed, run};
use quictun_testbed::tunnel::{Client, Home, START, listen_address, server_pin};
use quictun_testbed::{deadline, environment};
use rustix::process::Signal;

/// The server's address, reachable by both cables.
const SERVER: &str = "10.30.0.2";

/// The client's HTTP interface.
const HTTP: &str = "127.0.0.1:8086";

/// The addresses of sshd and iperf3 on the far machine.
const SSHD: &str = "127.0.0.1:22";
const IPERF3: &str = "127.0.0.1:5201";

/// Timeouts that make a blackout end connections quickly.
const IDLE: [&str; 4] = ["--idle-timeout", "2s", "--keep-alive", "500ms"];

/// The log lines at client and server when the connection is gone.
const WAITS: [&str; 2] = [
    "connection to server endpoint lost: its flows wait for another one",
    "client endpoint gone: its flows wait for its return",
];
const GO_ON: &str = "flows continue on a new connection";
const MOVED: &str = "client endpoint changed its address";

/// The time limit for losing a connection and making another one, even on a busy machine.
const SOON: Duration = Duration::from_secs(20);

/// The time limit for everything that the programs do.
const DONE: Duration = Duration::from_mins(1);

/// The lines that ssh prints: the first ones take 3 s, so that the fault occurs while ssh prints them.
const SLOW_LINES: u32 = 300;
const LINES: u32 = 100_000;

/// iperf3 transfers this many bytes in each direction, which takes 3 s.
const IPERF3_BYTES: u64 = 15_000_000;
const IPERF3_RATE: &str = "40M";

/// rsync transfers this many megabytes, if the environment does not say otherwise, in at least this many seconds.
const RSYNC_MB: u64 = 6;
const RSYNC_S: u64 = 3;

/// The time for which iperf3 waits for data, in milliseconds. It is longer than any blackout.
const IPERF3_PATIENCE: [&str; 2] = ["--rcv-timeout", "3600000"];

/// The number of rows that psql inserts.
const ROWS: u32 = 50_000;

/// Two machines connected by two cables, with a tunnel between them.
struct TwoCableTunnel {
    here: Machine,
    far: Machine,
    server: Program,
    client: Client,
    forwards: Vec<Endpoint>,
    /// The home of commands that run here outside the tunnel.
    home: Home,
}

impl TwoCableTunnel {
    /// Starts a tunnel that leads to these targets on the far machine.
    fn new(targets: &[&str]) -> Result<Self> {
        let (here, far) = (Machine::here(), Machine::new("far")?);
        here.join(&far, "lan0", "10.20.0.1/24", "10.20.0.2/24")?;
        here.join(&far, "lan1", "10.21.0.1/24", "10.21.0.2/24")?;
        far.run(&format!("ip addr add {SERVER}/32 dev lo"))?;
        here.run(&format!("ip route add {SERVER} via 10.20.0.2"))?;
        let home = Home::new()?;
        let mut command = home.command(&far, "quictun")?;
        command.args(["server", "--listen", &format!("{SERVER}:7500")]);
        command.args(["--http", "off"]).args(IDLE);
        for target in targets {
            command.args(["--allow", target]);
        }
        let mut server = Program::start("server", &mut command)?;
        let line = server.wait_for("Server endpoint start up successful", START)?;
        let pin = server_pin(&line)?;
        let mut command = home.command(&here, "quictun")?;
        let listen = listen_address(&line)?;
        command.args(["client", "--server", &listen, "--pin", &pin]);
        command.args(["--psk-file", "state/client.psk", "--http", HTTP]);
        // One connection carries all flows, so a fault affects all of them.
        command.args(["--connections", "1", "--workers", "1"]);
        command.args(IDLE);
        for target in targets {
            command.args(["-L", &format!("127.0.0.1:0={target}")]);
        }
        command.args(["-D", "127.0.0.1:0"]);
        let client = Client::from_command(home, &mut command)?;
        let forwards = client.forwards(targets.len() + 1)?;
        Ok(Self {
            here,
            far,
            server,
            client,
            forwards,
            home: Home::new()?,
        })
    }

    fn port(&self, index: usize) -> Result<u16> {
        self.forwards.get(index).context("no such forward")?.port()
    }

    /// Drops everything that arrives through this device, at both ends of the cable.
    fn cut(&self, device: &str) -> Result<()> {
        self.drop_packets(device, &format!("iifname {device}"))
    }

    /// Drops all incoming packets that match, at both ends.
    fn drop_packets(&self, table: &str, matched: &str) -> Result<()> {
        let rules = format!(
            "table inet {table} {{ chain cable {{ type filter hook prerouting priority 0; {matched} drop; }}; }}\n"
        );
        let file = self.home.path().join("cut");
        std::fs::write(&file, rules)?;
        for machine in [&self.here, &self.far] {
            machine.run(&format!("nft -f {}", file.display()))?;
        }
        Ok(())
    }

    fn restore(&self, device: &str) -> Result<()> {
        for machine in [&self.here, &self.far] {
            machine.run(&format!("nft delete table inet {device}"))?;
        }
        Ok(())
    }

    /// Returns the client's UDP port, as the server sees it.
    fn client_port(&mut self) -> Result<String> {
        let line = self.server.wait_for("client connected", SOON)?;
        let (_, rest) = line.split_once("10.20.0.1:").context("no address")?;
        let digits = rest.split(|letter: char| !letter.is_ascii_digit());
        Ok(digits.take(1).collect())
    }

    /// Waits until both ends have lost the connection.
    fn wait_for_loss(&mut self) -> Result<()> {
        self.client.program.wait_for(WAITS[0], SOON)?;
        self.server.wait_for(WAITS[1], SOON)?;
        Ok(())
    }
}

/// A fault in the middle of all transfers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NetworkFault {
    /// No packet arrives for longer than the idle timeout.
    Blackout,
    /// The network is lost, and another one becomes available.
    Roaming,
    /// The client is stopped for longer than the idle timeout.
    Sleep,
    /// A firewall permanently drops packets from the client's port.
    Firewall,
    /// `quictun reconnect` asks for another connection.
    Reconnect,
}

impl NetworkFault {
    fn inject(self, site: &mut TwoCableTunnel) -> Result<()> {
        match self {
            Self::Blackout => {
                let end = Instant::now() + blackout_lasts()?;
                site.cut("lan0")?;
                site.wait_for_loss()?;
                wait_until(end)?;
                site.restore("lan0")?;
            }
            Self::Roaming => {
                site.cut("lan0")?;
                site.wait_for_loss()?;
                let route = format!("ip route replace {SERVER} via 10.21.0.2");
                site.here.run(&route)?;
            }
            Self::Sleep => {
                let end = Instant::now() + blackout_lasts()?;
                site.client.program.signal(Signal::STOP)?;
                site.server.wait_for(WAITS[1], SOON)?;
                wait_until(end)?;
                site.client.program.signal(Signal::CONT)?;
            }
            Self::Firewall => {
                let port = site.client_port()?;
                site.drop_packets("firewall", &format!("udp sport {port}"))?;
                // The client leaves from another port in both cases, and the connection that answers first continues.
                return deadline::until("the flows to continue", SOON, || {
                    site.server.has_printed(MOVED) || site.client.program.has_printed(GO_ON)
                });
            }
            Self::Reconnect => {
                let mut command = site.home.command(&site.here, "quictun")?;
                run(command.args(["reconnect", "--http", HTTP]))?;
            }
        }
        site.client.program.wait_for(GO_ON, SOON).map(drop)
    }
}

fn wait_until(end: Instant) -> Result<()> {
    let within = end.saturating_duration_since(Instant::now()) + SOON;
    deadline::until("the end of the fault", within, || Instant::now() >= end)
}

/// Returns the minimum duration of a blackout.
fn blackout_lasts() -> Result<Duration> {
    environment::number("QUICTUN_E2E_BLACKOUT_S", 0).map(Duration::from_secs)
}

#[test]
fn programs_outlive_a_blackout_that_ends_the_connection() -> Result<()> {
    isolated(|| programs_go_on_after(NetworkFault::Blackout))
}

#[test]
fn programs_outlive_a_change_of_network_after_the_old_one_was_gone() -> Result<()> {
    isolated(|| programs_go_on_after(NetworkFault::Roaming))
}

#[test]
fn programs_outlive_a_client_that_sleeps() -> Result<()> {
    isolated(|| programs_go_on_after(NetworkFault::Sleep))
}

#[test]
fn programs_outlive_a_firewall_that_drops_the_connection_for_good() -> Result<()> {
    isolated(|| programs_go_on_after(NetworkFault::Firewall))
}

#[test]
fn programs_outlive_quictun_reconnect() -> Result<()> {
    isolated(|| programs_go_on_after(NetworkFault::Reconnect))
}

/// Starts the programs, causes `fault`, and checks what they have transferred and how they ended.
fn programs_go_on_after(fault: NetworkFault) -> Result<()> {
    let database = Database::start("")?;
    let mut site = TwoCableTunnel::new(&[SSHD, IPERF3, &database.target()])?;
    let psql = Psql::start(&site, &database)?;
    let login = SshLogin::new(&site)?;
    let rsync = Rsync::start(&site, &login)?;
    let mut ssh = Ssh::start(&login)?;
    let mut iperf3 = Iperf3::start(&site)?;
    ssh.program.wait_for("20", SOON)?;
    fault.inject(&mut site)?;
    ssh.finish().context("finishing ssh")?;
    rsync.finish().context("finishing rsync")?;
    iperf3.finish().context("finishing iperf3")?;
    psql.finish().context("finishing psql")?;
    database.stop()?;
    let gone = site.client.program.count(WAITS[0]);
    let expected = match fault {
        NetworkFault::Reconnect | NetworkFault::Firewall => 0,
        NetworkFault::Blackout | NetworkFault::Roaming | NetworkFault::Sleep => 1,
    };
    ensure!(gone == expected, "the connection was lost {gone} times");
    Ok(())
}

/// sshd on the far machine, and the options with which ssh reaches it.
struct SshLogin {
    keys: SshKeys,
    options: Vec<String>,
    _sshd: Application,
}

impl SshLogin {
    fn new(site: &TwoCableTunnel) -> Result<Self> {
        let keys = SshKeys::new()?;
        let sshd = site.far.within(|| keys.sshd(SSHD.parse()?))?;
        // Through the proxy, which is the last forward.
        let proxy = site.forwards.last().context("no proxy")?.port()?;
        let nc = installed("nc", "netcat-openbsd")?;
        let nc = format!("{} -X 5 -x 127.0.0.1:{proxy} %h %p", nc.display());
        let mut options = keys.options();
        options.push(format!("-oProxyCommand={nc}"));
        Ok(Self {
            keys,
            options,
            _sshd: sshd,
        })
    }

    fn user(&self) -> String {
        self.keys.user_at("127.0.0.1")
    }
}

/// A command on the far machine that prints lines for a while.
struct Ssh {
    program: Program,
}

impl Ssh {
    fn start(login: &SshLogin) -> Result<Self> {
        let mut ssh = command("ssh");
        ssh.args(&login.options);
        ssh.arg(login.user()).arg(format!(
            "for i in $(seq {SLOW_LINES}); do echo $i; sleep 0.01; done; seq {} {LINES}; exit 7",
            SLOW_LINES + 1
        ));
        let mut program = Program::start_with("ssh", &mut ssh, Stdio::null())?;
        program.silence();
        Ok(Self { program })
    }

    fn finish(&mut self) -> Result<()> {
        let status = self.program.wait_end(DONE)?;
        let lines = self.program.lines();
        let last = lines.last();
        ensure!(status.code() == Some(7), "{status}: {last:?}");
        let wrong = (1..=LINES)
            .zip(&lines)
            .find(|(number, line)| number.to_string() != **line);
        ensure!(
            wrong.is_none() && lines.len() == usize::try_from(LINES)?,
            "{} lines; the first wrong line: {wrong:?}",
            lines.len()
        );
        Ok(())
    }
}

/// A file that rsync copies to the far machine.
struct Rsync {
    program: Program,
    payload: Payload,
    copy: PathBuf,
}

impl Rsync {
    fn start(site: &TwoCableTunnel, login: &SshLogin) -> Result<Self> {
        let rsync = installed("rsync", "rsync")?;
        let [file, copy] = ["file", "copy"].map(|name| site.home.path().join(name));
        let megabytes = environment::number("QUICTUN_E2E_RSYNC_MB", RSYNC_MB)?;
        let payload = Payload::new(1, 1_000_000 * megabytes);
        payload.write_to(&mut File::create(&file)?)?;
        let quoted = login.options.iter().map(|option| format!(" '{option}'"));
        let ssh = format!("ssh{}", quoted.collect::<String>());
        let mut rsync = site.here.command(&rsync);
        let limit = format!("--bwlimit={}", 1000 * megabytes / RSYNC_S);
        rsync.args(["--inplace", &limit, "-e", &ssh]).arg(&file);
        rsync.arg(format!("{}:{}", login.user(), copy.display()));
        let program = Program::start("rsync", &mut rsync)?;
        deadline::until("rsync to begin", SOON, || {
            copy.metadata().is_ok_and(|copy| copy.len() > 0)
        })?;
        Ok(Self {
            program,
            payload,
            copy,
        })
    }

    fn finish(mut self) -> Result<()> {
        let status = self.program.wait_end(DONE)?;
        let lines = self.program.lines();
        ensure!(status.success(), "{status}: {lines:?}");
        self.payload.read_to_end_of(&mut File::open(self.copy)?)
    }
}

/// iperf3, which transfers in both directions at once.
struct Iperf3 {
    program: Program,
    server: Program,
}

impl Iperf3 {
    fn start(site: &TwoCableTunnel) -> Result<Self> {
        let iperf3 = installed("iperf3", "iperf3")?;
        let mut serve = site.far.command(&iperf3);
        serve.args(["-s", "--one-off", "--forceflush"]);
        serve.args(IPERF3_PATIENCE);
        let mut server = Program::start("iperf3 server", &mut serve)?;
        server.wait_for("Server listening", START)?;
        let mut measure = site.here.command(&iperf3);
        measure.args(["-c", "127.0.0.1", "-p", &site.port(1)?.to_string()]);
        measure.args(IPERF3_PATIENCE);
        measure.args(["--bidir", "-J", "-b", IPERF3_RATE, "-n"]);
        measure.arg(IPERF3_BYTES.to_string());
        let program = Program::start("iperf3", &mut measure)?;
        server.wait_for("connected to", START)?;
        Ok(Self { program, server })
    }

    fn finish(&mut self) -> Result<()> {
        let status = self.program.wait_end(DONE)?;
        let text = self.program.lines().join("\n");
        ensure!(status.success(), "{status}: {text}");
        let report: serde_json::Value = serde_json::from_str(&text)?;
        let moved = |way: &str| report["end"][way]["bytes"].as_u64().context("no bytes");
        let ways = [moved("sum_sent")?, moved("sum_sent_bidir_reverse")?];
        // iperf3 ends when one direction has transferred all its bytes.
        ensure!(
            ways.iter().max() >= Some(&IPERF3_BYTES)
                && ways.iter().min() >= Some(&(IPERF3_BYTES / 4)),
            "{ways:?} bytes"
        );
        let status = self.server.wait_end(DONE)?;
        ensure!(status.success(), "the iperf3 server ended: {status}");
        self.program.silence();
        Ok(())
    }
}

/// A psql session with a transaction that stays open during the fault.
struct Psql {
    program: Program,
    statements: PipeWriter,
}

impl Psql {
    fn start(site: &TwoCableTunnel, database: &Database) -> Result<Self> {
        let (reading, mut statements) = std::io::pipe()?;
        let mut session = database.session(&site.here, site.port(2)?);
        let mut program = Program::start_with("psql", &mut session, Stdio::from(reading))?;
        statements.write_all(
            b"create table t (i int); begin; insert into t values (1); select 'begun';\n",
        )?;
        program.wait_for("begun", SOON)?;
        Ok(Self {
            program,
            statements,
        })
    }

    /// Completes the transaction; this fails if the statements arrive on another connection.
    fn finish(mut self) -> Result<()> {
        let statements = format!(
            "insert into t select generate_series(2, {ROWS}); commit; select count(*), sum(i::bigint) from t;\n"
        );
        self.statements.write_all(statements.as_bytes())?;
        drop(self.statements);
        let status = self.program.wait_end(DONE)?;
        let lines = self.program.lines();
        let rows = u64::from(ROWS);
        let counted = format!("{rows}|{}", rows * (rows + 1) / 2);
        ensure!(
            status.success() && lines == ["begun", &counted],
            "{status}: {lines:?}"
        );
        Ok(())
    }
}
