//! The HTTP interface of a live tunnel.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use quictun_testbed::application::Application;
use quictun_testbed::deadline;
use quictun_testbed::isolation::isolated;
use quictun_testbed::machine::Machine;
use quictun_testbed::program::Program;
use quictun_testbed::rest::{get, request};
use quictun_testbed::tunnel::{Client, Home, Server, Tunnel, listen_address};

const SOON: Duration = Duration::from_secs(10);

#[test]
fn the_http_interface_of_both_sides_shows_a_live_tunnel() -> Result<()> {
    isolated(|| {
        let application = Application::echo()?;
        let http = [
            SocketAddr::from(([127, 0, 0, 1], 8086)),
            SocketAddr::from(([127, 0, 0, 1], 8087)),
        ];
        let [server, client] = http.map(|address| address.to_string());
        let tunnel = Tunnel::with(
            &application.target(),
            &["--httpd-listen-on", &server],
            &["--httpd-listen-on", &client],
        )?;
        for address in http {
            ready(address)?;
            ensure!(
                get(address, "/tunnels")?.body.trim() == "null",
                "no tunnel is open yet"
            );
        }
        let mut connection = tunnel.client.forward.connect()?;
        connection.write_all(&[7; 5000])?;
        connection.read_exact(&mut [0; 5000])?;
        for address in http {
            // An answer may be up to a tenth of a second old.
            deadline::until("the tunnel to be shown", SOON, || {
                get(address, "/tunnels").is_ok_and(|a| a.body.trim() != "null")
            })?;
        }
        for (address, side) in [(http[0], "server"), (http[1], "client")] {
            check_tunnels(address, side)
                .with_context(|| format!("looking at the {side}'s side"))?;
        }
        let refused = request(http[0], "POST", "/tunnels")?;
        ensure!(
            refused.status == 405 && refused.body.contains("Please use GET request method"),
            "{refused:?}"
        );
        drop(connection);
        for address in http {
            deadline::until("the tunnel to disappear", SOON, || {
                get(address, "/tunnels").is_ok_and(|a| a.body.trim() == "null")
            })?;
        }
        Ok(())
    })
}

#[test]
fn ended_tunnels_are_not_listed() -> Result<()> {
    isolated(|| {
        let application = Application::echo()?;
        let http = [
            SocketAddr::from(([127, 0, 0, 1], 8086)),
            SocketAddr::from(([127, 0, 0, 1], 8087)),
        ];
        let [server, client] = http.map(|address| address.to_string());
        let tunnel = Tunnel::with(
            &application.target(),
            &["--httpd-listen-on", &server],
            &["--httpd-listen-on", &client],
        )?;
        let mut open = Vec::new();
        for _ in 0..100 {
            let mut connection = tunnel.client.forward.connect()?;
            connection.write_all(&[7; 5000])?;
            open.push(connection);
        }
        let listed = |address| -> Result<usize> {
            let tunnels = get(address, "/tunnels")?.json()?;
            Ok(tunnels.as_array().map_or(0, Vec::len))
        };
        for address in http {
            deadline::until("all tunnels to be listed", SOON, || {
                listed(address).is_ok_and(|count| count == open.len())
            })?;
        }
        // Half of them end in order; the others are cut with bytes in flight in both directions.
        for (number, mut connection) in open.into_iter().enumerate() {
            if number % 2 == 0 {
                connection.read_exact(&mut [0; 5000])?;
            }
        }
        for address in http {
            deadline::until("the last tunnel to disappear", SOON, || {
                get(address, "/tunnels").is_ok_and(|a| a.body.trim() == "null")
            })?;
        }
        Ok(())
    })
}

fn ready(address: SocketAddr) -> Result<()> {
    deadline::until("readiness", SOON, || {
        get(address, "/readyz").is_ok_and(|answer| answer.status == 200)
    })?;
    ensure!(get(address, "/healthz")?.status == 200, "not healthy");
    Ok(())
}

