//! Redirected flows and flows of reverse forwards continue when their connection is lost (PROTOCOL sections 5.8 and 5.9).
//! For forwards and the proxy see `bonds`.

use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use quictun_testbed::application::{Application, echo, through_echo};
use quictun_testbed::connection::{Connection, Endpoint};
use quictun_testbed::isolation::isolated;
use quictun_testbed::machine::Machine;
use quictun_testbed::payload::Payload;
use quictun_testbed::program::Program;
use quictun_testbed::tunnel::{Home, START, server_pin};

use crate::{reverse, transparent};

/// The server's address and the address of the echo behind it.
const SERVER: &str = "10.20.0.2:7500";
const ECHO: &str = "198.51.100.7:7000";

/// Timeouts that make a blackout end the connection quickly.
const IDLE: [&str; 4] = ["--idle-timeout", "2s", "--keep-alive", "500ms"];

/// The log lines at client and server when the connection is gone.
const WAITS: [&str; 2] = [
    "connection to server endpoint lost: its flows wait for another one",
    "client endpoint gone: its flows wait for its return",
];
const LOST: [&str; 2] = [
    "connection to server endpoint lost",
    "client endpoint lost: its flows were reset",
];
const LISTENER_CONTINUES: &str = "the listener continues on another connection of its client";
const GO_ON: &str = "flows continue on a new connection";

/// The time limit for losing a connection and making another one, even on a busy machine.
const SOON: Duration = Duration::from_secs(20);

/// The bytes that a flow carries each way before the cable is cut, and from then on.
const BEFORE: Payload = Payload {
    seed: 91,
    bytes: 1 << 20,
};
const AFTER: Payload = Payload {
    seed: 92,
    bytes: 8 << 20,
};

/// Two machines on one cable: the client and an echo here, the server and an echo at the far end.
pub(crate) struct CableTunnel {
    here: Machine,
    pub(crate) far: Machine,
    pub(crate) server: Program,
    pub(crate) client: Program,
    home: Home,
    _echo: Application,
}

impl CableTunnel {
    /// Starts a tunnel whose client has these additional options, and whose connections end soon.
    fn new(options: &[&str]) -> Result<Self> {
        Self::with(&IDLE, &[&IDLE, options].concat())
    }

    /// Starts a tunnel whose ends have these additional options.
    pub(crate) fn with(of_server: &[&str], of_client: &[&str]) -> Result<Self> {
        let (here, far) = (Machine::here(), Machine::new("far")?);
        here.join(&far, "lan0", "10.20.0.1/24", "10.20.0.2/24")?;
        // The kernel needs a route before it consults the packet filter.
        here.run("ip route add 198.51.100.0/24 dev lan0")?;
        far.run("ip address add 198.51.100.7 dev lo")?;
        let behind: SocketAddr = ECHO.parse()?;
        // This echo listens until the process ends.
        far.within(|| Application::tcp_on(behind, echo).map(drop))?;
        let local = Application::echo()?;
        let home = Home::new()?;
        let mut command = home.command(&far, "quictun")?;
        command.args(["server", "--listen", SERVER, "--http", "off"]);
        command.args(["--allow", ECHO, "--listen-for", "127.0.0.1:*"]);
        let mut server = Program::start("server", command.args(of_server))?;
        let pin = server_pin(&server.wait_for("Server endpoint start up successful", START)?)?;
        let mut command = home.command(&here, "quictun")?;
        command.args(["client", "--server", SERVER, "--pin", &pin]);
        command.args(["--psk-file", "state/client.psk", "--http", "off"]);
        // One connection carries all flows, so its loss affects all of them.
        command.args(["--connections", "1", "--workers", "1"]);
        command.args(["--redirect", "7501"]);
        command.args(["-R", &format!("127.0.0.1:0={}", local.target())]);
        let client = Program::start("client", command.args(of_client))?;
        Ok(Self {
            here,
            far,
            server,
            client,
            home,
            _echo: local,
        })
    }

