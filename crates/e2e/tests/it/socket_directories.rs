//! Rules for a directory of Unix sockets, and links in it (PROTOCOL AUTH-11, REVERSE-3).

use std::os::unix::fs::symlink;
use std::time::Duration;

use anyhow::{Result, ensure};
use quictun_testbed::application::{Application, echo, through_echo};
use quictun_testbed::deadline;
use quictun_testbed::machine::Machine;
use quictun_testbed::payload::Payload;
use quictun_testbed::program::Program;
use quictun_testbed::tunnel::{Client, Home, START, listen_address, server_pin};

const SOON: Duration = Duration::from_secs(20);
const SOME: Payload = Payload {
    seed: 909,
    bytes: 1 << 16,
};

// PROTOCOL AUTH-11, REVERSE-3.
#[test]
fn links_lead_no_flow_and_no_listener_out_of_the_directory_of_a_rule() -> Result<()> {
    let home = Home::new()?;
    let at = |name: &str| home.path().join(name);
    std::fs::create_dir_all(at("sockets/sub"))?;
    std::fs::create_dir(at("outside"))?;
    let _inside = Application::unix(&at("sockets/sub/app"), echo)?;
    let _outside = Application::unix(&at("outside/app"), echo)?;
    symlink("sub/app", at("sockets/near"))?;
    symlink("../outside/app", at("sockets/far"))?;
    symlink(at("outside"), at("sockets/away"))?;
    let path = |name: &str| format!("unix:{}", at(name).display());
    let mut command = home.command(&Machine::here(), "quictun")?;
    command.args(["server", "--listen", "127.0.0.1:0", "--http", "off"]);
    command.args([
        "--allow",
        &path("sockets/*"),
        "--listen-for",
        &path("sockets/*"),
    ]);
    let mut server = Program::start("server", &mut command)?;
    let line = server.wait_for("Server endpoint start up successful", START)?;
    let mut command = home.command(&Machine::here(), "quictun")?;
    let (address, pin) = (listen_address(&line)?, server_pin(&line)?);
    command.args(["client", "--server", &address, "--pin", &pin]);
    command.args(["--http", "off", "--psk-file", "state/client.psk"]);
    let targets = [
        "sockets/sub/app",
        "sockets/near",
        "sockets/far",
        "sockets/away/app",
    ];
    for target in targets {
        command.args(["-L", &format!("127.0.0.1:0={}", path(target))]);
    }
    for listener in ["sockets/sub/listener", "sockets/away/listener"] {
        let target = path("sockets/sub/app");
        command.args(["-R", &format!("{}={target}", path(listener))]);
    }
    let mut client = Client::from_command(Home::new()?, command.current_dir(home.path()))?;
    let forwards = client.forwards(targets.len())?;
    for forward in &forwards[..2] {
        through_echo(forward, SOME)?;
    }
    for (forward, target) in forwards.iter().zip(targets).skip(2) {
        let ending = forward.ending()?;
        ensure!(ending.is_reset(), "{target}: {ending:?}");
    }
    let refused = "the server's rules do not let this client listen there";
    let line = client.program.wait_for(refused, SOON)?;
    ensure!(line.contains("sockets/away/listener"), "{line}");
    let listens = || at("sockets/sub/listener").exists();
    deadline::until("the other listener", SOON, listens)?;
    ensure!(!at("outside/listener").exists());
    Ok(())
}
