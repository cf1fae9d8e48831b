//! `quictun invite` and `quictun join`: a code makes a machine a client, once.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use quictun_testbed::application::{Application, through_echo};
use quictun_testbed::binaries;
use quictun_testbed::isolation::isolated;
use quictun_testbed::machine::{self, Machine};
use quictun_testbed::payload::Payload;
use quictun_testbed::program::{Program, command, output, run};
use quictun_testbed::tunnel::{Client, Home, START, listen_address};
use quictun_wire::invitation::Code;
use rustix::process::Signal;

const SOON: Duration = Duration::from_secs(20);
const SOME: Payload = Payload {
    seed: 512,
    bytes: 1 << 18,
};

/// `quictun server` on a free port, which does not know any client yet.
struct Server {
    program: Program,
    address: String,
    home: Home,
}

impl Server {
    fn start() -> Result<Self> {
        let home = Home::new()?;
        let mut command = home.command(&Machine::here(), "quictun")?;
        command.args(["server", "--listen", "127.0.0.1:0", "--http", "off"]);
        let mut program = Program::start("server", &mut command)?;
        let line = program.wait_for("Server endpoint start up successful", START)?;
        let address = listen_address(&line)?;
        Ok(Self {
            program,
            address,
            home,
        })
    }

    /// Runs `quictun invite` on the server's machine.
    fn invite(&self, arguments: &[&str]) -> Result<String> {
        let mut command = self.home.command(&Machine::here(), "quictun")?;
        run(command.arg("invite").args(arguments))
    }

    fn code(&self, name: &str, target: &str) -> Result<Code> {
        let text = self.invite(&[name, "--allow", target, "--address", &self.address])?;
        let code = text.parse();
        code.with_context(|| format!("standard output is not a code: {text:?}"))
    }

    fn file_of(&self, name: &str) -> PathBuf {
        let clients = self.home.path().join("state/clients");
        clients.join(format!("{name}.toml"))
    }

    fn refuses(&mut self, code: &Code, why: &str) -> Result<()> {
        let home = Home::new()?;
        let output = join(&home, &code.to_string())?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.code() == Some(1), "{why}: {output:?}");
        ensure!(said.contains("refuses this code"), "{why}: {said}");
        ensure!(
            said.lines().count() == 2,
            "expected one error and its remedy: {said}"
        );
        let written = home.path().join("here/client.toml");
        ensure!(!written.exists(), "{why}: a configuration was written");
        self.program.wait_for(why, SOON).map(drop)
    }
}

/// Runs `quictun join` in this home with `text` as its input.
fn join(home: &Home, text: &str) -> Result<Output> {
    let file = home.path().join("code");
    fs::write(&file, text)?;
    let mut command = home.command(&Machine::here(), "quictun")?;
    command.args(["join", "--out", "here"]);
    command.stdin(Stdio::from(fs::File::open(file)?));
    Ok(command.output()?)
}

fn joined(home: &Home, code: &Code) -> Result<()> {
    let output = join(home, &code.to_string())?;
    ensure!(output.status.success(), "{output:?}");
    Ok(())
}

/// Starts the client with the configuration that was written, but with another port, because its port may be in use.
fn client(home: Home, target: &str) -> Result<Client> {
    let mut command = home.command(&Machine::here(), "quictun")?;
    command.args(["client", "-c", "here/client.toml", "--http", "off"]);
    command.args(["-L", &format!("127.0.0.1:0={target}")]);
    Client::from_command(home, &mut command)
}

fn bare(application: &Application) -> String {
    let target = application.target();
    target.trim_start_matches("tcp:").to_owned()
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| path.display().to_string())
}

