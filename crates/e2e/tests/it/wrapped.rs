//! `quictun run`: unmodified programs whose connections go through the tunnel, whatever they connect to.

use std::io::Read as _;
use std::net::SocketAddr;
use std::process::{Command, Output};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use quictun_e2e::application::Application;
use quictun_e2e::connection::Connection;
use quictun_e2e::isolation::{isolated, skip};
use quictun_e2e::machine::{self, Machine};
use quictun_e2e::payload::Payload;
use quictun_e2e::program::{Program, output};
use quictun_e2e::tunnel::{Home, START};

const SOON: Duration = Duration::from_secs(20);
const FILE: Payload = Payload {
    seed: 91,
    bytes: 20 << 20,
};

/// Addresses that only the server's network has.
const HOSTS: [&str; 2] = ["203.0.113.9", "2001:db8::9"];

/// A server that may reach them, and the command line that leads there.
struct Far {
    _program: Program,
    home: Home,
    flags: String,
}

impl Far {
    /// Nothing where there is no TUN device to be had.
    fn start(test: &str) -> Result<Option<Self>> {
        if let Err(why) = std::fs::File::open("/dev/net/tun") {
            skip(test, &format!("/dev/net/tun: {why}"));
            return Ok(None);
        }
        for host in HOSTS {
            machine::run(&format!("ip address add {host} dev lo"))?;
        }
        let home = Home::new()?;
        let mut command = home.command(&Machine::here(), "quictun")?;
        command.args(["server", "--listen", "127.0.0.1:0", "--http", "off"]);
        command.args(["--allow", "203.0.113.9:*", "--allow", "[2001:db8::9]:*"]);
        let mut program = Program::start("server", &mut command)?;
        let line = program.wait_for("Server endpoint start up successful", START)?;
        let address = after(&line, "\"listen address\": \"", '"')?;
        let line = program.wait_for(": quictun client ", START)?;
        let pin = after(&line, "--pin ", ' ')?;
        let secret = home.path().join("state/client.psk");
        let flags = format!(
            "--server {address} --pin {pin} --psk-file {}",
            secret.display()
        );
        Ok(Some(Self {
            _program: program,
            home,
            flags,
        }))
    }

    /// Runs a line of a shell behind the tunnel.
    fn run(&self, line: &str) -> Result<Output> {
        let mut command: Command = self.home.command(&Machine::here(), "quictun")?;
        command.arg("run").args(self.flags.split(' '));
        command.args(["--", "sh", "-c", line]);
        output(&mut command)
    }
}

fn after(text: &str, before: &str, until: char) -> Result<String> {
    let (_, rest) = text
        .split_once(before)
        .with_context(|| format!("no {before:?} in {text:?}"))?;
    Ok(rest.split(until).next().unwrap_or_default().to_owned())
}

fn url(host: &str, application: &Application) -> Result<String> {
    let address = SocketAddr::new(host.parse()?, application.endpoint().port()?);
    Ok(format!("http://{address}/"))
}

/// Answers any request with the file, and ends.
fn serve(mut connection: Connection) -> Result<()> {
    let mut request = [0; 4096];
    ensure!(connection.read(&mut request)? > 0, "no request");
    std::io::Write::write_all(
        &mut connection,
        format!("HTTP/1.0 200 OK\r\nContent-Length: {}\r\n\r\n", FILE.bytes).as_bytes(),
    )?;
    FILE.write_to(&mut connection)
}

#[test]
fn curl_reaches_both_families_and_gets_every_byte() -> Result<()> {
    isolated(|| {
        let Some(far) = Far::start("curl_reaches_both_families_and_gets_every_byte")? else {
            return Ok(());
        };
        for host in HOSTS {
            let application = Application::tcp_on(SocketAddr::new(host.parse()?, 0), serve)?;
            let file = far.home.path().join("file");
            let url = url(host, &application)?;
            let fetched = far.run(&format!("curl -sS -g -o {} '{url}'", file.display()))?;
            ensure!(fetched.status.success(), "{fetched:?}");
            FILE.read_to_end_of(&mut std::fs::File::open(&file)?)?;
            application.outcome(SOON)?;
        }
        Ok(())
    })
}

#[test]
fn refusals_ends_and_exit_codes_pass() -> Result<()> {
    isolated(|| {
        let Some(far) = Far::start("refusals_ends_and_exit_codes_pass")? else {
            return Ok(());
        };
        // Nobody listens; and the server may not go there.
        for target in ["203.0.113.9:9", "203.0.113.10:9"] {
            let refused = far.run(&format!("curl -sS -m 20 http://{target}/"))?;
            ensure!(refused.status.code() == Some(7), "{target}: {refused:?}");
        }
        // The application hears the end of what is sent, and answers after it.
        let answering = |mut connection: Connection| {
            let mut text = String::new();
            connection.read_to_string(&mut text)?;
            std::io::Write::write_all(&mut connection, text.to_uppercase().as_bytes())?;
            connection.finish()
        };
        let application = Application::tcp_on("203.0.113.9:0".parse()?, answering)?;
        let port = application.endpoint().port()?;
        let said = far.run(&format!("printf 'half closed' | nc -N 203.0.113.9 {port}"))?;
        ensure!(said.stdout == b"HALF CLOSED", "{said:?}");
        application.outcome(SOON)?;
        // A cut is no end.
        let cutting = |mut connection: Connection| {
            let mut request = [0; 4096];
            ensure!(connection.read(&mut request)? > 0, "no request");
            connection.reset()
        };
        let application = Application::tcp_on("203.0.113.9:0".parse()?, cutting)?;
        let cut = far.run(&format!("curl -sS '{}'", url("203.0.113.9", &application)?))?;
        ensure!(cut.status.code() == Some(56), "{cut:?}");
        application.outcome(SOON)?;
        let code = far.run("exit 42")?;
        ensure!(code.status.code() == Some(42), "{code:?}");
        Ok(())
    })
}
