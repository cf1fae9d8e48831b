//! Wrong command lines and files: the program prints one clear error that names the problem and the remedy, and exits.

use std::net::{TcpListener, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use quictun_testbed::machine::Machine;
use quictun_testbed::program::{Program, command, run};
use quictun_testbed::tunnel::{Client, Home, Server};

const SOON: Duration = Duration::from_secs(10);

/// Exit codes: for wrong usage or configuration, and for failures of the environment.
const USAGE: i32 = 2;
const FAILURE: i32 = 1;

/// A command line that runs in a home, its exit code, and texts that its error contains.
struct BadInputCase<'a> {
    program: &'a str,
    line: &'a str,
    code: i32,
    says: &'a [&'a str],
}

fn client<'a>(line: &'a str, code: i32, says: &'a [&'a str]) -> BadInputCase<'a> {
    BadInputCase {
        program: "quictun-client",
        line,
        code,
        says,
    }
}

fn server<'a>(line: &'a str, code: i32, says: &'a [&'a str]) -> BadInputCase<'a> {
    BadInputCase {
        program: "quictun-server",
        line,
        code,
        says,
    }
}

fn native<'a>(line: &'a str, code: i32, says: &'a [&'a str]) -> BadInputCase<'a> {
    BadInputCase {
        program: "quictun",
        line,
        code,
        says,
    }
}

impl BadInputCase<'_> {
    fn check(&self, home: &Home) -> Result<()> {
        let mut command = home.command(&Machine::here(), self.program)?;
        let mut program = Program::start(self.program, command.args(self.line.split_whitespace()))?;
        let status = program.wait_end(SOON)?;
        let said = program.lines().join("\n");
        ensure!(
            status.code() == Some(self.code),
            "exit status {status} instead of {}:\n{said}",
            self.code
        );
        for part in self.says {
            ensure!(said.contains(part), "the output lacks {part:?}:\n{said}");
        }
        let errors = program
            .lines()
            .iter()
            .filter(|line| line.contains("panicked") || line.contains("error: "))
            .count();
        ensure!(
            errors <= 1 && !said.contains("panicked"),
            "more than one error, or a panic:\n{said}"
        );
        ensure!(
            said.matches("try: ").count() <= 1,
            "more than one remedy:\n{said}"
        );
        program.silence();
        Ok(())
    }
}

