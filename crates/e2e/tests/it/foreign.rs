//! A client that uses another QUIC implementation and was written from PROTOCOL.md.

use std::time::Duration;

use anyhow::{Result, ensure};
use quictun_e2e::attack::victim::{Trust, Victim};
use quictun_testbed::foreign::Python;
use serde_json::Value;

const SOON: Duration = Duration::from_mins(1);

/// The code `Unauthenticated` (PROTOCOL section 6.1).
const UNAUTHENTICATED: u64 = 0x05;

/// Checks that a megabyte came back in order, and that the end came after it and not earlier.
fn is_echoed(told: &Value, protocol: &str) -> Result<()> {
    let right = told["alpn"] == protocol
        && told["answer"] == true
        && told["equal"] == true
        && told["finished"] == true
        && told["early_end"] == false;
    ensure!(right, "{protocol}: {told}");
    Ok(())
}

fn echo(python: &Python, victim: &Victim, arguments: &[&str]) -> Result<Value> {
    let arguments = [&["--target", victim.echo()], arguments].concat();
    python
        .start("echo", victim.address, &arguments)?
        .next_line(SOON)
}

// PROTOCOL ALPN-1, OPEN-1, OPEN-2, TOKEN-2, ACK-3, CLOSE-1, CLOSE-2.
#[test]
fn a_foreign_client_is_served_in_both_protocols() -> Result<()> {
    let Some(python) = Python::find("a_foreign_client_is_served_in_both_protocols")? else {
        return Ok(());
    };
    let mut victim = Victim::new(Trust::Open, None, &[])?;
    for protocol in ["quictun/1", "quic-tun"] {
        is_echoed(&echo(&python, &victim, &["--alpn", protocol])?, protocol)?;
    }
    victim.silence();
    Ok(())
}

// PROTOCOL section 5.5, PROOF-2, AUTH-1.
#[test]
fn a_foreign_client_proves_its_secret() -> Result<()> {
    let Some(python) = Python::find("a_foreign_client_proves_its_secret")? else {
        return Ok(());
    };
    let mut victim = Victim::new(Trust::Secret, None, &[])?;
    let secret = victim.secret_file().display().to_string();
    is_echoed(
        &echo(&python, &victim, &["--psk-file", &secret])?,
        "quictun/1",
    )?;
    let other = victim.secret_file().with_extension("other");
    std::fs::write(&other, "another secret, long enough\n")?;
    let other = other.display().to_string();
    for arguments in [&["--psk-file", other.as_str()][..], &[]] {
        let told = echo(&python, &victim, arguments)?;
        ensure!(told["reset"] == UNAUTHENTICATED, "{arguments:?}: {told}");
    }
    victim.silence();
    Ok(())
}

#[test]
fn a_foreign_client_that_offers_only_the_native_protocol_is_accepted() -> Result<()> {
    let Some(python) =
        Python::find("a_foreign_client_that_offers_only_the_native_protocol_is_accepted")?
    else {
        return Ok(());
    };
    let mut victim = Victim::new(Trust::Secret, None, &[])?;
    let told = python
        .start("offer", victim.address, &[])?
        .next_line(SOON)?;
    ensure!(
        told["established"] == true && told["closed"] == false,
        "{told}"
    );
    victim.silence();
    Ok(())
}
