//! Small runs of `quictun-attack`: each attack works, and the tool reports it.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use quictun_testbed::binaries;
use quictun_testbed::isolation::with_programs;
use quictun_testbed::program::installed;
use serde_json::Value;

use crate::attack_limits as limits;

/// Runs an attack on a server with this budget; returns its outcomes, and whether all limits were kept.
fn attack(budget: &str, arguments: &[&str]) -> Result<(Vec<Value>, bool)> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_quictun-attack"));
    command
        .args(arguments)
        .args(["--json", "--memory-budget", budget, "--hold", "1"])
        .env(binaries::DIRECTORY, binaries::directory()?);
    let output = command.output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let outcomes: serde_json::Result<Vec<Value>> = text.lines().map(serde_json::from_str).collect();
    let outcomes = outcomes.with_context(|| {
        let errors = String::from_utf8_lossy(&output.stderr);
        format!("{arguments:?}: {text}{errors}")
    })?;
    ensure!(!outcomes.is_empty(), "{arguments:?} had no outcome");
    Ok((outcomes, output.status.success()))
}

/// Waiting times depend on the machine's other load: the tool reports them, and tests ignore them.
const WAITS: [&str; 2] = ["honest client", "new honest client"];

/// Runs an attack and requires that the server keeps all limits except waiting times, and serves its honest client.
pub(crate) fn is_withstood(budget: &str, arguments: &[&str]) -> Result<Vec<Value>> {
    let (outcomes, _) = attack(budget, arguments)?;
    for outcome in &outcomes {
        let exceeded = outcome["exceeded"].as_array().context("a list")?;
        let waits = |what: &&Value| !WAITS.iter().any(|wait| *what == wait);
        let exceeded: Vec<_> = exceeded.iter().filter(waits).collect();
        ensure!(exceeded.is_empty(), "{exceeded:?}: {outcome:#}");
        let served = outcome["honest"]["served"].as_u64();
        ensure!(served.is_some_and(|served| served > 0), "{outcome:#}");
    }
    Ok(outcomes)
}

fn a_few_strangers_cost_little() -> Result<()> {
    let arguments = ["strangers", "--connections", "60", "--stay", "1"];
    let outcomes = is_withstood("64M", &arguments)?;
    ensure!(outcomes[0]["connected"] == 60, "{outcomes:?}");
    Ok(())
}

fn withheld_data_is_missing_and_the_rest_arrives() -> Result<()> {
    let arguments = [
        "first-byte-missing",
        "--flows",
        "2",
        "--missing",
        "after-open",
    ];
    let (outcomes, _) = attack("64M", &arguments)?;
    let [answered, sent] = ["answered", "sent_bytes"].map(|key| outcomes[0][key].as_u64());
    // The test does not check how much the server grants and holds.
    ensure!(
        answered == Some(2) && sent > Some(64 << 10),
        "{:#}",
        outcomes[0]
    );
    Ok(())
}

fn an_exceeded_limit_of_an_attack_is_a_failure() -> Result<()> {
    let arguments = ["tiny-streams", "--streams", "100", "--limit", "0"];
    let (outcomes, kept) = attack("64M", &arguments)?;
    ensure!(
        !kept && outcomes[0]["exceeded"][0] == "memory",
        "{outcomes:?}"
    );
    Ok(())
}

type AttackTest = fn() -> Result<()>;

/// Builds an array of functions, each with its name.
macro_rules! named {
    ($($case:path,)*) => {
        [$((stringify!($case), $case as AttackTest)),*]
    };
}

// One attack at a time, in one test. Concurrent attacks would share the processors and measure each other, and a test
// that waits for another to end would occupy a thread of the harness.
#[test]
fn attacks_are_withstood() -> Result<()> {
    with_programs(|| {
        // The tool makes its own namespaces.
        installed("ip", "iproute2")?;
        let cases = named![
            a_few_strangers_cost_little,
            withheld_data_is_missing_and_the_rest_arrives,
            an_exceeded_limit_of_an_attack_is_a_failure,
            limits::flows_without_their_first_byte_stay_within_the_budget,
            limits::unfinished_opens_stay_within_the_budget,
            limits::streams_of_one_byte_stay_within_the_budget,
            limits::uploads_into_stalled_targets_stay_within_the_budget,
            limits::downloads_without_credit_stay_within_the_budget,
            limits::downloads_without_acknowledgements_stay_within_the_budget,
            limits::downloads_with_one_packet_unacknowledged_stay_within_the_budget,
            limits::single_bytes_between_gaps_stay_within_the_budget,
            limits::batches_with_a_single_byte_stay_within_the_budget,
            limits::batches_of_which_a_stalled_flow_keeps_a_packet_stay_within_the_budget,
            limits::handshakes_that_go_no_further_stay_within_the_budget,
            limits::of_dials_that_are_given_up_nothing_is_left,
            limits::strangers_do_not_keep_out_a_client_that_proves_itself,
            limits::strangers_are_gone_when_they_have_not_proven_themselves,
            limits::flows_that_a_crash_left_do_not_lock_a_client_out,
            limits::connections_of_one_client_leave_places_for_others,
            limits::long_chains_of_certificates_are_refused_within_the_budget,
            limits::listeners_and_flows_leave_descriptors_for_others,
            limits::half_open_connections_over_tcp_displace_no_client,
            limits::broken_records_over_tcp_stay_within_the_budget,
            limits::slow_peers_over_tcp_stay_within_the_budget,
            limits::half_requests_at_the_https_proxy_displace_no_client,
            limits::floods_at_the_https_proxy_stay_within_the_budget,
        ];
        let mut failed = Vec::new();
        for (name, case) in cases {
            failed.extend(case().err().map(|error| format!("{name}: {error:?}")));
        }
        ensure!(failed.is_empty(), "{}", failed.join("\n"));
        Ok(())
    })
}