// PROTOCOL INVITE-2, JOIN-4, PROOF-4.
#[test]
fn an_invited_machine_reaches_its_targets_before_and_after_a_reload() -> Result<()> {
    let application = Application::echo()?;
    let target = bare(&application);
    let mut server = Server::start()?;
    let code = server.code("laptop", &target)?;
    ensure!(
        server
            .invite(&["--list"])?
            .starts_with("laptop  invited until ")
    );
    let home = Home::new()?;
    joined(&home, &code)?;
    let file = read(&home.path().join("here/client.toml"))?;
    ensure!(file.contains(&format!("target = \"{target}\"")), "{file}");
    let client = client(home, &target)?;
    through_echo(&client.forward, SOME)?;
    server.program.signal(Signal::HUP)?;
    server.program.wait_for("configuration reloaded", SOON)?;
    through_echo(&client.forward, SOME).context("a flow after a reload")?;
    let line = server
        .program
        .wait_for("a client has joined by its invitation", SOON)?;
    ensure!(line.contains("\"client\": \"laptop\""), "{line}");
    let list = server.invite(&["--list", "--json"])?;
    ensure!(list.contains("\"state\": \"joined\""), "{list}");
    // Neither the code nor its secret may be in a log.
    let text = code.to_string();
    let lines = [server.program.lines(), client.program.lines()].concat();
    let secret = &text[text.len() - 100..][..20];
    ensure!(!lines.iter().any(|line| line.contains(secret)));
    // The reload must end the connection of the revoked client.
    server.invite(&["laptop", "--revoke"])?;
    server.program.signal(Signal::HUP)?;
    server.program.wait_for("client endpoint revoked", SOON)?;
    Ok(())
}

#[test]
fn a_client_that_joins_has_the_limits_of_its_invitation_before_a_reload_and_after_one() -> Result<()>
{
    let application = Application::echo()?;
    let target = bare(&application);
    let mut server = Server::start()?;
    let allow = ["laptop", "--allow", &target, "--max-flows", "1"];
    let text = server.invite(&[&allow[..], &["--address", &server.address]].concat())?;
    let list = server.invite(&["--list"])?;
    ensure!(list.ends_with("; max_flows 1\n"), "invited: {list}");
    let home = Home::new()?;
    joined(&home, &text.parse()?)?;
    let list = server.invite(&["--list"])?;
    ensure!(list.ends_with("; max_flows 1\n"), "joined: {list}");
    let client = client(home, &target)?;
    let mut only = client.forward.connect()?;
    let mut is_limited = || -> Result<()> {
        only.write_all(b"?")?;
        only.read_exact(&mut [0])?;
        let ending = client.forward.ending()?;
        ensure!(ending.is_reset(), "a second flow: {ending:?}");
        Ok(())
    };
    is_limited().context("before a reload")?;
    server.program.signal(Signal::HUP)?;
    server.program.wait_for("configuration reloaded", SOON)?;
    is_limited().context("after a reload")
}

// PROTOCOL JOIN-3.
#[test]
fn a_used_late_wrong_or_revoked_code_is_refused_with_a_reason_in_the_log() -> Result<()> {
    let mut server = Server::start()?;
    let used = server.code("used", "127.0.0.1:22")?;
    joined(&Home::new()?, &used)?;
    server.refuses(&used, "the invitation has been used already")?;
    let late = server.code("late", "127.0.0.1:22")?;
    let file = server.file_of("late");
    let text = read(&file)?;
    // Set an expiry in the past.
    let (before, until) = text.split_once(", until ").context("an expiry")?;
    let (_, rest) = until.split_once('\n').context("more lines")?;
    fs::write(&file, format!("{before}, until 1000000000\n{rest}"))?;
    server.refuses(&late, "the invitation has expired")?;
    let wrong = server.code("wrong", "127.0.0.1:22")?;
    let latest = server.code("wrong", "127.0.0.1:22")?;
    server.refuses(&wrong, "the code is not that of the invitation")?;
    joined(&Home::new()?, &latest).context("a wrong code must not invalidate the right one")?;
    let revoked = server.code("revoked", "127.0.0.1:22")?;
    server.invite(&["revoked", "--revoke"])?;
    server.refuses(&revoked, "no invitation has this name")?;
    let malformed = join(&Home::new()?, &revoked.to_string()[..90])?;
    ensure!(malformed.status.code() == Some(2), "{malformed:?}");
    Ok(())
}

