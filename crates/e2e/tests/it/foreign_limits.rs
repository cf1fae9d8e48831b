//! The cost of a hostile client, which uses another QUIC implementation, to a server and to other clients.

use std::net::UdpSocket;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use quictun_e2e::attack::outcome::{ALLOWANCE, DESCRIPTORS_LEFT};
use quictun_e2e::attack::process;
use quictun_e2e::attack::victim::{Trust, Victim};
use quictun_testbed::application::{BlackHole, served_within};
use quictun_testbed::connection::Endpoint;
use quictun_testbed::deadline;
use quictun_testbed::foreign::Python;
use quictun_testbed::isolation::{isolated, isolated_as};
use quictun_testbed::machine;
use quictun_testbed::payload::Payload;
use quictun_testbed::program;
use quictun_testbed::tunnel::Home;

const BUDGET: u64 = 4 << 20;

/// A budget in bytes that allows hundreds of flows of one client.
const ROOMY: u64 = 64 << 20;
const SOON: Duration = Duration::from_mins(1);
const LITTLE: Payload = Payload {
    seed: 111,
    bytes: 1,
};

/// The longest time that an honest client may wait for its first byte.
const WAIT: Duration = Duration::from_secs(2);

/// Seconds after which an unknown client has proven itself or is closed, with some time for closing.
const PROVEN: f64 = 10.0 + 4.0;

/// The TLS alert `no_application_protocol` as a QUIC error (RFC 9001 section 4.8).
const NO_APPLICATION_PROTOCOL: u64 = 0x0100 + 120;

fn python(test: &str) -> Result<Option<Python>> {
    Python::find(test)
}

/// Checks that an honest flow of this client is served in time.
fn is_served(forward: &Endpoint) -> Result<()> {
    let waited = served_within(forward, LITTLE, WAIT)?;
    ensure!(waited < WAIT, "an honest client waited {waited:?}");
    Ok(())
}

/// Runs a case against a server with a small budget. The server may grow by the budget plus what every process needs,
/// and must serve its honest client meanwhile.
fn stays_within_the_budget(
    test: &str,
    trust: Trust,
    case: &str,
    arguments: impl FnOnce(&Victim) -> Vec<String>,
) -> Result<()> {
    let Some(python) = python(test)? else {
        return Ok(());
    };
    isolated_as(&format!("foreign_limits::{test}"), || {
        let mut victim = Victim::new(trust, Some(BUDGET), &[])?;
        let pid = victim.server.pid();
        process::forget_peak(pid)?;
        let before = program::resident_bytes(pid)?;
        let arguments = arguments(&victim);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let mut attack = python.start(case, victim.address, &arguments)?;
        let told = attack.next_line(2 * SOON)?;
        is_served(victim.forward(0)).with_context(|| told.to_string())?;
        let growth = process::peak_bytes(pid)?.saturating_sub(before);
        let limit = BUDGET + ALLOWANCE;
        ensure!(
            growth <= limit,
            "the server grew by {growth} bytes, {limit} are allowed; the client: {told}"
        );
        victim.silence();
        Ok(())
    })
}

#[test]
fn flows_of_a_foreign_client_without_their_first_byte_stay_within_the_budget() -> Result<()> {
    stays_within_the_budget(
        "flows_of_a_foreign_client_without_their_first_byte_stay_within_the_budget",
        Trust::Open,
        "first-byte-missing",
        |victim| vec!["--target".to_owned(), victim.echo().to_owned()],
    )
}

#[test]
fn streams_of_a_foreign_client_without_any_beginning_stay_within_the_budget() -> Result<()> {
    stays_within_the_budget(
        "streams_of_a_foreign_client_without_any_beginning_stay_within_the_budget",
        Trust::Open,
        "first-byte-missing",
        |_| Vec::new(),
    )
}

#[test]
fn unfinished_opens_of_foreign_strangers_stay_within_the_budget() -> Result<()> {
    stays_within_the_budget(
        "unfinished_opens_of_foreign_strangers_stay_within_the_budget",
        Trust::Secret,
        "unfinished-opens",
        |_| Vec::new(),
    )
}

#[test]
fn streams_of_one_byte_of_a_foreign_stranger_stay_within_the_budget() -> Result<()> {
    stays_within_the_budget(
        "streams_of_one_byte_of_a_foreign_stranger_stay_within_the_budget",
        Trust::Secret,
        "tiny-streams",
        |_| Vec::new(),
    )
}