fn check_all(home: &Home, cases: &[BadInputCase<'_>]) -> Result<()> {
    let wrong: Vec<String> = cases
        .iter()
        .filter_map(|case| {
            Some(format!(
                "{} {}: {:#}",
                case.program,
                case.line,
                case.check(home).err()?
            ))
        })
        .collect();
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

#[test]
fn wrong_flags_and_values_are_usage_errors() -> Result<()> {
    let endpoint =
        "--server-endpoint 127.0.0.1:1 --token-source tcp:127.0.0.1:1 --listen-on tcp:127.0.0.1:0";
    let with = |more: &str| format!("{endpoint} {more}");
    let long = "x".repeat(600);
    let lines = [
        with("--token-source-plugin Magic"),
        with("--listen-on tcp:127.0.0.1:70000"),
        with("--pin sha256:short"),
        with("--log-level loud"),
        with("--idle-timeout soon"),
        with(&format!("--token-source tcp:{long}:1 --offer compat")),
    ];
    check_all(
        &Home::new()?,
        &[
            client(
                "--server-endpiont 127.0.0.1:1",
                USAGE,
                &["--server-endpiont", "--server-endpoint"],
            ),
            client(
                "--token-source tcp:127.0.0.1:1",
                USAGE,
                &["--server-endpoint"],
            ),
            client(&lines[0], USAGE, &["Magic", "Fixed", "File", "Http"]),
            client(&lines[1], USAGE, &["70000", "--listen-on"]),
            client(&lines[2], USAGE, &["--pin", "sha256:"]),
            client(&lines[3], USAGE, &["loud", "info"]),
            client(&lines[4], USAGE, &["--idle-timeout", "soon"]),
            client(&lines[5], USAGE, &["--token-source", "512"]),
            server(
                "--token-parser-plugin Magic",
                USAGE,
                &["Magic", "Cleartext"],
            ),
            server("--listen-on nowhere", USAGE, &["nowhere", "--listen-on"]),
            native(
                "server --allow nonsense",
                USAGE,
                &["the rule \"nonsense\"", "HOST:PORT"],
            ),
            native("client --server h:1 -L 1=h:1", USAGE, &["--pin"]),
            native("nonsense", USAGE, &["nonsense"]),
        ],
    )
}

#[test]
fn files_that_are_missing_unreadable_or_wrong_are_named() -> Result<()> {
    let home = Home::new()?;
    for name in ["one", "two"] {
        let mut command = home.command(&Machine::here(), "quictun")?;
        run(command.args(["keygen", "--out", name]))?;
    }
    std::fs::write(home.path().join("junk.pem"), "this is no key\n")?;
    std::fs::write(home.path().join("broken.yaml"), "listen-on: [\n")?;
    std::fs::write(
        home.path().join("unknown.toml"),
        "listen = \"127.0.0.1:0\"\nlisten-twice = true\n",
    )?;
    std::fs::write(
        home.path().join("open.psk"),
        "0123456789abcdef0123456789abcdef\n",
    )?;
    std::fs::set_permissions(
        home.path().join("open.psk"),
        std::fs::Permissions::from_mode(0o644),
    )?;
    let listen = "--listen-on 127.0.0.1:0 --httpd-listen-on off";
    let with = |more: &str| format!("{listen} {more}");
    let lines = [
        with("--key-file absent.key --cert-file one/client.crt"),
        with("--key-file junk.pem --cert-file one/client.crt"),
        with("--key-file one/client.key --cert-file two/client.crt"),
        with("--verify-remote-endpoint --ca-file absent.crt"),
        with("--key-file one/client.key"),
    ];
    check_all(
        &home,
        &[
            server(&lines[0], FAILURE, &["absent.key"]),
            server(&lines[1], FAILURE, &["junk.pem"]),
            server(&lines[2], FAILURE, &["one/client.key", "two/client.crt"]),
            server(&lines[3], FAILURE, &["absent.crt"]),
            server(&lines[4], USAGE, &["--cert-file"]),
            server("-c absent.yaml", FAILURE, &["absent.yaml"]),
            server("-c broken.yaml", USAGE, &["broken.yaml"]),
            native(
                "server --config unknown.toml",
                USAGE,
                &["unknown.toml", "listen-twice"],
            ),
            native(
                "client --server h:1 --pin sha256:47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU --psk-file absent.psk -L 0=h:1",
                FAILURE,
                &["absent.psk"],
            ),
        ],
    )
}

#[test]
fn ports_in_use_are_named() -> Result<()> {
    let (udp, tcp) = (
        UdpSocket::bind("127.0.0.1:0")?,
        TcpListener::bind("127.0.0.1:0")?,
    );
    let (udp, tcp) = (
        udp.local_addr().map(|a| (a, udp))?,
        tcp.local_addr().map(|a| (a, tcp))?,
    );
    let lines = [
        format!("--listen-on {} --httpd-listen-on off", udp.0),
        format!("--listen-on 127.0.0.1:0 --httpd-listen-on {}", tcp.0),
        format!(
            "--server-endpoint 127.0.0.1:1 --token-source tcp:127.0.0.1:1 --httpd-listen-on off --listen-on tcp:{}",
            tcp.0
        ),
    ];
    let native_http = format!("server --listen 127.0.0.1:0 --http {}", tcp.0);
    let (udp, tcp) = (udp.0.to_string(), tcp.0.to_string());
    check_all(
        &Home::new()?,
        &[
            server(&lines[0], FAILURE, &[&udp, "another"]),
            server(&lines[1], FAILURE, &[&tcp, "--httpd-listen-on"]),
            client(&lines[2], FAILURE, &[&tcp, "another"]),
            native(&native_http, FAILURE, &[&tcp, "`--http ADDRESS:PORT`"]),
        ],
    )
}

#[test]
fn frequent_mistakes_have_their_own_remedy() -> Result<()> {
    let home = Home::new()?;
    std::fs::write(home.path().join("plain"), "a file\n")?;
    std::fs::write(
        home.path().join("near.toml"),
        "[[client]]\nname = \"a\"\nalow = [\"h:1\"]\n",
    )?;
    let pin = "--pin sha256:47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU";
    let occupied = format!("client --server 127.0.0.1:1 {pin} --http off -L unix:plain=h:1");
    check_all(
        &home,
        &[
            native(
                "server --allow http://intranet:80",
                USAGE,
                &["is an address of the web", "write \"intranet:80\""],
            ),
            native(
                "client --server h --pin sha256:... -L 1:h:1",
                USAGE,
                &["--pin: sha256:... is a placeholder", "start-up lines"],
            ),
            native(
                "server --config near.toml",
                USAGE,
                &["unknown field `alow`", "did you mean allow?"],
            ),
            native(
                &occupied,
                FAILURE,
                &["a file is in the way", "`rm plain` removes it"],
            ),
        ],
    )
}

#[test]
fn an_invalid_token_costs_only_its_own_flow() -> Result<()> {
    let mut running = Server::start(&[])?;
    for offer in ["native", "compat"] {
        for token in [
            "nonsense",
            "tcp:127.0.0.1",
            "udp:127.0.0.1:53",
            "unix:/run/x.sock",
            "tcp:169.254.169.254:80",
        ] {
            let arguments = ["--token-source", token, "--offer", offer];
            let client = match Client::start(&running.address.to_string(), &arguments) {
                Ok(client) => client,
                // The client may refuse an invalid target before it starts anything.
                Err(error) if format!("{error:#}").contains(token) => continue,
                Err(error) => return Err(error),
            };
            let ending = client.forward.ending()?;
            ensure!(ending.is_reset(), "{token:?} ended as {ending:?}");
        }
    }
    ensure!(running.program.ended()?.is_none(), "the server ended");
    Ok(())
}

#[test]
fn a_token_file_may_hold_tabs_ipv6_and_blank_lines() -> Result<()> {
    let application = quictun_testbed::application::Application::echo()?;
    let running = Server::start(&[])?;
    let home = Home::new()?;
    let tokens = home.path().join("tokens.txt");
    let target = application.target();
    // The longer address comes first: a prefix must not match.
    let text = format!(
        "\n# who\twhere\n127.0.0.10 tcp:127.0.0.1:1\n\n[::1]\ttcp:127.0.0.1:1\n127.0.0.1\t\t{target}  \n"
    );
    std::fs::write(&tokens, text)?;
    let plugin = [
        "--token-source-plugin",
        "file",
        "--token-source",
        path(&tokens)?,
    ];
    let client = Client::start(&running.address.to_string(), &plugin)?;
    quictun_testbed::application::through_echo(
        &client.forward,
        quictun_testbed::payload::Payload::new(1, 1000),
    )?;
    std::fs::write(&tokens, "127.0.0.10 tcp:127.0.0.1:1\n")?;
    ensure!(
        client.forward.ending()?.is_reset(),
        "an application without a line in the token file got through"
    );
    Ok(())
}

#[test]
fn help_and_version_are_not_errors() -> Result<()> {
    let home = Home::new()?;
    for (program, line) in [
        ("quictun", "--help"),
        ("quictun-server", "--version"),
        ("quictun-client", "--help"),
    ] {
        let mut command = command(quictun_testbed::binaries::path(program)?);
        home.settle(&mut command);
        let said = run(command.arg(line))?;
        ensure!(said.contains(program), "{said}");
    }
    Ok(())
}

fn path(path: &Path) -> Result<&str> {
    path.to_str().context("the path is not valid UTF-8")
}