// PROTOCOL JOIN-5: a client that did not receive the answer may join again with its key.
#[test]
fn a_client_that_did_not_hear_the_answer_joins_again_with_its_key() -> Result<()> {
    let server = Server::start()?;
    let code = server.code("laptop", "127.0.0.1:22")?;
    let home = Home::new()?;
    joined(&home, &code)?;
    let stored = read(&server.file_of("laptop"))?;
    let configuration = home.path().join("here/client.toml");
    let first = read(&configuration)?;
    let again = join(&home, &code.to_string())?;
    let said = String::from_utf8_lossy(&again.stderr);
    ensure!(said.contains("there is a configuration already"), "{said}");
    fs::remove_file(&configuration)?;
    joined(&home, &code)?;
    ensure!(read(&configuration)? == first && read(&server.file_of("laptop"))? == stored);
    Ok(())
}

// PROTOCOL JOIN-5.
#[test]
fn a_client_that_was_revoked_and_invited_again_joins_before_a_reload() -> Result<()> {
    let mut server = Server::start()?;
    let home = Home::new()?;
    let configuration = home.path().join("here/client.toml");
    joined(&home, &server.code("laptop", "127.0.0.1:22")?)?;
    server.invite(&["laptop", "--revoke"])?;
    let code = server.code("laptop", "127.0.0.1:80")?;
    fs::remove_file(&configuration)?;
    joined(&home, &code)?;
    let stored = read(&server.file_of("laptop"))?;
    ensure!(
        stored.contains("key = "),
        "the invitation must have been replaced by a key: {stored}"
    );
    let file = read(&configuration)?;
    ensure!(file.contains("127.0.0.1:80"), "not the new rules: {file}");
    server.program.signal(Signal::HUP)?;
    let line = server.program.wait_for("configuration reloaded", SOON)?;
    ensure!(line.contains("\"changes\": 0"), "changed again: {line}");
    Ok(())
}

// PROTOCOL JOIN-1: a server with another key learns nothing of the code.
#[test]
fn a_server_with_another_key_learns_nothing_of_the_code() -> Result<()> {
    let (server, other) = (Server::start()?, Server::start()?);
    let code = server.code("laptop", "127.0.0.1:22")?;
    let astray = Code::new("laptop", &other.address, code.pin(), *code.secret())?;
    let output = join(&Home::new()?, &astray.to_string())?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code() == Some(1), "{output:?}");
    ensure!(
        said.contains("has another key than the one that this code names")
            && said.contains("ask for a new code"),
        "{said}"
    );
    let attempts = other.program.count("an attempt to join was refused");
    ensure!(attempts == 0, "it received {attempts} attempts");
    joined(&Home::new()?, &code)
}

#[test]
fn joining_at_a_port_on_which_nothing_listens_fails_with_that_reason() -> Result<()> {
    isolated(|| {
        let free = UdpSocket::bind("127.0.0.1:0")?.local_addr()?.to_string();
        let code = Code::new("laptop", &free, [7; 32], [9; 16])?;
        let output = join(&Home::new()?, &code.to_string())?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.code() == Some(1), "{output:?}");
        let why = format!(
            "cannot connect to {free}: the host refuses datagrams, because nothing listens on that UDP port"
        );
        ensure!(said.contains(&why), "{said}");
        ensure!(said.contains("the code is still valid"), "{said}");
        Ok(())
    })
}

#[test]
fn joining_without_a_route_to_the_server_fails_at_once_with_that_reason() -> Result<()> {
    isolated(|| {
        let code = Code::new("laptop", "192.0.2.1:7500", [7; 32], [9; 16])?;
        let output = join(&Home::new()?, &code.to_string())?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.code() == Some(1), "{output:?}");
        let why = "cannot connect to 192.0.2.1:7500: this machine cannot send to 192.0.2.1: Network is unreachable";
        ensure!(said.contains(why), "{said}");
        ensure!(said.contains("`ip route get 192.0.2.1`"), "{said}");
        Ok(())
    })
}

#[test]
fn access_that_has_expired_before_a_client_joins_is_named() -> Result<()> {
    let server = Server::start()?;
    let invite = |name: &str, expires: &str| -> Result<Output> {
        let mut command = server.home.command(&Machine::here(), "quictun")?;
        command.args(["invite", name, "--allow", "127.0.0.1:22"]);
        command.args(["--address", &server.address, "--expires", expires]);
        Ok(command.output()?)
    };
    let past = invite("past", "2001-02-03")?;
    let said = String::from_utf8_lossy(&past.stderr);
    ensure!(
        past.status.code() == Some(2)
            && said.contains("--expires: 2001-02-04T00:00:00Z has passed already"),
        "{past:?}"
    );
    ensure!(!server.file_of("past").exists(), "an invitation was made");
    let invited = invite("laptop", "9000-01-01")?;
    let code: Code = String::from_utf8(invited.stdout)?.parse()?;
    let file = server.file_of("laptop");
    fs::write(&file, read(&file)?.replace("9000-01-02", "2001-02-03"))?;
    let output = join(&Home::new()?, &code.to_string())?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code() == Some(1), "{output:?}");
    ensure!(
        said.contains("has expired") && said.contains("a later --expires"),
        "{said}"
    );
    Ok(())
}