fn check_tunnels(address: SocketAddr, side: &str) -> Result<()> {
    let tunnels = get(address, "/tunnels")?.json()?;
    let [tunnel] = &tunnels.as_array().context("/tunnels is not an array")?[..] else {
        anyhow::bail!("expected exactly one tunnel: {tunnels}");
    };
    ensure!(tunnel["endpoint"] == side, "{tunnel}");
    for name in ["serverTotalBytes", "clientTotalBytes"] {
        ensure!(tunnel[name] == 5000, "{name}: {tunnel}");
    }
    for name in [
        "uuid",
        "remoteEndpointAddr",
        "createdAt",
        "serverSendRate",
        "clientSendRate",
    ] {
        ensure!(
            tunnel[name].as_str().is_some_and(|text| !text.is_empty()),
            "{name}: {tunnel}"
        );
    }
    let tunnels = get(address, "/v1/tunnels")?.json()?;
    let tunnel = &tunnels["tunnels"][0];
    ensure!(
        tunnel["side"] == side
            && tunnel["to_tunnel_bytes"] == 5000
            && tunnel["to_app_bytes"] == 5000,
        "{tunnel}"
    );
    let connections = get(address, "/v1/connections")?.json()?;
    let list = connections["connections"]
        .as_array()
        .context("`connections` is not a list")?;
    let busy = list
        .iter()
        .find(|connection| connection["flows"] == 1)
        .with_context(|| connections.to_string())?;
    ensure!(busy["protocol"] == "quictun/1", "{busy}");
    for name in [
        "rtt_seconds",
        "congestion_window_bytes",
        "mtu_bytes",
        "packets_sent",
        "datagrams_per_batch",
    ] {
        ensure!(
            busy[name].as_f64().is_some_and(|value| value > 0.0),
            "{name}: {busy}"
        );
    }
    let metrics = get(address, "/metrics")?;
    ensure!(
        metrics.status == 200
            && metrics.body.contains("# TYPE ")
            && metrics.body.contains("_bytes_total"),
        "{metrics:?}"
    );
    Ok(())
}

#[test]
fn two_programs_on_one_host_cope_with_the_default_http_port() -> Result<()> {
    isolated(|| {
        let application = Application::echo()?;
        let home = Home::new()?;
        let mut server = home.command(&Machine::here(), "quictun-server")?;
        let server = Server::from_command(home, &mut server)?;
        ready("127.0.0.1:8086".parse()?)?;
        let home = Home::new()?;
        let mut client = home.command(&Machine::here(), "quictun-client")?;
        client.args([
            "--server-endpoint",
            "127.0.0.1:7500",
            "--token-source",
            &application.target(),
        ]);
        let mut client = Client::from_command(home, &mut client)?;
        client.program.wait_for("no HTTP interface", SOON)?;
        quictun_testbed::application::through_echo(
            &client.forward,
            quictun_testbed::payload::Payload::new(91, 1000),
        )?;
        drop(server);
        Ok(())
    })
}

#[test]
fn the_http_address_is_logged_as_bound_and_answers_once_the_start_is_reported() -> Result<()> {
    let application = Application::echo()?;
    let any_port = ["--httpd-listen-on", "127.0.0.1:0"];
    let tunnel = Tunnel::with(&application.target(), &any_port, &any_port)?;
    for (program, started) in [
        (
            &tunnel.server.program,
            "Server endpoint start up successful",
        ),
        (
            &tunnel.client.program,
            "Client endpoint start up successful",
        ),
    ] {
        let lines = program.lines();
        let http = position(&lines, "HTTP interface")?;
        ensure!(
            http < position(&lines, started)?,
            "the start was reported first: {lines:?}"
        );
        let address: SocketAddr = listen_address(&lines[http])?.parse()?;
        ensure!(get(address, "/healthz")?.status == 200, "not healthy");
    }
    let target = format!("\"to\": \"{}\"", application.target());
    ensure!(
        tunnel.client.program.has_printed(&target),
        "the client did not log its target"
    );
    Ok(())
}

#[test]
fn a_taken_http_address_prevents_the_start_report() -> Result<()> {
    let taken = std::net::TcpListener::bind("127.0.0.1:0")?;
    let address = taken.local_addr()?.to_string();
    let home = Home::new()?;
    let mut command = home.command(&Machine::here(), "quictun-server")?;
    command.args(["--listen-on", "127.0.0.1:0", "--httpd-listen-on", &address]);
    let mut server = Program::start("server", &mut command)?;
    let status = server.wait_end(SOON)?;
    ensure!(status.code() == Some(1), "{status}");
    ensure!(server.has_printed(&address), "no address");
    ensure!(!server.has_printed("start up successful"), "start reported");
    Ok(())
}

fn position(lines: &[String], phrase: &str) -> Result<usize> {
    let found = lines.iter().position(|line| line.contains(phrase));
    found.with_context(|| format!("no {phrase:?} in {lines:?}"))
}
