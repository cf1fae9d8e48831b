//! Metrics of a live tunnel, and what Prometheus' promtool reports about them, the alerts and the alerts' tests.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use quictun_testbed::application::Application;
use quictun_testbed::deadline;
use quictun_testbed::isolation::with_programs;
use quictun_testbed::machine::Machine;
use quictun_testbed::program::{Program, installed, run};
use quictun_testbed::rest::get;
use quictun_testbed::tunnel::{Client, Home, START, listen_address};
use rustix::process::Signal;

const SOON: Duration = Duration::from_secs(10);

const ALERTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/alerts");

/// A server that knows two clients, and one of these clients.
struct MeteredPair {
    client: Client,
    server: Program,
    /// The HTTP interfaces of server and client.
    http: [SocketAddr; 2],
}

impl MeteredPair {
    fn to(target: &str) -> Result<Self> {
        let home = Home::new()?;
        let target = target.trim_start_matches("tcp:");
        let mut clients = Vec::new();
        for name in ["laptop", "branch"] {
            let file = format!("{name}.psk");
            std::fs::write(home.path().join(&file), format!("a secret of the {name}\n"))?;
            clients.extend([
                format!("[[client]]\nname = '{name}'\npsk_file = '{file}'\n"),
                format!("allow = ['{target}']\n"),
            ]);
        }
        std::fs::write(home.path().join("server.toml"), clients.concat())?;
        let here = Machine::here();
        let any_port = ["--http", "127.0.0.1:0"];
        let mut command = home.command(&here, "quictun")?;
        command.args(["server", "--listen", "127.0.0.1:0", "-c", "server.toml"]);
        let mut server = Program::start("server", command.args(any_port))?;
        let up = server.wait_for("Server endpoint start up successful", START)?;
        let pin = up
            .split("\"pin\": \"")
            .nth(1)
            .and_then(|rest| rest.split('"').next());
        let mut command = home.command(&here, "quictun")?;
        command.args(["client", "--server", &listen_address(&up)?]);
        command.args(["--pin", pin.context("no pin")?, "--psk-file", "laptop.psk"]);
        command
            .args(["-L", &format!("127.0.0.1:0={target}")])
            .args(any_port);
        let mut client = Client::from_command(home, &mut command)?;
        let http = |program: &mut Program| -> Result<SocketAddr> {
            let line = program.wait_for("HTTP interface", SOON)?;
            Ok(listen_address(&line)?.parse()?)
        };
        let http = [http(&mut server)?, http(&mut client.program)?];
        Ok(Self {
            client,
            server,
            http,
        })
    }
}

fn scrape(http: SocketAddr) -> Result<String> {
    let answer = get(http, "/metrics")?;
    ensure!(answer.status == 200, "{answer:?}");
    Ok(answer.body)
}

#[test]
fn bytes_of_an_open_flow_are_counted_for_its_client() -> Result<()> {
    let application = Application::echo()?;
    let mut pair = MeteredPair::to(&application.target())?;
    let mut connection = pair.client.forward.connect()?;
    connection.write_all(&[7; 5000])?;
    connection.read_exact(&mut [0; 5000])?;
    let [server, client] = pair.http;
    let own = [
        "quictun_flow_bytes_total{direction=\"to_tunnel\"} 5000\n",
        "quictun_flow_bytes_total{direction=\"to_app\"} 5000\n",
        "quictun_flow_first_byte_seconds_count 1\n",
        "quictun_flow_duration_seconds_count 0\n",
    ];
    let of_clients = [
        "quictun_client_flows{client=\"laptop\"} 1\n",
        "quictun_client_connections{client=\"branch\"} 0\n",
        "quictun_client_flow_bytes_total{client=\"laptop\",direction=\"to_app\"} 5000\n",
        "quictun_client_flow_bytes_total{client=\"branch\",direction=\"to_app\"} 0\n",
    ];
    // An answer may be up to a tenth of a second old.
    deadline::until("the open flow to be counted", SOON, || {
        let has = |http, lines: &[&str]| {
            scrape(http).is_ok_and(|text| lines.iter().all(|line| text.contains(line)))
        };
        has(server, &own) && has(server, &of_clients) && has(client, &own)
    })?;
    drop(connection);
    deadline::until("the flow's end to be counted", SOON, || {
        let ended = "quictun_client_flows_ended_total{client=\"laptop\",outcome=\"finished\"} 1\n";
        scrape(server).is_ok_and(|text| {
            text.contains(ended) && text.contains("quictun_flow_duration_seconds_count 1\n")
        })
    })?;
    for program in [&mut pair.server, &mut pair.client.program] {
        program.silence();
    }
    Ok(())
}

#[test]
fn a_reload_adds_the_series_of_new_clients_and_removes_none() -> Result<()> {
    let application = Application::echo()?;
    let mut pair = MeteredPair::to(&application.target())?;
    let home = pair.client.home.path();
    std::fs::write(home.join("visitor.psk"), "a secret of the visitor\n")?;
    let file = home.join("server.toml");
    let clients = std::fs::read_to_string(&file)?;
    std::fs::write(&file, clients.replace("branch", "visitor"))?;
    pair.server.signal(Signal::HUP)?;
    pair.server.wait_for("configuration reloaded", SOON)?;
    deadline::until("the metrics of all three clients", SOON, || {
        let there = |text: &str, name| {
            text.contains(&format!("quictun_client_flows{{client=\"{name}\"}} 0\n"))
        };
        let names = ["laptop", "branch", "visitor"];
        scrape(pair.http[0]).is_ok_and(|text| names.iter().all(|name| there(&text, name)))
    })?;
    for program in [&mut pair.server, &mut pair.client.program] {
        program.silence();
    }
    Ok(())
}

/// Runs `promtool`, which must succeed without output.
fn promtool(arguments: &[&str], input: &str) -> Result<()> {
    let mut command = Command::new(installed("promtool", "prometheus")?);
    let mut file = tempfile::tempfile()?;
    file.write_all(input.as_bytes())?;
    std::io::Seek::rewind(&mut file)?;
    let said = command.args(arguments).stdin(file).output()?;
    let words = String::from_utf8_lossy(&[said.stdout, said.stderr].concat()).into_owned();
    ensure!(
        said.status.success() && words.is_empty(),
        "{arguments:?}: {words}\n{input}"
    );
    Ok(())
}

#[test]
fn promtool_accepts_the_metrics_and_alerts() -> Result<()> {
    with_programs(|| {
        for (what, file) in [("check", "quictun.rules.yml"), ("test", "quictun.test.yml")] {
            let mut command = Command::new(installed("promtool", "prometheus")?);
            run(command.args([what, "rules", &format!("{ALERTS}/{file}")]))?;
        }
        let application = Application::echo()?;
        let pair = MeteredPair::to(&application.target())?;
        for http in pair.http {
            promtool(&["check", "metrics"], &scrape(http)?)?;
        }
        Ok(())
    })
}
