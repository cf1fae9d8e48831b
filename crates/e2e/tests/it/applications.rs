//! Common programs that users run through tunnels.

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use quictun_testbed::application::Application;
use quictun_testbed::connection::Connection;
use quictun_testbed::isolation::with_programs;
use quictun_testbed::payload::Payload;
use quictun_testbed::program::{Program, command, installed, output, run};
use quictun_testbed::tunnel::{Home, Tunnel};
use rustix::process::Signal;

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

        let said = output(keys.client("ssh").args([
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

        let (file, copy) = (keys.home.path().join("file"), keys.home.path().join("copy"));
        let payload = Payload::new(12, 20 << 20);
        payload.write_to(&mut std::fs::File::create(&file)?)?;
        let remote = |path: &Path| format!("{}:{}", keys.user_at("127.0.0.1"), path.display());
        run(keys
            .client("scp")
            .args(["-P", &port])
            .arg(&file)
            .arg(remote(&copy)))?;
        payload
            .read_to_end_of(&mut std::fs::File::open(&copy)?)
            .context("verifying the file copied to the server")?;
        std::fs::remove_file(&file)?;
        run(keys
            .client("scp")
            .args(["-P", &port])
            .arg(remote(&copy))
            .arg(&file))?;
        payload
            .read_to_end_of(&mut std::fs::File::open(&file)?)
            .context("verifying the file copied from the server")
    })
}

/// Temporary keys, and ssh clients and servers that use them.
pub(crate) struct SshKeys {
    home: Home,
    sshd: PathBuf,
    user: String,
}

impl SshKeys {
    pub(crate) fn new() -> Result<Self> {
        let sshd = installed("sshd", "openssh-server")?;
        let keygen = installed("ssh-keygen", "openssh-client")?;
        let home = Home::new()?;
        for key in ["host", "user"] {
            run(command(&keygen)
                .args(["-q", "-t", "ed25519", "-N", "", "-f"])
                .arg(home.path().join(key)))?;
        }
        let user = run(command("id").arg("-un"))?.trim().to_owned();
        if user == "root" {
            // As root, sshd drops its privileges in this directory, which a service manager would have created.
            std::fs::create_dir_all("/run/sshd")?;
        }
        Ok(Self { home, sshd, user })
    }

    pub(crate) fn user_at(&self, host: &str) -> String {
        format!("{}@{host}", self.user)
    }

    pub(crate) fn client(&self, program: &str) -> Command {
        let mut client = command(program);
        client.args(self.options());
        client
    }

    /// Returns options that make ssh and scp use these keys and none of the user's configuration.
    pub(crate) fn options(&self) -> Vec<String> {
        let user = self.home.path().join("user").display().to_string();
        let options = [
            "-oBatchMode=yes",
            "-oStrictHostKeyChecking=no",
            "-oUserKnownHostsFile=/dev/null",
            "-oLogLevel=ERROR",
            "-Fnone",
            "-i",
            &user,
        ];
        options.map(str::to_owned).to_vec()
    }

    /// Runs one `sshd -i` per connection, as inetd would: sshd itself needs no port.
    pub(crate) fn sshd(&self, address: SocketAddr) -> Result<Application> {
        let path = |name: &str| self.home.path().join(name).display().to_string();
        let options = [
            format!("HostKey={}", path("host")),
            format!("AuthorizedKeysFile={}", path("user.pub")),
            "StrictModes=no".to_owned(),
            "UsePAM=no".to_owned(),
            "PermitRootLogin=yes".to_owned(),
            "Subsystem=sftp internal-sftp".to_owned(),
        ];
        let sshd = self.sshd.clone();
        Application::tcp_on(address, move |connection| {
            let output: OwnedFd = connection.try_clone()?.into();
            let input: OwnedFd = connection.into();
            let mut serve = command(&sshd);
            serve
                .args(["-i", "-f", "/dev/null"])
                .args(options.iter().flat_map(|option| ["-o", option]));
            serve
                .stdin(Stdio::from(input))
                .stdout(Stdio::from(output))
                .stderr(Stdio::null())
                .status()?;
            Ok(())
        })
    }
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
        let file = database.home.path().join("t.csv");
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

/// A `PostgreSQL` server for one test.
pub(crate) struct Database {
    server: Program,
    home: Home,
    psql: PathBuf,
}

impl Database {
    /// Starts a server that listens on a Unix socket, and on port 5432 of these addresses.
    pub(crate) fn start(addresses: &str) -> Result<Self> {
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

    pub(crate) fn target(&self) -> String {
        format!("unix:{}/.s.PGSQL.5432", self.home.path().display())
    }

    fn psql(&self, port: u16, sql: &str) -> Command {
        let mut psql = self.session(port);
        psql.args(["--command", sql]);
        psql
    }

    /// Returns a psql command that reads statements from its standard input.
    pub(crate) fn session(&self, port: u16) -> Command {
        let mut psql = command(&self.psql);
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
    pub(crate) fn stop(mut self) -> Result<()> {
        self.server.signal(Signal::INT)?;
        let status = self.server.wait_end(Duration::from_secs(10))?;
        ensure!(status.success(), "{status}");
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
