//! Clients identified by certificate or key: the right ones are served, and each of the others learns the reason, once.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use quictun_testbed::application::{Application, served_within, through_echo};
use quictun_testbed::machine::Machine;
use quictun_testbed::payload::Payload;
use quictun_testbed::program::{Program, run};
use quictun_testbed::tunnel::{Client, Home, START, Server, listen_address, server_pin};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

const SOON: Duration = Duration::from_secs(10);
const SOME: Payload = Payload {
    seed: 101,
    bytes: 1 << 20,
};
const REFUSES: &str = "the server refuses this client";

/// A certificate authority, with its certificate in a file of `home`.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub(crate) file: String,
}

impl Authority {
    pub(crate) fn new(home: &Home, name: &str) -> Result<Self> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let file = home.path().join(format!("{name}.crt"));
        std::fs::write(&file, params.self_signed(&key)?.pem())?;
        Ok(Self {
            issuer: Issuer::new(params, key),
            file: text(file)?,
        })
    }

    /// Issues a certificate for `name`. Returns its file and that of its key, both named `stem`.
    pub(crate) fn issue(&self, home: &Home, stem: &str, name: &str) -> Result<[String; 2]> {
        self.issue_of(home, stem, &CertificateParams::new(vec![name.to_owned()])?)
    }

    fn issue_of(&self, home: &Home, stem: &str, params: &CertificateParams) -> Result<[String; 2]> {
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        let files = ["crt", "key"].map(|end| home.path().join(format!("{stem}.{end}")));
        std::fs::write(&files[0], certificate.pem())?;
        std::fs::write(&files[1], key.serialize_pem())?;
        let [certificate, key] = files;
        Ok([text(certificate)?, text(key)?])
    }
}

fn text(path: PathBuf) -> Result<String> {
    let path = path.into_os_string().into_string();
    path.ok().context("a path that is no text")
}

/// Checks that a client is refused, that one line names the cause however often it dials, and that its flow is reset.
fn is_refused(mut client: Client, cause: &str) -> Result<()> {
    let said = client.program.wait_for(REFUSES, SOON)?;
    ensure!(said.contains(cause), "{said}");
    let ending = client.forward.ending()?;
    ensure!(
        ending.is_reset(),
        "a refused client's flow ended as {ending:?}"
    );
    // The flow waited for another attempt, which was refused as well.
    let lines = client.program.count(REFUSES);
    ensure!(lines == 1, "said {lines} times");
    ensure!(
        client.program.ended()?.is_none(),
        "it must continue to dial"
    );
    Ok(())
}

#[test]
fn quictun_server_accepts_only_clients_of_its_authority() -> Result<()> {
    for flag in ["--verify-client", "--verify-remote-endpoint"] {
        let home = Home::new()?;
        let (ours, other) = (
            Authority::new(&home, "ours")?,
            Authority::new(&home, "other")?,
        );
        let [certificate, key] = ours.issue(&home, "server", "127.0.0.1")?;
        let server = Server::start(&[
            flag,
            "--ca-file",
            &ours.file,
            "--cert-file",
            &certificate,
            "--key-file",
            &key,
        ])?;
        let application = Application::echo()?;
        let target = application.target();
        let start = |identity: &[String]| {
            let mut arguments = vec!["--token-source", target.as_str()];
            arguments.extend(["--verify-remote-endpoint", "--ca-file", &ours.file]);
            if let [certificate, key] = identity {
                arguments.extend(["--cert-file", certificate, "--key-file", key]);
            }
            Client::start(&server.address.to_string(), &arguments)
        };
        let right = start(&ours.issue(&home, "right", "laptop.example")?)?;
        through_echo(&right.forward, SOME)?;
        let wrong = start(&other.issue(&home, "wrong", "laptop.example")?)?;
        is_refused(wrong, "no authority that the server trusts")?;
        is_refused(start(&[])?, "--cert-file and --key-file")?;
        through_echo(&right.forward, SOME).context("after the others were refused")?;
    }
    Ok(())
}

/// A `quictun server` with this file.
struct ServerWithFile {
    address: String,
    pin: String,
    _program: Program,
}

impl ServerWithFile {
    fn start(home: &Home, file: &str) -> Result<Self> {
        let path = home.path().join("server.toml");
        std::fs::write(&path, file)?;
        let mut command = home.command(&Machine::here(), "quictun")?;
        command
            .args(["server", "--listen", "127.0.0.1:0", "--http", "off", "-c"])
            .arg(&path);
        let mut program = Program::start("server", &mut command)?;
        let line = program.wait_for("Server endpoint start up successful", START)?;
        Ok(Self {
            address: listen_address(&line)?,
            pin: server_pin(&line)?,
            _program: program,
        })
    }

    fn client(&self, target: &str, identity: &[String]) -> Result<Client> {
        let home = Home::new()?;
        let mut command = home.command(&Machine::here(), "quictun")?;
        let forward = format!("127.0.0.1:0={}", target.trim_start_matches("tcp:"));
        command.args(["client", "--server", &self.address, "--pin", &self.pin]);
        command.args(["--http", "off", "-L", &forward]);
        if let [certificate, key] = identity {
            command.args(["--cert", certificate, "--key", key]);
        }
        Client::from_command(home, &mut command)
    }
}

