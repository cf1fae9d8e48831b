//! `quictun run` with programs that people run behind tunnels: iperf3, ssh, psql.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use quictun_e2e::isolation::{isolated, skip};
use quictun_e2e::machine::Machine;
use quictun_e2e::program::{Program, installed};
use quictun_e2e::tunnel::START;

use crate::applications::{Database, Keys};
use crate::wrapped::{Far, HOSTS, is_root};

const SOON: Duration = Duration::from_secs(20);

/// Moved by iperf3 in each direction and family.
const BYTES: u64 = 20_000_000;

#[test]
fn iperf3_moves_its_bytes_both_ways() -> Result<()> {
    isolated(|| {
        let Some(far) = Far::start("iperf3_moves_its_bytes_both_ways")? else {
            return Ok(());
        };
        let mut serve = Machine::here().command(installed("iperf3", "iperf3")?);
        let mut server = Program::start("iperf3", serve.args(["-s", "--forceflush"]))?;
        let mut runs = 0;
        for host in HOSTS {
            for more in ["", "-R", "-P 4"] {
                runs += 1;
                // Between two tests its server closes the port for a moment.
                server.wait_for(&format!("Server listening on 5201 (test #{runs})"), START)?;
                let ran = far.run(&format!("exec iperf3 -c {host} -n {BYTES} -J {more}"))?;
                let text = String::from_utf8_lossy(&ran.stdout);
                ensure!(ran.status.success(), "{host} {more}: {ran:?}");
                let report: serde_json::Value = serde_json::from_str(&text)?;
                let sent = report["end"]["sum_sent"]["bytes"].as_u64();
                ensure!(sent.context("no bytes")? >= BYTES, "{host} {more}: {text}");
            }
        }
        Ok(())
    })
}

#[test]
fn ssh_runs_commands_and_carries_what_they_read_and_write() -> Result<()> {
    isolated(|| {
        let test = "ssh_runs_commands_and_carries_what_they_read_and_write";
        let Some(far) = Far::start(test)? else {
            return Ok(());
        };
        if !is_root()? {
            skip(test, "sshd wants to be another user than root");
            return Ok(());
        }
        let keys = Keys::new()?;
        for host in HOSTS {
            let sshd = keys.sshd(SocketAddr::new(host.parse()?, 0))?;
            let line = format!(
                "seq 1000000 | exec ssh {} -p {} {} 'md5sum; exit 7'",
                keys.options().join(" "),
                sshd.endpoint().port()?,
                keys.user_at(host)
            );
            let said = far.run(&line)?;
            ensure!(
                said.status.code() == Some(7)
                    && said.stdout == b"8a7095c1c23bfadc311fe6b16d950582  -\n",
                "{said:?}"
            );
            sshd.outcome(SOON)?;
        }
        Ok(())
    })
}

#[test]
fn psql_copies_a_table_out_and_in() -> Result<()> {
    isolated(|| {
        let test = "psql_copies_a_table_out_and_in";
        let Some(far) = Far::start(test)? else {
            return Ok(());
        };
        if !is_root()? {
            skip(test, "postgres wants to be another user than root");
            return Ok(());
        }
        let psql = installed("psql", "postgresql-client")?;
        let database = Database::start(&HOSTS.join(","))?;
        let run = |host: &str, sql: &str| {
            let line = format!(
                "exec {} --no-psqlrc -qtA --set=ON_ERROR_STOP=1 --host={host} --username=e2e --dbname=postgres -c \"{sql}\"",
                psql.display()
            );
            let ran = far.run(&line)?;
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
        let file = far.home.path().join("t.csv");
        run(v6, &format!("\\copy t to '{}'", file.display()))?;
        run(v4, "truncate t")?;
        run(v4, &format!("\\copy t from '{}'", file.display()))?;
        ensure!(run(v6, sum)? == before, "the table came back another");
        database.stop()
    })
}
