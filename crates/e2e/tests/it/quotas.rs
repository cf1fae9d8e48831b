//! The allowances of a server's clients: they are enforced, changed by a reload, and kept when the process is killed.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use quictun_testbed::application::{Application, through_echo};
use quictun_testbed::connection::{Connection, Endpoint};
use quictun_testbed::deadline;
use quictun_testbed::machine::Machine;
use quictun_testbed::payload::Payload;
use quictun_testbed::program::Program;
use quictun_testbed::tunnel::{Client, Home, START, listen_address, server_pin};
use rustix::process::Signal;

use crate::reverse;

const SOON: Duration = Duration::from_secs(20);

/// A payload that takes half a second at 4 Mbit/s.
const SOME: Payload = Payload {
    seed: 28,
    bytes: 250_000,
};

/// Returns the configuration of a server that knows three clients, one of which has this quota.
fn configuration(target: &str, quota: &str) -> String {
    let client = |name: &str, limits: &str| {
        format!(
            "[[client]]\nname = '{name}'\npsk_file = '{name}.psk'\nallow = ['{target}']\nlisten = ['127.0.0.1:0']\n{limits}\n"
        )
    };
    [
        client("slow", "rate = '4 Mbit/s'\nmax_flows = 2"),
        client("metered", &format!("quota = '{quota}'")),
        client("gone", "expires = 2020-12-31"),
    ]
    .concat()
}

fn server(home: &Home, listen: &str) -> Result<(Program, String)> {
    let mut command = home.command(&Machine::here(), "quictun")?;
    command
        .args(["server", "--listen", listen, "--http", "off"])
        .args(["-c", "server.toml"]);
    let mut program = Program::start("server", &mut command)?;
    let line = program.wait_for("Server endpoint start up successful", START)?;
    Ok((program, line))
}

fn client(of: &Home, line: &str, name: &str, target: &str) -> Result<Client> {
    let pin = server_pin(line)?;
    let home = Home::new()?;
    let mut command = home.command(&Machine::here(), "quictun")?;
    command.args(["client", "--server", &listen_address(line)?, "--pin", &pin]);
    command.args(["--http", "off", "--psk-file"]);
    command.arg(of.path().join(format!("{name}.psk")));
    let forward = format!("127.0.0.1:0={target}");
    command.args(["-L", &forward, "-R", &forward]);
    Client::from_command(home, &mut command)
}

/// Opens a flow and sends one byte to the echo and back.
fn open(forward: &Endpoint) -> Result<Connection> {
    let mut connection = forward.connect()?;
    connection.write_all(b"x")?;
    connection.read_exact(&mut [0; 1])?;
    Ok(connection)
}

// PROTOCOL LIMIT-4.
#[test]
fn a_client_that_was_killed_gets_the_places_of_the_flows_that_it_has_left() -> Result<()> {
    let application = Application::echo()?;
    let target = application.target();
    let target = target.trim_start_matches("tcp:");
    let home = Home::new()?;
    std::fs::write(
        home.path().join("slow.psk"),
        "a secret of slow, long enough\n",
    )?;
    let text = format!(
        "[[client]]\nname = 'slow'\npsk_file = 'slow.psk'\nallow = ['{target}']\nmax_flows = 2\n\
         listen = ['127.0.0.1:0']\n[transport]\nworkers = 4\nkeep_alive = '300ms'\n"
    );
    std::fs::write(home.path().join("server.toml"), text)?;
    let (_program, line) = server(&home, "127.0.0.1:0")?;
    for _ in 0..3 {
        let mut slow = client(&home, &line, "slow", target)?;
        // The flows of the killed client give way once the server knows that their client does not answer.
        let mut flows = Vec::new();
        while flows.len() < 2 {
            let (forward, mut opened) = (&slow.forward, None);
            deadline::until("a flow after a crash", SOON, || {
                opened = open(forward).ok();
                opened.is_some()
            })?;
            flows.extend(opened);
        }
        ensure!(open(&slow.forward).is_err(), "a third flow was accepted");
        slow.program.signal(Signal::KILL)?;
        slow.program.silence();
    }
    Ok(())
}

#[test]
fn allowances_are_enforced_changed_by_a_reload_and_kept_over_a_kill() -> Result<()> {
    let application = Application::echo()?;
    let target = application.target();
    let target = target.trim_start_matches("tcp:");
    let home = Home::new()?;
    for name in ["slow", "metered", "gone"] {
        let secret = format!("a secret of {name}, long enough\n");
        std::fs::write(home.path().join(format!("{name}.psk")), secret)?;
    }
    let file = home.path().join("server.toml");
    std::fs::write(&file, configuration(target, "400 kB"))?;
    let (mut program, line) = server(&home, "127.0.0.1:0")?;
    let start = |name| client(&home, &line, name, target);

    let mut gone = start("gone")?;
    let refused = gone
        .program
        .wait_for("the server refuses this client", SOON)?;
    ensure!(refused.contains("has expired"), "{refused}");
    program.wait_for("client endpoint refused: its access has expired", SOON)?;

    let mut slow = start("slow")?;
    let listener = reverse::bound(&mut slow.program)?;
    let began = Instant::now();
    through_echo(&slow.forward, SOME)?;
    let took = began.elapsed();
    ensure!(
        took >= Duration::from_millis(430),
        "250 kB took only {took:?} at 4 Mbit/s"
    );
    // The server frees the place when the client has confirmed the end.
    program.wait_for("flow closed", SOON)?;
    let two = [open(&slow.forward)?, open(&listener)?];
    ensure!(open(&slow.forward).is_err(), "a third flow was accepted");
    ensure!(open(&listener).is_err(), "the listener took a third");
    program.wait_for("as many as it may have (max_flows)", SOON)?;
    drop(two);
    deadline::until("a free place for a flow", SOON, || open(&listener).is_ok())?;

    let mut metered = start("metered")?;
    let listener = reverse::bound(&mut metered.program)?;
    let resting = [open(&metered.forward)?, open(&listener)?];
    ensure!(
        through_echo(&metered.forward, SOME).is_err(),
        "500 kB in both directions were carried with a quota of 400 kB"
    );
    for mut flow in resting {
        ensure!(flow.ending().is_reset(), "an idle flow must end, too");
    }
    program.wait_for("client has used its quota for this month", SOON)?;
    ensure!(open(&metered.forward).is_err(), "a new flow passed");
    ensure!(open(&listener).is_err(), "the listener took a new flow");
    let stored = home.path().join("state/usage.json");
    let stored = [stored, home.path().join("usage.json")];
    deadline::until("the usage to be stored", SOON, || {
        stored
            .iter()
            .any(|file| std::fs::read_to_string(file).is_ok_and(|text| text.contains("metered")))
    })?;

    program.signal(Signal::KILL)?;
    drop(program);
    let (mut program, _) = server(&home, &listen_address(&line)?)?;
    deadline::until("the refusal by the next process", SOON, || {
        let refused = open(&metered.forward).is_err();
        refused && program.has_printed("its client has used its quota for this month")
    })?;
    std::fs::write(&file, configuration(target, "1 GB"))?;
    program.signal(Signal::HUP)?;
    let line = program.wait_for("client \\\"metered\\\": limits", SOON)?;
    ensure!(
        line.contains("-quota 400000 bytes +quota 1000000000 bytes"),
        "{line}"
    );
    program.wait_for("configuration reloaded", SOON)?;
    // The client may not have given up its connection to the killed process yet.
    deadline::until("a flow within the larger quota", SOON, || {
        through_echo(&metered.forward, SOME).is_ok()
    })
}
