//! A `PostgreSQL` server for tests, and psql.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};
use rustix::process::Signal;

use crate::machine::Machine;
use crate::program::{Program, command, installed, run};
use crate::tunnel::Home;

/// A `PostgreSQL` server for one test. Call [`Database::stop`] at its end.
#[derive(Debug)]
pub struct Database {
    server: Program,
    home: Home,
    psql: PathBuf,
}

impl Database {
    /// Starts a server that listens on a Unix socket, and on port 5432 of these addresses.
    ///
    /// # Errors
    ///
    /// Fails if `PostgreSQL` is not installed or does not start.
    pub fn start(addresses: &str) -> Result<Self> {
        let (initdb, postgres) = (
            installed("initdb", "postgresql")?,
            installed("postgres", "postgresql")?,
        );
        let home = Home::new()?;
        let data = home.path().join("data");
        std::fs::create_dir(&data)?;
        give_to_postgres(home.path())?;
        give_to_postgres(&data)?;
        run(as_postgres(&initdb)
            .args([
                "--username=e2e",
                "--auth=trust",
                "--no-sync",
                "--encoding=UTF8",
                "--locale=C",
                "-D",
            ])
            .arg(&data))?;
        if !addresses.is_empty() {
            let rules = data.join("pg_hba.conf");
            let mut rules = std::fs::OpenOptions::new().append(true).open(rules)?;
            // The server lives for one test only.
            writeln!(rules, "host all all all trust")?;
        }
        let mut serve = as_postgres(&postgres);
        serve
            .arg("-D")
            .arg(&data)
            .arg("-c")
            .arg(format!("listen_addresses={addresses}"))
            .args(["-c", "fsync=off", "-c"]);
        serve.arg(format!("unix_socket_directories={}", home.path().display()));
        let mut server = Program::start("postgres", &mut serve)?;
        server.wait_for(
            "database system is ready to accept connections",
            Duration::from_secs(20),
        )?;
        let psql = installed("psql", "postgresql-client")?;
        Ok(Self { server, home, psql })
    }

    /// Returns the directory of the server, which may hold other files beside it.
    pub fn home(&self) -> &Home {
        &self.home
    }

    /// Returns the target that leads to the Unix socket.
    pub fn target(&self) -> String {
        format!("unix:{}/.s.PGSQL.5432", self.home.path().display())
    }

    /// Returns a psql command that runs `sql` through a forward on this port.
    pub fn psql(&self, port: u16, sql: &str) -> Command {
        let mut psql = self.session(&Machine::here(), port);
        psql.args(["--command", sql]);
        psql
    }

    /// Returns a command that runs psql on `machine`, through a forward on this port. It reads statements from its
    /// standard input.
    pub fn session(&self, machine: &Machine, port: u16) -> Command {
        let mut psql = machine.command(&self.psql);
        psql.args([
            "--no-psqlrc",
            "--quiet",
            "--tuples-only",
            "--no-align",
            "--set=ON_ERROR_STOP=1",
        ]);
        psql.args(["--host=127.0.0.1", "--username=e2e", "--dbname=postgres"]);
        psql.arg(format!("--port={port}"));
        psql
    }

    /// Stops the server in an orderly way, so that it releases its shared memory.
    ///
    /// # Errors
    ///
    /// Fails if the server has crashed, or does not end.
    pub fn stop(mut self) -> Result<()> {
        self.server.signal(Signal::INT)?;
        let status = self.server.wait_end(Duration::from_secs(10))?;
        ensure!(status.success(), "{status}");
        self.server.silence();
        Ok(())
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// `PostgreSQL` refuses to run as root; its package creates a user for it.
fn as_postgres(program: &Path) -> Command {
    if !is_root() {
        return command(program);
    }
    let mut as_postgres = command("setpriv");
    as_postgres.args([
        "--reuid=postgres",
        "--regid=postgres",
        "--init-groups",
        "--pdeathsig",
        "KILL",
        "--",
    ]);
    as_postgres.arg(program).current_dir("/");
    as_postgres
}

fn give_to_postgres(path: &Path) -> Result<()> {
    if is_root() {
        run(command("chown").arg("postgres:postgres").arg(path))?;
    }
    Ok(())
}