    /// Drops everything that arrives through the cable, at both ends.
    pub(crate) fn cut(&self) -> Result<()> {
        let rules = "table inet cut { chain cable { type filter hook prerouting priority 0; iifname lan0 drop; }; }\n";
        let file = self.home.path().join("cut");
        std::fs::write(&file, rules)?;
        for machine in [&self.here, &self.far] {
            machine.run(&format!("nft -f {}", file.display()))?;
        }
        Ok(())
    }

    pub(crate) fn restore(&self) -> Result<()> {
        for machine in [&self.here, &self.far] {
            machine.run("nft delete table inet cut")?;
        }
        Ok(())
    }

    /// Sends bytes through an echo while the connection under the flow is lost, and checks each of them.
    fn lose_connection_under(&mut self, mut flow: Connection) -> Result<()> {
        BEFORE.write_to(&mut flow)?;
        BEFORE.read_from(&mut flow)?;
        self.cut()?;
        let mut writer = flow.try_clone()?;
        thread::scope(|scope| {
            // The first of these bytes go into the dead connection.
            let written = scope.spawn(move || {
                AFTER.write_to(&mut writer)?;
                writer.finish()
            });
            self.client.wait_for(WAITS[0], SOON)?;
            self.server.wait_for(WAITS[1], SOON)?;
            self.restore()?;
            self.client.wait_for(GO_ON, SOON)?;
            AFTER.read_to_end_of(&mut flow)?;
            written
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }
}

// PROTOCOL REVERSE-12, REVERSE-13.
#[test]
fn a_flow_of_a_reverse_forward_continues_when_its_connection_is_lost() -> Result<()> {
    isolated(|| {
        let mut tunnel = CableTunnel::new(&[])?;
        let listener = reverse::bound(&mut tunnel.client)?;
        let flow = tunnel.far.within(|| listener.connect())?;
        tunnel
            .lose_connection_under(flow)
            .context("a flow of a reverse forward")?;
        // Each byte counts once, although some were sent twice.
        let bytes = (BEFORE.bytes + AFTER.bytes).to_string();
        for program in [&mut tunnel.client, &mut tunnel.server] {
            let line = program.wait_for("flow closed", SOON)?;
            ensure!(line.matches(&bytes).count() == 2, "{line}");
        }
        ensure!(!tunnel.server.has_printed(LOST[1]), "a flow was reset");
        tunnel.server.wait_for(LISTENER_CONTINUES, SOON)?;
        tunnel.far.within(|| through_echo(&listener, BEFORE))
    })
}

// PROTOCOL REVERSE-10, REVERSE-12.
#[test]
fn without_bonds_a_flow_of_a_reverse_forward_is_reset_and_its_listener_continues() -> Result<()> {
    isolated(|| {
        let mut tunnel = CableTunnel::new(&["--bond-ttl", "0s"])?;
        let listener = reverse::bound(&mut tunnel.client)?;
        let mut flow = tunnel.far.within(|| listener.connect())?;
        BEFORE.write_to(&mut flow)?;
        BEFORE.read_from(&mut flow)?;
        tunnel.cut()?;
        let ending = flow.ending();
        ensure!(ending.is_reset(), "the flow: {ending:?}");
        tunnel.client.wait_for(LOST[0], SOON)?;
        tunnel.server.wait_for(LOST[1], SOON)?;
        tunnel.restore()?;
        tunnel.server.wait_for(LISTENER_CONTINUES, SOON)?;
        tunnel.far.within(|| through_echo(&listener, BEFORE))
    })
}

#[test]
fn a_redirected_flow_continues_when_its_connection_is_lost() -> Result<()> {
    isolated(|| {
        let mut tunnel = CableTunnel::new(&[])?;
        tunnel
            .client
            .wait_for("Client endpoint start up successful", START)?;
        transparent::apply_rules(&tunnel.home, "--redirect", "7501")?;
        let flow = Endpoint::Tcp(ECHO.parse()?).connect()?;
        tunnel
            .lose_connection_under(flow)
            .context("a redirected flow")
    })
}
