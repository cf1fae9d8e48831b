//! The records that `--qlog-dir` writes.

use std::io::{Read, Write};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use quictun_testbed::application::Application;
use quictun_testbed::isolation::isolated;
use quictun_testbed::tunnel::Tunnel;
use rustix::process::Signal;
use serde_json::Value;

const SOON: Duration = Duration::from_secs(15);

#[test]
fn both_ends_record_a_connection_as_qlog() -> Result<()> {
    isolated(|| {
        let directories = [tempfile::tempdir()?, tempfile::tempdir()?];
        let [at_server, at_client] = [0, 1].map(|end: usize| directories[end].path());
        let option = |directory: &Path| format!("--qlog-dir={}", directory.display());
        let application = Application::echo()?;
        let mut tunnel = Tunnel::with(
            &application.target(),
            &[&option(at_server)],
            &[&option(at_client), "--connections=1"],
        )?;
        let mut connection = tunnel.client.forward.connect()?;
        connection.write_all(&[7; 5000])?;
        connection.read_exact(&mut [0; 5000])?;
        drop(connection);
        for program in [&mut tunnel.client.program, &mut tunnel.server.program] {
            program.signal(Signal::TERM)?;
            program.wait_end(SOON)?;
        }
        for directory in [at_server, at_client] {
            check_records(directory).with_context(|| directory.display().to_string())?;
        }
        Ok(())
    })
}

/// Checks for one file of complete records, with packets, metrics and the state of the congestion controller.
fn check_records(directory: &Path) -> Result<()> {
    let files = std::fs::read_dir(directory)?.collect::<Result<Vec<_>, _>>()?;
    ensure!(files.len() == 1, "{files:?}");
    let text = std::fs::read_to_string(files[0].path())?;
    let mut records = Vec::new();
    for record in text.split('\u{1e}').skip(1) {
        let record: Value = serde_json::from_str(record).context(record.to_owned())?;
        records.push(record);
    }
    ensure!(text.ends_with('\n'), "the last record is incomplete");
    let named = |name: &str| {
        let of_name = records.iter().filter(move |record| record["name"] == name);
        of_name.collect::<Vec<_>>()
    };
    for packet in ["transport:packet_sent", "transport:packet_received"] {
        ensure!(named(packet).len() > 5, "{packet}: {}", named(packet).len());
    }
    let ours = named("quictun:congestion");
    let last = ours.last().context("no controller record")?;
    ensure!(last["data"]["mode"] == "auto", "{last}");
    ensure!(last["data"]["min_rtt"].as_f64() > Some(0.0), "{last}");
    let metrics = named("recovery:metrics_updated");
    let window = |record: &&Value| record["data"]["congestion_window"].as_u64();
    let windows: Vec<u64> = metrics.iter().filter_map(window).collect();
    ensure!(!windows.is_empty(), "no recovery metrics");
    ensure!(
        windows.iter().all(|window| *window < 1 << 32),
        "{windows:?}"
    );
    Ok(())
}
