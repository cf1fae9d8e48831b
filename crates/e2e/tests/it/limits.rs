//! Exhaustion: descriptors, flows, time limits.

use std::io::{Read, Write};
use std::net::UdpSocket;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use quictun_testbed::application::{Application, served_within, through_echo};
use quictun_testbed::connection::Connection;
use quictun_testbed::machine::Machine;
use quictun_testbed::payload::Payload;
use quictun_testbed::tunnel::{Client, Home, Server};

const SOON: Duration = Duration::from_secs(10);
const SOME: Payload = Payload {
    seed: 61,
    bytes: 100_000,
};

#[test]
fn a_client_out_of_descriptors_accepts_again_when_some_are_free() -> Result<()> {
    let application = Application::echo()?;
    let server = Server::start(&[])?;
    let home = Home::new()?;
    // The client cannot raise the limit, because the hard limit is the same.
    let mut limited = Machine::here().command("prlimit");
    limited
        .args(["--nofile=64:64", "--"])
        .arg(quictun_testbed::binaries::path("quictun-client")?);
    limited.args([
        "--server-endpoint",
        &server.address.to_string(),
        "--httpd-listen-on",
        "off",
    ]);
    limited.args([
        "--listen-on",
        "tcp:127.0.0.1:0",
        "--token-source",
        &application.target(),
    ]);
    home.settle(&mut limited);
    let mut client = Client::from_command(home, &mut limited)?;
    through_echo(&client.forward, SOME)?;
    let crowd = (0..200)
        .map(|_| client.forward.connect())
        .collect::<Result<Vec<Connection>>>()?;
    client.program.wait_for("ulimit -n", SOON)?;
    drop(crowd);
    through_echo(&client.forward, SOME).context("after the crowd had left")?;
    ensure!(client.program.ended()?.is_none(), "the client ended");
    Ok(())
}

#[test]
fn a_server_out_of_descriptors_refuses_flows_and_lives() -> Result<()> {
    let application = Application::echo()?;
    let home = Home::new()?;
    let mut limited = Machine::here().command("prlimit");
    limited
        .args(["--nofile=64:64", "--"])
        .arg(quictun_testbed::binaries::path("quictun-server")?);
    limited.args(["--listen-on", "127.0.0.1:0", "--httpd-listen-on", "off"]);
    home.settle(&mut limited);
    let mut server = Server::from_command(home, &mut limited)?;
    let client = Client::start(
        &server.address.to_string(),
        &["--token-source", &application.target()],
    )?;
    let mut crowd = (0..100)
        .map(|_| client.forward.connect())
        .collect::<Result<Vec<Connection>>>()?;
    let mut served = 0;
    for connection in &mut crowd {
        // A reset may arrive before or after the byte is written.
        let answered = connection
            .write_all(b"x")
            .and_then(|()| connection.read_exact(&mut [0; 1]));
        served += usize::from(answered.is_ok());
    }
    ensure!(
        (1..100).contains(&served),
        "{served} of 100 were served with 64 descriptors"
    );
    drop(crowd);
    served_within(&client.forward, SOME, SOON).context("after the crowd had left")?;
    ensure!(server.program.ended()?.is_none(), "the server ended");
    Ok(())
}

#[test]
fn datagrams_that_are_not_quic_disturb_no_flow() -> Result<()> {
    let application = Application::echo()?;
    let server = Server::start(&[])?;
    let client = Client::start(
        &server.address.to_string(),
        &["--token-source", &application.target()],
    )?;
    let attacker = UdpSocket::bind("127.0.0.1:0")?;
    let mut junk = Vec::new();
    Payload::new(62, 1400).write_to(&mut junk)?;
    for round in 0..2000_u16 {
        // A long header with version 1, as an Initial begins; the rest is random data of every length.
        junk[..5].copy_from_slice(&[0xc0 | (round % 64).to_be_bytes()[1], 0, 0, 0, 1]);
        attacker.send_to(&junk[..usize::from(round) % junk.len()], server.address)?;
    }
    through_echo(&client.forward, SOME)
}
