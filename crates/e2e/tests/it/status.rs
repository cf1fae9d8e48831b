//! `quictun status`, `quictun config check` beside a running server, and the HTTP interface on a Unix socket.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::process::Output;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use quictun_testbed::machine::Machine;
use quictun_testbed::program::{Program, output};
use quictun_testbed::tunnel::{Home, START, listen_address};
use rustix::process::Signal;

const SOON: Duration = Duration::from_secs(10);

const FILE: &str = "[control]\nhttp = 'unix:http.sock'\nhttp_mode = '0660'\n\n[[client]]\nname = 'laptop'\npsk_file = 'laptop.psk'\nallow = ['127.0.0.1:22']\n";

/// Starts a server with its HTTP interface on a Unix socket in its home.
fn server() -> Result<(Home, Program, String)> {
    let home = Home::new()?;
    std::fs::write(home.path().join("laptop.psk"), "a secret, long enough\n")?;
    let file = FILE.replace("unix:", &format!("unix:{}/", home.path().display()));
    std::fs::write(home.path().join("server.toml"), &file)?;
    let mut command = home.command(&Machine::here(), "quictun")?;
    command.args(["server", "--listen", "127.0.0.1:0", "-c", "server.toml"]);
    let mut program = Program::start("server", &mut command)?;
    program.wait_for("Server endpoint start up successful", START)?;
    Ok((home, program, file))
}

fn quictun(home: &Home, arguments: &[&str]) -> Result<Output> {
    let mut command = home.command(&Machine::here(), "quictun")?;
    output(command.args(arguments))
}

fn printed(output: &Output) -> String {
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    String::from_utf8_lossy(&text).into_owned()
}

#[test]
fn status_uses_the_configured_socket_and_reports_a_missing_process() -> Result<()> {
    let (home, mut program, file) = server()?;
    let socket = home.path().join("http.sock");
    let mode = std::fs::metadata(&socket)?.permissions().mode() & 0o777;
    ensure!(mode == 0o660, "mode {mode:o}");
    // A reverse proxy in front of the socket passes its own host name on.
    let mut stream = UnixStream::connect(&socket)?;
    write!(
        stream,
        "GET /healthz HTTP/1.0\r\nHost: status.example\r\n\r\n"
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    ensure!(answer.ends_with(r#"{"ok":true}"#), "{answer}");

    let asked = quictun(&home, &["status", "-c", "server.toml"])?;
    let text = printed(&asked);
    ensure!(asked.status.code() == Some(0), "{text}");
    let first = format!(
        "quictun server {}, process {}",
        env!("CARGO_PKG_VERSION"),
        program.pid()
    );
    ensure!(
        text.starts_with(&first) && text.contains(": ready\n"),
        "{text}"
    );
    ensure!(text.contains("configuration: as at the start\n"), "{text}");
    ensure!(
        text.lines().all(|line| line.chars().count() <= 80),
        "{text}"
    );

    std::fs::write(home.path().join("server.toml"), file.replace(":22", ":23"))?;
    let check = printed(&quictun(
        &home,
        &["config", "check", "--server", "server.toml"],
    )?);
    ensure!(
        check.contains("would change:\n  client \"laptop\": allow -127.0.0.1:22 +127.0.0.1:23\n"),
        "{check}"
    );
    program.signal(Signal::HUP)?;
    program.wait_for("configuration reloaded", SOON)?;
    let check = printed(&quictun(
        &home,
        &["config", "check", "--server", "server.toml"],
    )?);
    ensure!(check.contains("would change nothing\n"), "{check}");
    let socket = format!("unix:{}", socket.display());
    let json = quictun(&home, &["status", "--http", &socket, "--json"])?;
    let json: serde_json::Value = serde_json::from_slice(&json.stdout)?;
    let change = &json["status"]["reload"]["changes"][0];
    ensure!(
        change == "client \"laptop\": allow -127.0.0.1:22 +127.0.0.1:23",
        "{json}"
    );
    ensure!(
        json["tunnels"].is_array() && json["connections"].is_array(),
        "{json}"
    );

    program.signal(Signal::TERM)?;
    program.wait_end(SOON)?;
    let asked = quictun(&home, &["status", "-c", "server.toml"])?;
    let text = printed(&asked);
    ensure!(asked.status.code() == Some(1), "{text}");
    ensure!(text.contains("nothing answers at unix:/"), "{text}");
    let check = quictun(&home, &["config", "check", "--server", "server.toml"])?;
    ensure!(
        check.status.success(),
        "a valid file must pass without a running server, too"
    );
    let off = quictun(&home, &["status", "--http", "off"])?;
    ensure!(off.status.code() == Some(2), "{}", printed(&off));
    Ok(())
}

#[test]
fn a_dns_rebinding_page_is_refused_and_an_open_address_causes_a_warning() -> Result<()> {
    let home = Home::new()?;
    let mut command = home.command(&Machine::here(), "quictun")?;
    command.args(["server", "--listen", "127.0.0.1:0", "--http", "0.0.0.0:0"]);
    command.args(["--http-name", "gateway.example"]);
    let mut program = Program::start("server", &mut command)?;
    let line = program.wait_for("HTTP interface\t", START)?;
    let address = listen_address(&line)?;
    program.wait_for("Server endpoint start up successful", START)?;
    let port = address.strip_prefix("0.0.0.0:").context("not IPv4")?;
    let exposed = program.count("UNSAFE: the HTTP interface");
    ensure!(exposed == 1, "{exposed} warnings instead of 1");
    let ask = |headers: &str| -> Result<String> {
        let mut stream = TcpStream::connect(format!("127.0.0.1:{port}"))?;
        write!(stream, "GET /v1/status HTTP/1.1\r\n{headers}\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    let foreign = [
        format!("Host: evil.example:{port}"),
        format!("Host: 127.0.0.1:{port}\r\nOrigin: http://evil.example"),
    ];
    for headers in foreign {
        let answer = ask(&headers)?;
        ensure!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
        ensure!(answer.contains("{\"error\":\""), "{answer}");
    }
    for host in [format!("127.0.0.1:{port}"), "gateway.example".to_owned()] {
        let answer = ask(&format!("Host: {host}"))?;
        ensure!(answer.starts_with("HTTP/1.1 200 "), "{host}: {answer}");
    }
    Ok(())
}
