//! The programs of this workspace with a peer that behaves like quic-tun v0.0.3 to v0.0.5, including its faults.

use std::io::{Read, Write};
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use quictun_testbed::application::{
    Application, BlackHole, RefusingAddress, echo, there_and_back, through_echo_held_open,
};
use quictun_testbed::connection::{Connection, Endpoint};
use quictun_testbed::deadline;
use quictun_testbed::original::Original;
use quictun_testbed::payload::Payload;
use quictun_testbed::tunnel::{Client, Home, Server};

const SOON: Duration = Duration::from_secs(10);
const SOME: Payload = Payload {
    seed: 21,
    bytes: 8 << 20,
};
const SMALL: Payload = Payload {
    seed: 23,
    bytes: 10_000,
};
/// The time limit for a flow that nothing delays, on a busy machine too: less than half of the 10 s after which a dial,
/// and a request that is not finished, are given up.
const FAST: Duration = Duration::from_secs(4);
const GOOD: Ipv4Addr = Ipv4Addr::LOCALHOST;
const BAD: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

#[test]
fn our_client_moves_data_through_the_originals_server() -> Result<()> {
    let application = Application::echo()?;
    let Some((_server, client)) =
        originals_server("interop", &["--token-source", &application.target()])?
    else {
        return Ok(());
    };
    for _ in 0..3 {
        through_echo_held_open(&client.forward, SOME)?;
    }
    Ok(())
}

#[test]
fn the_originals_client_moves_data_through_our_server() -> Result<()> {
    let application = Application::echo()?;
    let server = Server::start(&[])?;
    for token in ["whole", "-split"] {
        let flags = if token == "-split" { &[token][..] } else { &[] };
        let Some(client) = originals_client(&server, &application.target(), flags)? else {
            return Ok(());
        };
        for _ in 0..3 {
            through_echo_held_open(&client.forward()?, SOME)
                .with_context(|| format!("token: {token}"))?;
        }
    }
    Ok(())
}

#[test]
fn a_refused_target_does_not_block_the_originals_server() -> Result<()> {
    let (application, refusing) = (Application::echo()?, RefusingAddress::new()?);
    let tokens = Tokens::new(&application.target(), &refusing.target())?;
    let Some((_server, client)) = originals_server("b1", &tokens.arguments())? else {
        return Ok(());
    };
    for _ in 0..5 {
        let ending = client.forward.connect_from(BAD)?.ending();
        ensure!(ending.is_reset(), "a refused target ended as {ending:?}");
        let started = Instant::now();
        through_echo_held_open(&client.forward, Payload::new(22, 100_000))?;
        ensure!(
            started.elapsed() < Duration::from_secs(5),
            "a flow after a refused target took {:?}",
            started.elapsed()
        );
    }
    Ok(())
}

#[test]
fn the_originals_client_survives_a_refused_target_of_ours() -> Result<()> {
    let refusing = RefusingAddress::new()?;
    let server = Server::start(&[])?;
    let Some(mut client) = originals_client(&server, &refusing.target(), &[])? else {
        return Ok(());
    };
    let ending = client.forward()?.ending()?;
    ensure!(
        !matches!(ending, quictun_testbed::connection::DirectionEnd::Other(_)),
        "{ending:?}"
    );
    client
        .program
        .wait_for("cannot reach the application", SOON)
        .map(drop)
}

#[test]
fn a_black_holed_target_delays_no_other_flow() -> Result<()> {
    let (application, hole) = (Application::echo()?, BlackHole::new()?);
    let tokens = Tokens::new(&application.target(), &hole.target())?;
    // One connection, so that flows that hang and flows that do not start on the same one.
    let arguments = [&tokens.arguments()[..], &["--connections", "1"]].concat();
    let Some((_server, client)) = originals_server("b2", &arguments)? else {
        return Ok(());
    };
    through_echo_held_open(&client.forward, SMALL)?;
    let _hanging = open_hanging_flows(&client)?;
    // The original dials one target after another. The client detects only by a late answer that one hangs, and each
    // hanging flow may take an additional connection.
    deadline::wait("a spare connection", 3 * SOON, || {
        let mut connection = client.forward.connect()?;
        connection.set_timeout(Duration::from_millis(500))?;
        Ok(there_and_back(&mut connection, SMALL, false).ok())
    })?;
    good_flows_are_fast(&client.forward)
}

#[test]
fn a_black_holed_target_delays_no_other_flow_between_native_programs() -> Result<()> {
    let (application, hole) = (Application::echo()?, BlackHole::new()?);
    let tokens = Tokens::new(&application.target(), &hole.target())?;
    let server = Server::start(&[])?;
    let client = Client::start(&server.address.to_string(), &tokens.arguments())?;
    through_echo_held_open(&client.forward, SMALL)?;
    let _hanging = open_hanging_flows(&client)?;
    good_flows_are_fast(&client.forward)
}

