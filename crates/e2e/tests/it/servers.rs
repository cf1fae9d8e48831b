//! A client with several servers: `[[server]]` tables, and what the client does when a server dies.

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use quictun_testbed::application::{Application, served_within, there_and_back, through_echo};
use quictun_testbed::connection::Endpoint;
use quictun_testbed::deadline;
use quictun_testbed::machine::Machine;
use quictun_testbed::payload::Payload;
use quictun_testbed::program::Program;
use quictun_testbed::rest;
use quictun_testbed::tunnel::{Client, Home, listen_address};
use rustix::process::Signal;

use crate::native::{NativeServer, bare, between};

const SOON: Duration = Duration::from_secs(10);

const SOME: Payload = Payload {
    seed: 82,
    bytes: 100_000,
};

/// Starts a client for these servers, each with its own pin and secret. `keys` are more keys of its file.
fn client_of(servers: &mut [NativeServer], target: &str, keys: &str) -> Result<Client> {
    let home = Home::new()?;
    let mut file = format!("{keys}\n");
    for (number, server) in servers.iter_mut().enumerate() {
        let pin = between(&server.client_line()?, "--pin ", ' ')?;
        let (address, secret) = (&server.address, format!("{number}.psk"));
        std::fs::copy(
            server.home.path().join("state/client.psk"),
            home.path().join(&secret),
        )?;
        writeln!(
            file,
            "[[server]]\naddress = '{address}'\npin = '{pin}'\npsk_file = '{secret}'"
        )?;
    }
    writeln!(file, "[[forward]]\nlisten = 0\ntarget = '{target}'")?;
    std::fs::write(home.path().join("client.toml"), file)?;
    let mut command = home.command(&Machine::here(), "quictun")?;
    command.args(["client", "-c", "client.toml", "--connections", "1"]);
    command.args(["--http", "127.0.0.1:0"]);
    Client::from_command(home, &mut command)
}

/// Returns what `/v1/status` reports for each server.
fn states(client: &mut Client) -> Result<Vec<String>> {
    let line = client.program.wait_for("HTTP interface\t", SOON)?;
    let at = listen_address(&line)?.parse()?;
    let status = rest::get(at, "/v1/status")?.json()?;
    let servers = status["servers"].as_array().context("servers")?;
    let why = servers.iter().map(|server| server["why"].as_str());
    let why: Option<Vec<&str>> = why.collect();
    let why = why.context("a server lacks its `why`")?;
    Ok(why.into_iter().map(str::to_owned).collect())
}

/// Starts two servers and a client that is connected to both. Returns them, and the index of the server that it uses.
fn two_servers(application: &Application) -> Result<([NativeServer; 2], Client, usize)> {
    let target = bare(&application.target());
    let start = || NativeServer::start(&["--allow", &target]);
    let mut servers = [start()?, start()?];
    let mut client = client_of(&mut servers, &target, "")?;
    through_echo(&client.forward, SOME)?;
    let connected = || client.program.count("connected to server endpoint") == 2;
    deadline::until("connections to both servers", SOON, connected)?;
    let line = client
        .program
        .wait_for("new flows go to this server", SOON)?;
    let chosen = usize::from(!line.contains(&servers[0].address));
    Ok((servers, client, chosen))
}

#[test]
fn new_flows_take_another_server_when_one_is_killed_and_status_says_why() -> Result<()> {
    let application = Application::echo()?;
    let (mut servers, mut client, chosen) = two_servers(&application)?;
    let other = 1 - chosen;
    servers[chosen].program.kill()?;
    // The client notices a silent death by its flows: this one, and those in the following second.
    let took = served_within(&client.forward, SOME, SOON)?;
    ensure!(took < Duration::from_secs(5), "{took:?}");
    let switched = format!("\"server\": \"{}\", \"before\"", servers[other].address);
    let line = client.program.wait_for(&switched, SOON)?;
    ensure!(line.contains("the other does not answer"), "{line}");
    let states = states(&mut client)?;
    ensure!(
        states[other] == "in use: the other does not answer",
        "{states:?}"
    );
    ensure!(!states[chosen].starts_with("in use"), "{states:?}");

    servers[other].program.kill()?;
    let line = client.program.wait_for("none of the servers", 3 * SOON)?;
    for server in &servers {
        ensure!(line.contains(&server.address), "{line}");
    }
    Ok(())
}

// PROTOCOL CONTROL-8.
#[test]
fn new_flows_leave_a_server_that_drains_and_none_fails() -> Result<()> {
    let application = Application::echo()?;
    let (mut servers, mut client, chosen) = two_servers(&application)?;
    // This flow is the reason why the server drains for a while.
    let mut long = client.forward.connect()?;
    there_and_back(&mut long, SOME, false)?;
    let drains = &mut servers[chosen].program;
    drains.signal(Signal::TERM)?;
    for _ in 0..100 {
        through_echo(&client.forward, SOME)?;
    }
    client.program.wait_for("the other shuts down", SOON)?;
    let why = &states(&mut client)?[chosen];
    ensure!(why == "shuts down: keeps its flows", "{why}");
    there_and_back(&mut long, SOME, true)?;
    drains.wait_end(SOON)?;
    through_echo(&client.forward, SOME)
}

// PROTOCOL REVERSE-15.
#[test]
fn the_first_server_listens_and_no_other_one_and_it_listens_again_when_it_returns() -> Result<()> {
    let application = Application::echo()?;
    let target = bare(&application.target());
    let sockets = Home::new()?;
    let path = sockets.path().join("visitors").display().to_string();
    let rule = format!("unix:{path}");
    let start = || NativeServer::start(&["--allow", &target, "--listen-for", &rule]);
    let mut servers = [start()?, start()?];
    let reverse = format!("reverse = ['{rule}={target}']");
    let mut client = client_of(&mut servers, &target, &reverse)?;
    let listens = "the server listens for this client";
    client.program.wait_for(listens, SOON)?;
    let visitors = Endpoint::parse(&rule)?;
    through_echo(&visitors, SOME)?;
    let connected = |count| {
        let lines = || client.program.count("connected to server endpoint") == count;
        deadline::until("connections to both servers", SOON, lines)
    };
    connected(2)?;

    servers[0].program.kill()?;
    served_within(&client.forward, SOME, SOON)?;
    ensure!(visitors.connect().is_err(), "another server listens");
    let [first, second] = &mut servers;
    let mut command = first.home.command(&Machine::here(), "quictun")?;
    command.args(["server", "--listen", &first.address, "--http", "off"]);
    command.args(["--allow", &target, "--listen-for", &rule]);
    first.program = Program::start("server", &mut command)?;
    deadline::until("the first server to listen again", 3 * SOON, || {
        client.program.count(listens) == 2
    })?;
    through_echo(&visitors, SOME)?;
    ensure!(
        !second.program.has_printed("a client"),
        "the second server was asked to listen"
    );
    Ok(())
}