/// Runs `quictun keygen`. Returns the pin, and the files of the certificate and the key.
fn keygen(home: &Home, name: &str) -> Result<(String, [String; 2])> {
    let mut command = home.command(&Machine::here(), "quictun")?;
    let printed = run(command.args(["keygen", "--out", name]))?;
    let [key, certificate, pin] = &printed.lines().collect::<Vec<_>>()[..] else {
        anyhow::bail!("keygen printed {printed:?}");
    };
    let path = |name: &str| text(home.path().join(name));
    Ok(((*pin).to_owned(), [path(certificate)?, path(key)?]))
}

#[test]
fn quictun_server_knows_a_client_by_its_pinned_key() -> Result<()> {
    let home = Home::new()?;
    let (pin, right) = keygen(&home, "right")?;
    let (_, wrong) = keygen(&home, "wrong")?;
    let application = Application::echo()?;
    let target = application.target();
    let allow = target.trim_start_matches("tcp:");
    let server = ServerWithFile::start(
        &home,
        &format!("[[client]]\nname = 'right'\nkey = '{pin}'\nallow = ['{allow}']\n"),
    )?;
    let right = server.client(&target, &right)?;
    through_echo(&right.forward, SOME)?;
    is_refused(server.client(&target, &wrong)?, "[[client]]")?;
    is_refused(server.client(&target, &[])?, "[[client]]")?;
    through_echo(&right.forward, SOME).context("after the others were refused")
}

#[test]
fn quictun_server_knows_a_client_by_the_name_in_its_certificate() -> Result<()> {
    let home = Home::new()?;
    let (ours, other) = (
        Authority::new(&home, "ours")?,
        Authority::new(&home, "other")?,
    );
    let application = Application::echo()?;
    let target = application.target();
    let allow = target.trim_start_matches("tcp:");
    let table = "[[client]]\nname = 'laptop.example'\ncertificate = true\n";
    let server = ServerWithFile::start(
        &home,
        &format!("ca = '{}'\n{table}allow = ['{allow}']\n", ours.file),
    )?;
    let right = server.client(&target, &ours.issue(&home, "right", "laptop.example")?)?;
    through_echo(&right.forward, SOME)?;
    let forged = other.issue(&home, "forged", "laptop.example")?;
    is_refused(
        server.client(&target, &forged)?,
        "no authority that the server trusts",
    )?;
    let stranger = ours.issue(&home, "stranger", "stranger.example")?;
    is_refused(server.client(&target, &stranger)?, "[[client]]")?;
    is_refused(server.client(&target, &[])?, "[[client]]")?;
    through_echo(&right.forward, SOME).context("after the others were refused")
}

#[test]
fn a_client_that_was_refused_is_served_once_the_server_knows_it() -> Result<()> {
    let home = Home::new()?;
    let (pin, identity) = keygen(&home, "late")?;
    let (other, _) = keygen(&home, "other")?;
    let application = Application::echo()?;
    let target = application.target();
    let allow = target.trim_start_matches("tcp:");
    let table = |pin: &str| format!("[[client]]\nname = 'x'\nkey = '{pin}'\nallow = ['{allow}']\n");
    let server = ServerWithFile::start(&home, &table(&other))?;
    let mut client = server.client(&target, &identity)?;
    client.program.wait_for(REFUSES, SOON)?;
    let address = server.address.clone();
    drop(server);
    let again = format!("listen = '{address}'\n{}", table(&pin));
    let mut command = home.command(&Machine::here(), "quictun")?;
    std::fs::write(home.path().join("server.toml"), again)?;
    command.args(["server", "-c", "server.toml", "--http", "off"]);
    let mut server = Program::start("server", &mut command)?;
    server.wait_for("Server endpoint start up successful", START)?;
    // The first flow may meet a connection that the new server does not know.
    served_within(&client.forward, SOME, SOON)?;
    client.program.wait_for("no longer refuses", SOON).map(drop)
}

#[test]
fn an_expired_certificate_of_the_server_leads_to_the_clock() -> Result<()> {
    let home = Home::new()?;
    let authority = Authority::new(&home, "authority")?;
    let mut params = CertificateParams::new(vec!["vpn.example".to_owned()])?;
    params.not_after = rcgen::date_time_ymd(2001, 2, 3);
    let [cert, key] = authority.issue_of(&home, "expired", &params)?;
    let server = ServerWithFile::start(
        &home,
        &format!("[identity]\ncert = '{cert}'\nkey = '{key}'\n"),
    )?;
    let (_, port) = server.address.rsplit_once(':').context("a port")?;
    let own = Home::new()?;
    let mut command = own.command(&Machine::here(), "quictun")?;
    command.args(["client", "--server", &format!("vpn.example:{port}")]);
    command.args(["--server-address", "127.0.0.1", "--ca", &authority.file]);
    command.args(["--http", "off", "-L", "127.0.0.1:0=192.0.2.1:22"]);
    let mut client = Client::from_command(own, &mut command)?;
    let line = client.program.wait_for("cannot connect", SOON)?;
    ensure!(
        line.contains("has expired: it was valid until 2001-02-03T00:00:00Z")
            && line.contains("is this machine's clock right"),
        "{line}"
    );
    Ok(())
}
