//! The commands that quic-tun's report published, exactly as README.md has them, between two machines.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use quictun_testbed::isolation::isolated;
use quictun_testbed::machine::Machine;
use quictun_testbed::program::{Program, installed, output};
use quictun_testbed::tunnel::{Home, START};
use quictun_testbed::{binaries, deadline};

use crate::documents::{README, block};

/// The first of the commands, and the address in the second.
const FIRST: &str = "$ ./quictun-server";
const SERVER: &str = "192.168.26.129";

/// Log lines of the original that users search for, at the original's level.
const SERVER_PHRASES: [&str; 8] = [
    "Server endpoint start up successful",
    "A new client endpoint connect request accepted.",
    "Starting handshake with client endpoint",
    "starting connect to server app",
    "Server app connect successful",
    "Handshake successful",
    "Tunnel established successful",
    "Tunnel closed",
];
const CLIENT_PHRASES: [&str; 5] = [
    "Client endpoint start up successful",
    "Client connection accepted, prepare to entablish tunnel with server endpint for this connection.",
    "Starting handshake with server endpoint",
    "Handshake successful",
    "Tunnel closed",
];

#[test]
fn the_published_commands_carry_iperf3_both_ways_with_1_and_16_streams() -> Result<()> {
    isolated(|| {
        let mut pair = PublishedPair::start()?;
        for streams in ["1", "16"] {
            for reverse in [&[][..], &["-R"][..]] {
                let bytes = pair.iperf3(&[&["-P", streams], reverse].concat())?;
                ensure!(
                    bytes > 10_000_000,
                    "{streams} streams {reverse:?} moved {bytes} bytes in a second"
                );
            }
        }
        Ok(())
    })
}

#[test]
fn the_programs_log_the_phrases_of_quic_tun() -> Result<()> {
    isolated(|| {
        let mut pair = PublishedPair::start()?;
        pair.iperf3(&[])?;
        for (program, phrases) in [
            (&pair.server, &SERVER_PHRASES[..]),
            (&pair.client, &CLIENT_PHRASES[..]),
        ] {
            for phrase in phrases {
                deadline::until(phrase, Duration::from_secs(20), || {
                    program.has_printed(phrase)
                })?;
            }
        }
        ensure!(
            pair.server.has_printed("\"listen address\": \"[::]:7500\""),
            "the server does not listen on the default address of the published log"
        );
        Ok(())
    })
}

/// A server machine and a client machine, with their programs.
struct PublishedPair {
    client: Program,
    server: Program,
    iperf3: Program,
    traffic: &'static str,
    runs: usize,
    _far: Machine,
    _homes: [Home; 2],
}

impl PublishedPair {
    fn start() -> Result<Self> {
        let (here, far) = (Machine::here(), Machine::new("server machine")?);
        here.join(&far, "lan0", "192.168.26.128/24", &format!("{SERVER}/24"))?;
        let homes = [Home::new()?, Home::new()?];
        for home in &homes {
            for program in ["quictun-server", "quictun-client"] {
                std::os::unix::fs::symlink(binaries::path(program)?, home.path().join(program))?;
            }
        }
        let mut iperf3 = far.command(installed("iperf3", "iperf3")?);
        let iperf3 = Program::start("iperf3", iperf3.args(["-s", "--forceflush"]))?;
        let [server, client, traffic] = block(README, FIRST)?[..] else {
            bail!("README.md must have three commands: a server, a client and iperf3");
        };
        let line = format!("exec {}", server.1);
        let mut server = Program::start("server", &mut shell(&far, &homes[0], &line))?;
        server.wait_for(SERVER_PHRASES[0], START)?;
        let line = format!("exec {}", client.1);
        let mut client = Program::start("client", &mut shell(&here, &homes[1], &line))?;
        client.wait_for(CLIENT_PHRASES[0], START)?;
        Ok(Self {
            client,
            server,
            iperf3,
            traffic: traffic.1,
            runs: 0,
            _far: far,
            _homes: homes,
        })
    }

    /// Runs iperf3 for a second; returns the bytes that arrived.
    fn iperf3(&mut self, more: &[&str]) -> Result<u64> {
        // Between two tests the server closes its port for a moment.
        self.runs += 1;
        self.iperf3.wait_for(
            &format!("Server listening on 5201 (test #{})", self.runs),
            START,
        )?;
        let mut words = self.traffic.split_whitespace();
        let mut iperf3 = Machine::here().command(words.next().context("no command")?);
        iperf3.args(words).args(["-t", "1", "-J"]).args(more);
        let output = output(&mut iperf3)?;
        let text = String::from_utf8_lossy(&output.stdout);
        ensure!(output.status.success(), "iperf3 {more:?}: {text}");
        let report: serde_json::Value = serde_json::from_str(&text)?;
        report["end"]["sum_received"]["bytes"]
            .as_u64()
            .with_context(|| format!("the report lacks `bytes`: {text}"))
    }
}

fn shell(machine: &Machine, home: &Home, line: &str) -> Command {
    let mut command = machine.command("sh");
    command.args(["-c", line]);
    home.settle(&mut command);
    command
}