// SECURITY-MODEL, "server: grants rules with characters that hide or reorder text".
#[test]
fn hidden_characters_in_rules_are_escaped_for_the_person_who_joins() -> Result<()> {
    let server = Server::start()?;
    let rule = "unix:/run/\u{202e}kcos";
    let home = Home::new()?;
    let output = join(&home, &server.code("laptop", rule)?.to_string())?;
    ensure!(output.status.success(), "{output:?}");
    let texts = [
        String::from_utf8(output.stdout)?,
        String::from_utf8(output.stderr)?,
        read(&home.path().join("here/client.toml"))?,
    ];
    ensure!(texts.iter().all(|text| text.is_ascii()), "{texts:?}");
    ensure!(texts[0].contains("\\u{202e}kcos") && texts[2].contains("\\u{202e}kcos"));
    Ok(())
}

// PROTOCOL JOIN-4.
#[test]
fn a_full_disk_of_the_server_is_named_and_the_code_stays_valid() -> Result<()> {
    isolated(|| {
        let mut server = Server::start()?;
        let code = server.code("laptop", "127.0.0.1:22")?;
        // The disk becomes read-only: what is written, and by whom, then does not matter.
        let state = server.home.path().join("state");
        let at = state.display();
        machine::run(&format!("mount --bind {at} {at}"))?;
        machine::run(&format!("mount -o remount,bind,ro {at}"))?;
        let home = Home::new()?;
        let output = join(&home, &code.to_string())?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.code() == Some(1), "{output:?}");
        ensure!(
            said.contains("cannot store the key") && said.contains("still valid"),
            "{said}"
        );
        server.program.wait_for("Read-only file system", SOON)?;
        machine::run(&format!("umount {at}"))?;
        joined(&home, &code)
    })
}

#[test]
fn a_code_as_an_argument_is_not_repeated() -> Result<()> {
    let home = Home::new()?;
    let code = Code::new("laptop", "192.0.2.1:7500", [7; 32], [9; 16])?.to_string();
    let mut command = home.command(&Machine::here(), "quictun")?;
    let output = command.args(["join", &code]).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code() == Some(2), "{output:?}");
    ensure!(
        said.contains("the code: is not an argument")
            && said.contains("`quictun join`")
            && !said.contains(&code[60..]),
        "{said}"
    );
    Ok(())
}

/// Runs a command on a machine that has a server as a service as well, whose key is in `/var/lib/quictun`.
const BESIDE_A_SERVICE: &str = "mount -t tmpfs none /var/lib || exit
mkdir /var/lib/quictun && : >/var/lib/quictun/server.key && exec \"$@\"";

#[test]
fn a_code_for_the_users_server_is_not_taken_for_one_of_the_service() -> Result<()> {
    isolated(|| {
        let server = Server::start()?;
        let mut command = command("unshare");
        server.home.settle(&mut command);
        command.args(["--mount", "sh", "-c", BESIDE_A_SERVICE, "sh"]);
        command.arg(binaries::path("quictun")?);
        command.args(["invite", "laptop", "--allow", "127.0.0.1:22"]);
        command.args(["--address", &server.address]);
        let beside = output(&mut command)?;
        let said = String::from_utf8_lossy(&beside.stderr);
        ensure!(
            beside.status.success() && said.contains("give --state-dir /var/lib/quictun"),
            "{beside:?}"
        );
        command.args(["--state-dir", "state"]);
        let named = output(&mut command)?;
        let said = String::from_utf8_lossy(&named.stderr);
        ensure!(
            named.status.success() && !said.contains("/var/lib/quictun"),
            "{named:?}"
        );
        Ok(())
    })
}
