//! Common programs that users run through tunnels.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use quictun_testbed::application::Application;
use quictun_testbed::connection::Connection;
use quictun_testbed::isolation::with_programs;
use quictun_testbed::machine::Machine;
use quictun_testbed::openssh::SshKeys;
use quictun_testbed::payload::Payload;
use quictun_testbed::postgresql::Database;
use quictun_testbed::program::{command, installed, output, run};
use quictun_testbed::tunnel::{Home, Tunnel};

const FILE: Payload = Payload {
    seed: 11,
    bytes: 200 << 20,
};

#[test]
fn curl_moves_a_large_file_both_ways_intact() -> Result<()> {
    with_programs(|| {
        let curl = installed("curl", "curl")?;
        let application = Application::tcp(serve_http)?;
        let tunnel = Tunnel::to(&application.target())?;
        let home = Home::new()?;
        let file = home.path().join("file");
        let url = format!("http://127.0.0.1:{}/file", tunnel.client.forward.port()?);
        let download = run(command(&curl)
            .args(["-sS", "--fail", "-o"])
            .arg(&file)
            .arg(&url))?;
        ensure!(download.is_empty(), "{download}");
        FILE.read_to_end_of(&mut std::fs::File::open(&file)?)
            .context("verifying the downloaded file")?;
        application.outcome(Duration::from_secs(5))?;
        let upload = run(command(&curl)
            .args(["-sS", "--fail", "-T"])
            .arg(&file)
            .arg(&url))?;
        ensure!(upload == "unharmed", "{upload}");
        application.outcome(Duration::from_secs(5))
    })
}

/// An HTTP server: `GET` sends the file, `PUT` verifies it.
fn serve_http(connection: Connection) -> Result<()> {
    let mut writing = connection.try_clone()?;
    let mut reading = BufReader::new(connection);
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        ensure!(reading.read_until(b'\n', &mut head)? > 0, "no request");
    }
    let head = String::from_utf8(head)?.to_ascii_lowercase();
    if head.starts_with("get ") {
        write!(
            writing,
            "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
            FILE.bytes
        )?;
        return FILE.write_to(&mut writing);
    }
    ensure!(
        head.starts_with("put ") && head.contains(&format!("content-length: {}\r\n", FILE.bytes)),
        "{head}"
    );
    if head.contains("expect: 100-continue") {
        writing.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
    }
    FILE.read_from(&mut reading)?;
    writing
        .write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 8\r\n\r\nunharmed")?;
    Ok(())
}

#[test]
fn ssh_runs_commands_and_scp_copies_files() -> Result<()> {
    with_programs(|| {
        let keys = SshKeys::new()?;
        let application = keys.sshd("127.0.0.1:0".parse()?)?;
        let tunnel = Tunnel::to(&application.target())?;
        let port = tunnel.client.forward.port()?.to_string();

        let said = output(keys.client(&Machine::here(), "ssh").args([
            "-p",
            &port,
            &keys.user_at("127.0.0.1"),
            "echo out; echo err >&2; exit 7",
        ]))?;
        ensure!(said.status.code() == Some(7), "{said:?}");
        ensure!(
            said.stdout == b"out\n" && said.stderr.ends_with(b"err\n"),
            "{said:?}"
        );

        let (file, copy) = (
            keys.home().path().join("file"),
            keys.home().path().join("copy"),
        );
        let payload = Payload::new(12, 20 << 20);
        payload.write_to(&mut std::fs::File::create(&file)?)?;
        let remote = |path: &Path| format!("{}:{}", keys.user_at("127.0.0.1"), path.display());
        run(keys
            .client(&Machine::here(), "scp")
            .args(["-P", &port])
            .arg(&file)
            .arg(remote(&copy)))?;
        payload
            .read_to_end_of(&mut std::fs::File::open(&copy)?)
            .context("verifying the file copied to the server")?;
        std::fs::remove_file(&file)?;
        run(keys
            .client(&Machine::here(), "scp")
            .args(["-P", &port])
            .arg(remote(&copy))
            .arg(&file))?;
        payload
            .read_to_end_of(&mut std::fs::File::open(&file)?)
            .context("verifying the file copied from the server")
    })
}

#[test]
fn postgresql_copies_a_table_out_and_in_through_a_unix_target() -> Result<()> {
    with_programs(|| {
        let database = Database::start("")?;
        let tunnel = Tunnel::with(&database.target(), &["--allow-unix"], &[])?;
        let port = tunnel.client.forward.port()?;
        let rows = 200_000;
        let psql = |sql: &str| run(&mut database.psql(port, sql));
        psql("create table t (id bigint primary key, word text)")?;
        psql(&format!(
            "insert into t select i, md5(i::text) from generate_series(1, {rows}) i"
        ))?;
        let file = database.home().path().join("t.csv");
        psql(&format!("\\copy t to '{}'", file.display()))?;
        let sum = "select count(*), md5(string_agg(word, ',' order by id)) from t";
        let before = psql(sum)?;
        ensure!(before.starts_with(&format!("{rows}|")), "{before}");
        psql("truncate t")?;
        psql(&format!("\\copy t from '{}'", file.display()))?;
        ensure!(psql(sum)? == before, "the table has changed");
        let refused = output(&mut database.psql(port, "select 1/0"))?;
        ensure!(
            !refused.status.success()
                && String::from_utf8_lossy(&refused.stderr).contains("division by zero")
        );
        database.stop()
    })
}