/// Opens connections that lead into the black hole and waits until all have started, so that later ones are behind
/// them.
fn open_hanging_flows(client: &Client) -> Result<Vec<Connection>> {
    const HANGING: usize = 4;
    let all: Result<Vec<_>> = (0..HANGING)
        .map(|_| client.forward.connect_from(BAD))
        .collect();
    let from = BAD.to_string();
    deadline::wait("connections to start towards the black hole", SOON, || {
        let lines = client.program.lines();
        let begun = lines.iter().filter(|line| {
            line.contains("Starting handshake with server endpoint") && line.contains(&from)
        });
        Ok((begun.count() >= HANGING).then_some(()))
    })?;
    all
}

/// Checks that good flows are each served within [`FAST`] while others hang in the black hole.
fn good_flows_are_fast(forward: &Endpoint) -> Result<()> {
    for turn in 0..10 {
        let started = Instant::now();
        through_echo_held_open(forward, SMALL).with_context(|| format!("turn {turn}"))?;
        let took = started.elapsed();
        ensure!(took < FAST, "turn {turn} took {took:?} beside a black hole");
    }
    Ok(())
}

#[test]
fn an_incomplete_token_delays_no_other_flow_and_times_out() -> Result<()> {
    let application = Application::echo()?;
    let server = Server::start(&[])?;
    let Some(mut client) = originals_client(&server, &application.target(), &["-stall"])? else {
        return Ok(());
    };
    let forward = client.forward()?;
    let _stalled = forward.connect()?;
    good_flows_are_fast(&forward)?;
    // The server gives up an unfinished request after 10 s.
    client
        .program
        .wait_for("after half a token", Duration::from_secs(15))?;
    through_echo_held_open(&forward, SMALL)
}

// PROTOCOL HAZARD-10.
#[test]
fn a_finished_upload_arrives_whole_behind_the_originals_server() -> Result<()> {
    let application = Application::tcp(|mut connection| SOME.read_to_end_of(&mut connection))?;
    let Some((_server, client)) =
        originals_server("b7", &["--token-source", &application.target()])?
    else {
        return Ok(());
    };
    for _ in 0..3 {
        let mut connection = client.forward.connect()?;
        SOME.write_to(&mut connection)?;
        connection.finish()?;
        application.outcome(SOON)?;
    }
    Ok(())
}

#[test]
fn a_finished_upload_of_the_originals_client_arrives_whole() -> Result<()> {
    let application = Application::tcp(|mut connection| SOME.read_to_end_of(&mut connection))?;
    let server = Server::start(&[])?;
    let Some(client) = originals_client(&server, &application.target(), &[])? else {
        return Ok(());
    };
    for _ in 0..3 {
        let mut connection = client.forward()?.connect()?;
        SOME.write_to(&mut connection)?;
        connection.finish()?;
        application.outcome(SOON)?;
    }
    Ok(())
}

#[test]
fn more_flows_than_the_originals_100_streams_pass_repeatedly() -> Result<()> {
    let application = Application::tcp(echo)?;
    let Some((_server, client)) =
        originals_server("b8", &["--token-source", &application.target()])?
    else {
        return Ok(());
    };
    for round in 0..3 {
        let mut connections = (0..150)
            .map(|_| client.forward.connect())
            .collect::<Result<Vec<Connection>>>()?;
        for (number, connection) in connections.iter_mut().enumerate() {
            connection.write_all(&u32::try_from(number)?.to_le_bytes())?;
        }
        for (number, connection) in connections.iter_mut().enumerate() {
            let mut back = [0; 4];
            connection
                .read_exact(&mut back)
                .with_context(|| format!("round {round}, flow {number} of 150"))?;
            ensure!(
                u32::from_le_bytes(back) as usize == number,
                "flow {number} got the bytes of another flow"
            );
        }
        for connection in &mut connections {
            connection.finish()?;
            let ending = connection.ending();
            ensure!(
                ending == quictun_testbed::connection::DirectionEnd::Finished { bytes: 0 },
                "{ending:?}"
            );
        }
    }
    Ok(())
}

/// Starts the original's server, and a client of this workspace for it.
fn originals_server(test: &str, arguments: &[&str]) -> Result<Option<(Original, Client)>> {
    let Some(server) = Original::start(test, &["server"])? else {
        return Ok(None);
    };
    let client = Client::start(&server.address, arguments)?;
    Ok(Some((server, client)))
}

fn originals_client(server: &Server, token: &str, flags: &[&str]) -> Result<Option<Original>> {
    let address = server.address.to_string();
    let arguments = [&["client", "-server", &address, "-token", token], flags].concat();
    Original::start("the original's client", &arguments)
}

/// A token file that leads applications from 127.0.0.1 to a good target and those from 127.0.0.2 to a bad one.
struct Tokens {
    path: String,
    _home: Home,
}

impl Tokens {
    fn new(good: &str, bad: &str) -> Result<Self> {
        let home = Home::new()?;
        let path = home.path().join("tokens.txt");
        std::fs::write(&path, format!("{GOOD} {good}\n{BAD} {bad}\n"))?;
        Ok(Self {
            path: path.display().to_string(),
            _home: home,
        })
    }

    fn arguments(&self) -> [&str; 4] {
        [
            "--token-source-plugin",
            "File",
            "--token-source",
            &self.path,
        ]
    }
}
