//! Small runs of the loads of `quictun-scale`: the same code with smaller numbers, and limits for the dev profile.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use quictun_testbed::binaries;
use quictun_testbed::isolation::{isolated, with_programs};
use quictun_testbed::program::installed;
use serde_json::Value;

/// Runs `quictun-scale` and returns its report; fails if a limit is exceeded.
fn scale(arguments: &[&str]) -> Result<Value> {
    let report = report(arguments)?;
    ensure!(report["kept"] == true, "{arguments:?}: {report}");
    Ok(report)
}

/// Runs `quictun-scale` and returns its report, in which limits may be exceeded.
fn report(arguments: &[&str]) -> Result<Value> {
    let mut scale = Command::new(env!("CARGO_BIN_EXE_quictun-scale"));
    scale
        .args(arguments)
        .arg("--json")
        .env(binaries::DIRECTORY, binaries::directory()?);
    let output = scale.output()?;
    let (text, errors) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    let status = output.status;
    let report: Value = serde_json::from_str(&text)
        .with_context(|| format!("{arguments:?}: {status}\n{text}{errors}"))?;
    ensure!(
        status.success() == (report["kept"] == true),
        "{arguments:?}: {status}\n{report}"
    );
    Ok(report)
}

/// A process touches some buffers once: up to 16 MiB if the machine stalls at times. So many flows share them that the
/// rest is the flows' own memory.
#[test]
fn an_idle_flow_costs_little_memory() -> Result<()> {
    scale(&[
        "idle",
        "--flows",
        "3000",
        "--max-kib",
        "12",
        "--seconds",
        "0.1",
    ])
    .map(drop)
}

/// If each connection sent keep-alives at its own time, both ends would wake up 160 times per second.
#[test]
fn keep_alives_of_idle_connections_are_sent_together() -> Result<()> {
    scale(&[
        "idle",
        "--flows",
        "200",
        "--client-arg=--connections=200",
        "--seconds",
        "4",
        "--max-wakes",
        "60",
    ])
    .map(drop)
}

#[test]
fn four_thousand_flows_leave_nothing() -> Result<()> {
    isolated(|| {
        scale(&[
            "churn",
            "--flows",
            "4000",
            "--parallel",
            "50",
            "--max-growth",
            "30",
        ])
        .map(drop)
    })
}

#[test]
fn every_byte_of_200_concurrent_flows_is_verified() -> Result<()> {
    scale(&["verify", "--flows", "200", "--bytes", "200000"]).map(drop)
}

/// A tunnel that waits for a timer anywhere takes a thousand times as long as a loopback device, however fast the
/// machine is.
#[test]
fn no_round_trip_through_the_tunnel_waits_for_a_timer() -> Result<()> {
    const MOST: f64 = 200.0;
    let report = scale(&["rr", "--count", "1000", "--max-added-us", "1e9"])?;
    let rows = report["rows"].as_array().context("rows")?;
    let median = |of: &str| {
        let mut of_name = rows.iter().filter(|row| row["what"] == format!("{of} p50"));
        of_name.next().and_then(|row| row["value"].as_f64())
    };
    let (direct, tunnel) = (median("direct"), median("tunnel"));
    let (direct, tunnel) = direct.zip(tunnel).with_context(|| report.to_string())?;
    ensure!(tunnel < MOST * direct, "{tunnel} us, direct {direct} us");
    Ok(())
}

#[test]
fn an_exceeded_limit_is_a_failure() -> Result<()> {
    let error = scale(&["rr", "--count", "10", "--max-added-us=-1000"])
        .err()
        .context("the impossible limit was kept")?;
    ensure!(error.to_string().contains("\"kept\":false"), "{error}");
    Ok(())
}

/// Compares the build under test with itself, in one pair.
fn compare(measure: &str, more: &[&str]) -> Result<Value> {
    let before = binaries::directory()?;
    let before = before.to_str().context("the path is not valid UTF-8")?;
    let pair = ["pairs", "--pairs", "1", "--least", "0.01"];
    let what = ["--before", before, "--measure", measure];
    scale(&[&pair[..], &what[..], more].concat())
}

#[test]
fn a_build_is_compared_with_itself() -> Result<()> {
    let report = compare("connects", &["--seconds", "0.5"])?;
    ensure!(report["rows"].to_string().contains("ratio, median"));
    Ok(())
}

/// A thread that wakes up for each packet, acknowledgement and timer wakes up 4000 times per second at 20 Mbit/s. It
/// then carries 5 Mbit per thousand wake-ups.
#[test]
fn threads_of_a_slow_transfer_wake_seldom() -> Result<()> {
    const LEAST: f64 = 12.0;
    with_programs(|| {
        installed("ip", "iproute2")?;
        let link = ["--link", "emulated", "--rate", "20mbit", "--rtt", "40ms"];
        let report = compare("wakes", &[&link[..], &["--seconds", "2"]].concat())?;
        let rows = report["rows"].as_array().context("rows")?;
        let mut median = rows
            .iter()
            .filter(|row| row["what"] == "this build, median");
        let median = median.next().and_then(|row| row["value"].as_f64());
        let carried = median.with_context(|| report.to_string())?;
        ensure!(carried >= LEAST, "only {carried} Mbit per 1000 wake-ups");
        Ok(())
    })
}

