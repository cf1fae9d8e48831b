//! `quictun run` with programs that users commonly run behind tunnels: iperf3, ssh, psql.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Output;
use std::time::Duration;

use anyhow::{Result, ensure};
use quictun_skip::skipped;
use quictun_testbed::application::Application;
use quictun_testbed::isolation::isolated_with;
use quictun_testbed::machine::Machine;
use quictun_testbed::openssh::SshKeys;
use quictun_testbed::postgresql::Database;
use quictun_testbed::program::installed;

use crate::iperf3;
use crate::wrapped::{HOSTS, WrappedServer, is_root};

const SOON: Duration = Duration::from_secs(20);

#[test]
fn iperf3_moves_its_bytes_both_ways() -> Result<()> {
    isolated_with(WrappedServer::start, |far| {
        let server = Machine::here().command(installed("iperf3", "iperf3")?);
        iperf3::moves_its_bytes(server, |arguments| {
            let ran = far.run(&format!("exec iperf3 {arguments}"))?;
            ensure!(ran.status.success(), "{arguments}: {ran:?}");
            Ok(String::from_utf8(ran.stdout)?)
        })
    })
}

#[test]
fn ssh_runs_commands_and_carries_what_they_read_and_write() -> Result<()> {
    isolated_with(WrappedServer::start, |far| {
        if !is_root()? {
            skipped(&far.test, "sshd needs to change to a user other than root");
            return Ok(());
        }
        ssh_carries_all(&|address, keys| keys.sshd(address), &|line| far.run(line))
    })
}

#[test]
fn psql_copies_a_table_out_and_in() -> Result<()> {
    isolated_with(WrappedServer::start, |far| {
        if !is_root()? {
            skipped(&far.test, "postgres needs to run as a user other than root");
            return Ok(());
        }
        let database = Database::start(&HOSTS.join(","))?;
        psql_copies_all(far.home.path(), &|line| far.run(line))?;
        database.stop()
    })
}

/// Checks commands over ssh: their input, output and exit codes. `serve` starts an sshd at an address, and `run` runs a
/// shell line that must reach it.
pub(crate) fn ssh_carries_all(
    serve: &dyn Fn(SocketAddr, &SshKeys) -> Result<Application>,
    run: &dyn Fn(&str) -> Result<Output>,
) -> Result<()> {
    let keys = SshKeys::new()?;
    for host in HOSTS {
        let sshd = serve(SocketAddr::new(host.parse()?, 0), &keys)?;
        let line = format!(
            "seq 1000000 | exec ssh {} -p {} {} 'md5sum; exit 7'",
            keys.options().join(" "),
            sshd.endpoint().port()?,
            keys.user_at(host)
        );
        let said = run(&line)?;
        ensure!(
            said.status.code() == Some(7)
                && said.stdout == b"8a7095c1c23bfadc311fe6b16d950582  -\n",
            "{said:?}"
        );
        sshd.outcome(SOON)?;
    }
    Ok(())
}

/// Copies a table of the database at [`HOSTS`] out and in with psql; `run` runs a shell line that must reach the
/// database.
pub(crate) fn psql_copies_all(home: &Path, run: &dyn Fn(&str) -> Result<Output>) -> Result<()> {
    let psql = installed("psql", "postgresql-client")?;
    let run = |host: &str, sql: &str| {
        let line = format!(
            "exec {} --no-psqlrc -qtA --set=ON_ERROR_STOP=1 --host={host} --username=e2e --dbname=postgres -c \"{sql}\"",
            psql.display()
        );
        let ran = run(&line)?;
        ensure!(ran.status.success(), "{sql}: {ran:?}");
        Ok(String::from_utf8(ran.stdout)?)
    };
    let [v4, v6] = HOSTS;
    run(
        v4,
        "create table t as select i, md5(i::text) word from generate_series(1, 100000) i",
    )?;
    let sum = "select count(*), md5(string_agg(word, ',' order by i)) from t";
    let before = run(v6, sum)?;
    ensure!(before.starts_with("100000|"), "{before}");
    let file = home.join("t.csv");
    run(v6, &format!("\\copy t to '{}'", file.display()))?;
    run(v4, "truncate t")?;
    run(v4, &format!("\\copy t from '{}'", file.display()))?;
    ensure!(run(v6, sum)? == before, "the table has changed");
    Ok(())
}
