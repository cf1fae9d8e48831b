//! The memory budget limits the whole server, whatever a hostile client does, and honest clients are served.

use anyhow::{Result, ensure};

use crate::attack::is_withstood;

/// A small memory budget, with which an audit found that the server did not sum up its memory.
const BUDGET: &str = "4M";

pub(crate) fn flows_without_their_first_byte_stay_within_the_budget() -> Result<()> {
    is_withstood(BUDGET, &["first-byte-missing"]).map(drop)
}

pub(crate) fn unfinished_opens_stay_within_the_budget() -> Result<()> {
    is_withstood(BUDGET, &["unfinished-opens"]).map(drop)
}

pub(crate) fn streams_of_one_byte_stay_within_the_budget() -> Result<()> {
    is_withstood(BUDGET, &["tiny-streams"]).map(drop)
}

pub(crate) fn uploads_into_stalled_targets_stay_within_the_budget() -> Result<()> {
    let arguments = ["--connections", "50", "--flows", "20", "--way", "upload"];
    is_withstood(BUDGET, &[&["stalled"], &arguments[..]].concat()).map(drop)
}

pub(crate) fn downloads_without_credit_stay_within_the_budget() -> Result<()> {
    let arguments = ["--connections", "50", "--flows", "20", "--way", "unread"];
    is_withstood(BUDGET, &[&["stalled"], &arguments[..]].concat()).map(drop)
}

pub(crate) fn downloads_without_acknowledgements_stay_within_the_budget() -> Result<()> {
    let arguments = [
        "--connections",
        "50",
        "--flows",
        "20",
        "--way",
        "unacknowledged",
    ];
    is_withstood(BUDGET, &[&["stalled"], &arguments[..]].concat()).map(drop)
}

pub(crate) fn downloads_with_one_packet_unacknowledged_stay_within_the_budget() -> Result<()> {
    is_withstood(BUDGET, &["no-acks"]).map(drop)
}

pub(crate) fn single_bytes_between_gaps_stay_within_the_budget() -> Result<()> {
    is_withstood(BUDGET, &["tiny-gaps"]).map(drop)
}

pub(crate) fn batches_with_a_single_byte_stay_within_the_budget() -> Result<()> {
    is_withstood(BUDGET, &["pinned-batches"]).map(drop)
}

pub(crate) fn batches_of_which_a_stalled_flow_keeps_a_packet_stay_within_the_budget() -> Result<()>
{
    // In 8 s the attack sends 450 MB, of which 12 MB are stream data. Without copying the data, the server grew by 294
    // MB.
    let arguments = ["pinned-packets", "--seconds", "8", "--limit", "96M"];
    is_withstood("1G", &arguments).map(drop)
}

pub(crate) fn handshakes_that_go_no_further_stay_within_the_budget() -> Result<()> {
    for attack in ["initials", "retry-flood"] {
        is_withstood(BUDGET, &[attack, "--connections", "4000"])?;
    }
    Ok(())
}

// PROTOCOL OPEN-6: nothing may be left of dials that are given up.
pub(crate) fn of_dials_that_are_given_up_nothing_is_left() -> Result<()> {
    is_withstood("64M", &["open-reset"]).map(drop)
}

pub(crate) fn strangers_do_not_keep_out_a_client_that_proves_itself() -> Result<()> {
    let arguments = [
        "strangers",
        "--connections",
        "20",
        "--server-arg=--max-connections=8",
    ];
    let outcomes = is_withstood("64M", &arguments)?;
    let served = outcomes[0]["newcomers"]["served"].as_u64();
    ensure!(served.is_some_and(|served| served > 0), "{:#}", outcomes[0]);
    Ok(())
}

pub(crate) fn strangers_are_gone_when_they_have_not_proven_themselves() -> Result<()> {
    let arguments = ["strangers", "--connections", "20", "--stay", "12"];
    let outcomes = is_withstood("64M", &arguments)?;
    ensure!(outcomes[0]["connected"] == 0, "{:#}", outcomes[0]);
    Ok(())
}

pub(crate) fn flows_that_a_crash_left_do_not_lock_a_client_out() -> Result<()> {
    is_withstood(BUDGET, &["left-flows"]).map(drop)
}

/// Runs an attack during which known clients start, and must be served.
fn newcomers_are_served(budget: &str, arguments: &[&str]) -> Result<()> {
    let outcomes = is_withstood(budget, arguments)?;
    let newcomers = &outcomes[0]["newcomers"];
    let served = newcomers["served"].as_u64();
    ensure!(
        served.is_some_and(|served| served > 0) && newcomers["failed"] == 0,
        "{:#}",
        outcomes[0]
    );
    Ok(())
}

pub(crate) fn connections_of_one_client_leave_places_for_others() -> Result<()> {
    for budget in [BUDGET, "64M"] {
        newcomers_are_served(budget, &["places"])?;
    }
    Ok(())
}

pub(crate) fn long_chains_of_certificates_are_refused_within_the_budget() -> Result<()> {
    is_withstood(BUDGET, &["chains"]).map(drop)
}

pub(crate) fn listeners_and_flows_leave_descriptors_for_others() -> Result<()> {
    newcomers_are_served("64M", &["listeners"])
}

pub(crate) fn half_open_connections_over_tcp_displace_no_client() -> Result<()> {
    let arguments = ["tls-half-open", "--connections", "3000", "--stay", "3"];
    newcomers_are_served(BUDGET, &arguments)
}

pub(crate) fn broken_records_over_tcp_stay_within_the_budget() -> Result<()> {
    newcomers_are_served(BUDGET, &["tls-records", "--stay", "3"])
}

/// Runs an attack by whole handshakes. With 16 places, more of them in a second than places may displace a newcomer's, as
/// over QUIC.
fn whole_handshakes_are_withstood(attack: &str) -> Result<()> {
    let arguments = [attack, "--stay", "3"];
    is_withstood(BUDGET, &arguments)?;
    newcomers_are_served("64M", &arguments)
}

pub(crate) fn slow_peers_over_tcp_stay_within_the_budget() -> Result<()> {
    whole_handshakes_are_withstood("tls-slow")
}

pub(crate) fn half_requests_at_the_https_proxy_displace_no_client() -> Result<()> {
    newcomers_are_served("64M", &["https-half-open", "--stay", "3"])
}

pub(crate) fn floods_at_the_https_proxy_stay_within_the_budget() -> Result<()> {
    whole_handshakes_are_withstood("https-floods")
}