// PROTOCOL OPEN-6.
#[test]
fn dials_that_a_foreign_client_gives_up_leave_nothing() -> Result<()> {
    let test = "dials_that_a_foreign_client_gives_up_leave_nothing";
    let Some(python) = python(test)? else {
        return Ok(());
    };
    isolated(|| {
        let hole = BlackHole::new()?;
        // With a small budget, the server would refuse one client before it has this many flows.
        let mut victim = Victim::new(Trust::Open, Some(ROOMY), &[])?;
        let before = victim.server.descriptors()?;
        let arguments = ["--target", &hole.target()];
        let mut attack = python.start("open-reset", victim.address, &arguments)?;
        let told = attack.next_line(SOON)?;
        ensure!(told["opened"] == 600, "{told}");
        // Half of the time limit of a dial, by which they would end by themselves.
        deadline::wait("the dials to be given up", Duration::from_secs(5), || {
            let descriptors = victim.server.descriptors()?;
            let left = (process::syn_sent()?, descriptors.saturating_sub(before));
            Ok((left.0 == 0 && left.1 <= DESCRIPTORS_LEFT).then_some(()))
        })
        .with_context(|| format!("SYN-SENT: {:?}", process::syn_sent()))?;
        is_served(victim.forward(0))?;
        victim.silence();
        Ok(())
    })
}

#[test]
fn a_foreign_stranger_is_closed_when_it_has_not_proven_itself_in_time() -> Result<()> {
    let test = "a_foreign_stranger_is_closed_when_it_has_not_proven_itself_in_time";
    let Some(python) = python(test)? else {
        return Ok(());
    };
    let mut victim = Victim::new(Trust::Secret, Some(BUDGET), &[])?;
    let mut attack = python.start("stranger", victim.address, &["--seconds", "15"])?;
    attack.next_line(SOON)?;
    let told = attack.next_line(SOON)?;
    ensure!(
        told["closed"] == true && told["by_application"] == true,
        "{told}"
    );
    let after = told["after"].as_f64().context("`after` is not a number")?;
    ensure!(after < PROVEN, "{told}");
    is_served(victim.forward(0))?;
    victim.silence();
    Ok(())
}

// PROTOCOL ALPN-2: `quic-tun` cannot carry a proof, and this server knows clients only by their proofs.
#[test]
fn a_protocol_without_proofs_is_refused_where_only_secrets_count() -> Result<()> {
    let test = "a_protocol_without_proofs_is_refused_where_only_secrets_count";
    let Some(python) = python(test)? else {
        return Ok(());
    };
    let mut victim = Victim::new(Trust::Secret, Some(BUDGET), &[])?;
    let arguments = ["--alpn", "quic-tun"];
    let told = python
        .start("offer", victim.address, &arguments)?
        .next_line(SOON)?;
    ensure!(
        told["closed"] == true && told["code"] == NO_APPLICATION_PROTOCOL,
        "{told}"
    );
    victim.silence();
    Ok(())
}

#[test]
fn unresolvable_names_do_not_delay_another_clients_localhost() -> Result<()> {
    let test = "unresolvable_names_do_not_delay_another_clients_localhost";
    let Some(python) = python(test)? else {
        return Ok(());
    };
    isolated(|| {
        let home = Home::new()?;
        let list = home.path().join("resolv.conf");
        std::fs::write(&list, "nameserver 127.0.0.1\n")?;
        machine::run(&format!("mount --bind {} /etc/resolv.conf", list.display()))?;
        // A name server that receives every query and answers none.
        let _silent = UdpSocket::bind("127.0.0.1:53")?;
        let mut victim = Victim::new(Trust::Open, None, &[])?;
        let target = victim.echo().replace("127.0.0.1", "localhost");
        let mut client = victim.client_to(&target, 0)?;
        is_served(&client.forward).context("an honest flow before the attack")?;
        let mut attack = python.start("names", victim.address, &[])?;
        let told = attack.next_line(SOON)?;
        let begun = Instant::now();
        // Look-ups are given up after 5 s; within 3 s they still hold their resources.
        while begun.elapsed() < Duration::from_secs(3) {
            is_served(&client.forward).with_context(|| told.to_string())?;
        }
        client.program.silence();
        victim.silence();
        Ok(())
    })
}
