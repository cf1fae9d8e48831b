//! `quictun server --reload` of another build than the one that runs: it takes over, or ends with an exit code that says why
//! not, and the running server goes on.

use std::fs::{self, File, Permissions};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use quictun_testbed::binaries;
use quictun_testbed::isolation::isolated;
use quictun_testbed::machine::Machine;
use quictun_testbed::program::{output, run};
use quictun_testbed::tunnel::Home;

use crate::hand_over::{FREE, Heartbeat, SOON, TAKEN, UpgradedTunnel};

/// Returns the program of another build, which differs by the commit that it names.
pub(crate) fn other_build() -> Result<Vec<u8>> {
    let program = binaries::path("quictun")?;
    let version = run(Command::new(&program).arg("--version"))?;
    let commit = version.split(['(', ' ']).nth(3).context("a commit")?;
    let is_commit = commit.len() >= 7 && commit.bytes().all(|byte| byte.is_ascii_hexdigit());
    ensure!(is_commit, "no commit: {version}");
    let mut other = Command::new("sed");
    other.env("LC_ALL", "C");
    other.arg(format!("s/{commit} of /{} of /g", "0".repeat(commit.len())));
    Ok(output(other.arg(program))?.stdout)
}

/// A configuration that cannot be reloaded, the exit code, and what the command or the next process says.
type Refused<'a> = (&'a [&'a str], i32, &'a str);

/// Two clients with one secret: only the next process reads the files.
const SAME_SECRET: &str = r#"
    [[client]]
    name = "a"
    psk_file = "state/client.psk"
    allow = ["127.0.0.1:*"]
    [[client]]
    name = "b"
    psk_file = "state/client.psk"
    allow = ["127.0.0.1:*"]
"#;

/// Runs a reload to its end. Returns its exit code, and what it and the next process have written.
fn reload(home: &Home, more: &[&str]) -> Result<(Option<i32>, String)> {
    let log = home.path().join("reload.log");
    let written = File::create(&log)?;
    let mut command = Machine::here().command(home.path().join("other"));
    home.settle(&mut command);
    command.args(["server", "--reload"]).args(more);
    command.stdout(written.try_clone()?).stderr(written);
    let status = command.stdin(Stdio::null()).status()?;
    Ok((status.code(), fs::read_to_string(log)?))
}

#[test]
fn a_reload_that_another_build_refuses_says_why_and_the_running_server_goes_on() -> Result<()> {
    isolated(|| {
        let mut tunnel = UpgradedTunnel::new("2")?;
        let mut heart = Heartbeat::new(&tunnel.client.forwards(2)?[1])?;
        let mut beat = || heart.beat_until(Instant::now() + Duration::from_millis(50));
        beat()?;
        let home = &tunnel.home;
        let build = home.path().join("other");
        fs::write(&build, other_build()?)?;
        fs::set_permissions(&build, Permissions::from_mode(0o755))?;
        fs::write(home.path().join("same.toml"), SAME_SECRET)?;
        let busy = TcpListener::bind(FREE)?;
        let busy = busy.local_addr()?.to_string();
        let open = |http, listen| ["--http", http, "--listen", listen, "--allow", "127.0.0.1:*"];
        let refused: [Refused<'_>; 5] = [
            (&["--workers", "none"], 2, "--workers"),
            (
                &["-c", "same.toml", "--listen", FREE],
                2,
                "have the same secret",
            ),
            (
                &open(&busy, FREE),
                1,
                "its log says why; the running one goes on",
            ),
            (
                &open("off", "127.0.0.1:9"),
                3,
                "and this configuration says 127.0.0.1:9",
            ),
            (
                &[&open("off", FREE)[..], &["--state-dir", "empty"]].concat(),
                3,
                "no server answers at empty/handover.sock",
            ),
        ];
        for (more, code, why) in refused {
            let (ended, said) = reload(home, more)?;
            ensure!(ended == Some(code), "{more:?}: {ended:?} {said}");
            ensure!(said.contains(why), "{more:?}: {said}");
            ensure!(!said.contains(TAKEN), "{more:?}: {said}");
            beat()?;
        }
        let ended = tunnel.server.ended()?;
        ensure!(ended.is_none(), "{ended:?}");
        let (ended, said) = reload(home, &open("off", FREE))?;
        ensure!(ended == Some(0), "{ended:?} {said}");
        ensure!(said.contains("continues the flows of quictun"), "{said}");
        ensure!(tunnel.server.wait_end(SOON)?.success());
        beat()
    })
}