#[test]
fn flows_lose_no_byte_if_their_connection_or_path_is_cut() -> Result<()> {
    for fault in ["connection", "path"] {
        scale(&[
            "cut",
            "--times",
            "1",
            "--flows",
            "10",
            "--clients",
            "2",
            "--fault",
            fault,
        ])?;
    }
    Ok(())
}

#[test]
fn connections_through_a_proxy_are_opened_at_a_fixed_rate() -> Result<()> {
    let load = ["--count", "300", "--per-second", "100"];
    let report = scale(&[&["socks", "--max-added-ms", "50"][..], &load].concat())?;
    let rows = report["rows"].as_array().context("rows")?;
    let mut at_most = rows
        .iter()
        .filter(|row| row["what"] == "client: resident at most, after");
    let most = at_most.next().and_then(|row| row["value"].as_f64());
    ensure!(most.is_some_and(|kib| kib > 0.0), "{report}");
    Ok(())
}

#[test]
fn kinds_of_forwards_are_compared() -> Result<()> {
    with_programs(|| {
        installed("ip", "iproute2")?;
        for kind in ["proxy", "reverse", "redirect"] {
            let pair = ["--pairs", "1", "--seconds", "0.3", "--least", "0.01"];
            let report = scale(&[&["kinds", "--kind", kind][..], &pair].concat())?;
            ensure!(
                report["rows"].to_string().contains("ratio, median"),
                "{report}"
            );
        }
        Ok(())
    })
}

#[test]
fn connections_through_a_proxy_are_opened_and_leave_nothing() -> Result<()> {
    let limits = ["--max-added-ms", "50", "--max-growth", "20"];
    scale(&[&["proxy", "--count", "300"][..], &limits].concat()).map(drop)
}

/// The limits are those of a busy machine. The command has those of a quiet one.
#[test]
fn a_program_sees_time_only_while_udp_does_not_pass() -> Result<()> {
    with_programs(|| {
        installed("iperf3", "iperf3")?;
        let round = ["--program", "iperf3", "--times", "1", "--seconds", "0"];
        let limits = [
            "--max-median",
            "20000",
            "--max-worst",
            "20000",
            "--max-return",
            "60",
        ];
        scale(&[&["carriers", "outage"][..], &round, &limits].concat()).map(drop)
    })
}

#[test]
fn a_program_sees_time_only_while_both_processes_are_replaced() -> Result<()> {
    with_programs(|| {
        let round = ["--program", "psql", "--times", "2"];
        let limits = ["--max-median", "10000", "--max-worst", "10000"];
        scale(&[&["carriers", "upgrades"][..], &round, &limits].concat()).map(drop)
    })
}

#[test]
fn the_first_byte_is_measured_in_each_network() -> Result<()> {
    with_programs(|| {
        installed("nft", "nftables")?;
        let limits = ["--max-swallowed", "10000", "--max-known", "10000"];
        scale(&[&["carriers", "first-byte", "--pairs", "1"][..], &limits].concat()).map(drop)
    })
}

#[test]
fn carriers_are_compared_with_each_other_and_with_ssh() -> Result<()> {
    with_programs(|| {
        installed("sshd", "openssh-server")?;
        let short = ["--rounds", "1", "--seconds", "0.6", "--skip", "0.3"];
        let rates = report(
            &[
                &["carriers", "rates", "--link", "veth", "--flows", "2"][..],
                &short,
            ]
            .concat(),
        )?;
        for arm in ["quic", "tls", "ssh -L"] {
            let row = format!("auto to {arm}, rate");
            ensure!(rates.to_string().contains(&row), "{rates}");
        }
        let one = ["--delays", "1ms", "--losses", "0.01%", "--jitters", "0ms"];
        let grid = report(&[&["carriers", "grid"][..], &one, &short].concat())?;
        ensure!(
            grid.to_string().contains("auto to the better one"),
            "{grid}"
        );
        Ok(())
    })
}

#[test]
fn datagram_flows_are_held_and_leave_nothing() -> Result<()> {
    scale(&["datagrams", "idle", "--flows", "800"])?;
    let limits = ["--max-growth", "20"];
    scale(&[&["datagrams", "churn", "--flows", "1000"][..], &limits].concat()).map(drop)
}

/// A busy machine exceeds the limits: only the figures must be there.
#[test]
fn datagrams_are_measured_beside_a_transfer_and_on_many_flows() -> Result<()> {
    let latency = ["datagrams", "latency", "--rate", "20mbit", "--seconds", "1"];
    let found = report(&latency)?.to_string();
    ensure!(found.contains("beside a download: p99 added"), "{found}");
    let small = ["--rounds", "1", "--seconds", "0.2", "--per-second", "1000"];
    let found = report(&[&["datagrams", "packets"][..], &small].concat())?.to_string();
    ensure!(found.contains("100 flows, quictun: processor"), "{found}");
    ensure!(found.contains("SKIPPED hysteria"), "{found}");
    Ok(())
}
