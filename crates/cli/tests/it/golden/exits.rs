//! Exit codes, and the start of the error line that goes with each.

use std::fmt::Write as _;
use std::net::{TcpListener, UdpSocket};
use std::process::{Command, Stdio};

use super::golden;
use super::live::SilentAddress;
use crate::programs::{CLIENT, QUICTUN, SERVER};

/// Returns programs with their arguments. The ports `udp` and `tcp_taken` are in use; on `silent` nothing listens.
fn command_lines(udp: &str, tcp_taken: &str, silent: &str) -> Vec<(&'static str, String)> {
    let minimal =
        "client --server h:1 --pin sha256:47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU -L 0=h:1";
    let compat = "--server-endpoint h:1 --token-source tcp:h:1";
    vec![
        ("quictun", String::new()),
        ("quictun", "version".to_owned()),
        ("quictun", "server --help".to_owned()),
        ("quictun", "serve".to_owned()),
        ("quictun", "server --lisen x".to_owned()),
        ("quictun", "server --listen nowhere".to_owned()),
        ("quictun", "server --workers 0".to_owned()),
        ("quictun", "server --drain soon".to_owned()),
        ("quictun", "server --allow nonsense".to_owned()),
        ("quictun", format!("server --listen {udp}")),
        (
            "quictun",
            format!("server --listen 127.0.0.1:0 --http {tcp_taken}"),
        ),
        ("quictun", "server --listen 192.0.2.1:1".to_owned()),
        ("quictun", "server --config missing.toml".to_owned()),
        ("quictun", "server --config bad.toml".to_owned()),
        ("quictun", "server --config unknown.toml".to_owned()),
        ("quictun", "server --cert missing --key missing".to_owned()),
        ("quictun", "client".to_owned()),
        ("quictun", "client --server h:1 -L 1=h:1".to_owned()),
        ("quictun", format!("{minimal} --psk-file missing")),
        ("quictun", format!("{minimal} --psk-file short")),
        (
            "quictun",
            format!("{minimal} -L {tcp_taken}=h:1 --http off"),
        ),
        ("quictun", "config check --server good.toml".to_owned()),
        ("quictun", "config check --server missing.toml".to_owned()),
        ("quictun", "config check --server unknown.toml".to_owned()),
        ("quictun", "config print".to_owned()),
        ("quictun", "keygen".to_owned()),
        ("quictun", "keygen --out good.toml".to_owned()),
        ("quictun", format!("status --http {silent}")),
        ("quictun", "status --http unix:/nonexistent".to_owned()),
        ("quictun", "lab run no-such-scenario".to_owned()),
        ("quictun", "lab run missing.toml".to_owned()),
        ("quictun", "lab report missing".to_owned()),
        ("quictun", "link run missing.toml".to_owned()),
        ("quictun", "perf client".to_owned()),
        ("quictun", format!("perf client --connect {silent}")),
        ("quictun", "bench ipc --repeats 0".to_owned()),
        ("quictun", "completion tcsh".to_owned()),
        ("quictun", "run".to_owned()),
        ("quictun", "run --server h:1 true".to_owned()),
        (
            "quictun",
            "connect --server h:1 --ca system udp:h:1".to_owned(),
        ),
        ("quictun", "invite --list --state-dir missing".to_owned()),
        ("quictun-server", "version".to_owned()),
        ("quictun-server", "--help".to_owned()),
        ("quictun-server", "--colour".to_owned()),
        ("quictun-server", "--server-endpoint h:1".to_owned()),
        ("quictun-server", "-c missing.yaml".to_owned()),
        (
            "quictun-server",
            "--verify-client --ca-file missing".to_owned(),
        ),
        ("quictun-server", format!("--listen-on {udp}")),
        ("quictun-client", "help".to_owned()),
        ("quictun-client", String::new()),
        (
            "quictun-client",
            format!("{compat} --token-source-plugin Magic"),
        ),
        ("quictun-client", format!("{compat} --offer neither")),
        (
            "quictun-client",
            format!("{compat} --listen-on tcp:{tcp_taken}"),
        ),
    ]
}

#[test]
fn golden_exits() {
    let dir = tempfile::tempdir().expect("a directory");
    let udp = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let tcp = TcpListener::bind("127.0.0.1:0").expect("a port");
    let (udp, tcp_taken) = (udp.local_addr(), tcp.local_addr());
    let (udp, tcp_taken) = (
        udp.expect("an address").to_string(),
        tcp_taken.expect("an address").to_string(),
    );
    let silent = SilentAddress::new();
    let silent = &silent.address;
    std::fs::write(dir.path().join("bad.toml"), "listen = [\n").expect("a file");
    std::fs::write(dir.path().join("unknown.toml"), "colour = 'red'\n").expect("a file");
    std::fs::write(dir.path().join("short"), "x").expect("a file");
    std::fs::write(dir.path().join("good.toml"), "listen = '[::]:1'\n").expect("a file");
    let mut text = String::new();
    for (program, line) in command_lines(&udp, &tcp_taken, silent) {
        let path = match program {
            "quictun" => QUICTUN,
            "quictun-client" => CLIENT,
            _ => SERVER,
        };
        let output = Command::new(path)
            .args(line.split_whitespace())
            .current_dir(dir.path())
            .env_clear()
            .env("HOME", "/nonexistent")
            .env("QUICTUN_LOG_OUTPUT", "stdout")
            .env("STATE_DIRECTORY", dir.path().join("state"))
            .stdin(Stdio::null())
            .output()
            .expect("the program starts");
        let said = String::from_utf8_lossy(&output.stderr);
        // The file holds the program and the subject of the first line. The explanation after them may change.
        let first = said.lines().next().unwrap_or_default();
        let named: Vec<_> = first.split(": ").collect();
        let first = named[..named.len().min(2)].join(": ");
        let code = output
            .status
            .code()
            .map_or("a signal".to_owned(), |code| code.to_string());
        let mut shown = format!("{program} {line}\n  ends with {code}\n  {first}\n");
        for (place, name) in [(&udp, "TAKEN"), (&tcp_taken, "TAKEN"), (silent, "SILENT")] {
            shown = shown.replace(place.as_str(), name);
        }
        write!(
            text,
            "{}",
            shown.replace(&*dir.path().to_string_lossy(), "DIR")
        )
        .expect("a text");
    }
    golden("exits", &text);
}
