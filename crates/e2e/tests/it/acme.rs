//! Certificates for programs without quictun: from Pebble, the test authority of Let's Encrypt, and from files.

mod fake_authority;
mod pebble;
mod programs;

use std::fs;
use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use quictun_testbed::application::{Application, through_echo};
use quictun_testbed::deadline;
use quictun_testbed::isolation::isolated;
use quictun_testbed::machine::Machine;
use quictun_testbed::payload::Payload;
use quictun_testbed::program::Program;
use quictun_testbed::transfer::{EndlessSource, Transfer};
use quictun_testbed::tunnel::{Client, Home, START, server_pin};
use quictun_trust::settings::{ClientIdentity, Offer, ServerTrust};
use quictun_trust::tls::{self, SharedConfig};
use quictun_wire::alpn;
use rcgen::{CertificateParams, KeyPair, date_time_ymd};
use rustix::process::Signal;
use rustls::ClientConnection;
use serde_json::Value;

use fake_authority::FakeAuthority;
use pebble::Pebble;

/// The address of the server, whose port Pebble takes for port 443.
const SERVER: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 7443);

/// The address for checks by HTTP, whose port Pebble takes for port 80.
const HTTP: &str = "127.0.0.1:7480";

/// Time in which a certificate is issued or renewed, on a busy machine. Pebble refuses some requests on purpose, and then
/// the server asks again after 10 s.
const SOON: Duration = Duration::from_mins(1);

const NAME: &str = "web.example.org";

/// A server with its home, and the flags of its clients.
struct Served {
    program: Program,
    client: Vec<String>,
    home: Home,
}

impl Served {
    /// Starts a server that trusts the authorities in `roots`.
    fn start(home: Home, roots: Option<&PathBuf>, flags: &[&str]) -> Result<Self> {
        let mut command = home.command(&Machine::here(), "quictun")?;
        command.args([
            "server",
            "--listen",
            &SERVER.to_string(),
            "--allow",
            "*",
            "--https-proxy",
        ]);
        command.args(["--http", &http(&home)]).args(flags);
        if let Some(roots) = roots {
            command.env("SSL_CERT_FILE", roots);
        }
        let mut program = Program::start("server", &mut command)?;
        let pin = server_pin(&program.wait_for("Server endpoint start up successful", START)?)?;
        let secret = home.path().join("state/client.psk").display().to_string();
        let client = ["--pin", &pin, "--psk-file", &secret, "--http", "off"];
        Ok(Self {
            program,
            client: client.map(str::to_owned).to_vec(),
            home,
        })
    }

    /// Starts a server that asks this authority for a certificate.
    fn with_authority(
        home: Home,
        directory: &str,
        roots: &PathBuf,
        flags: &[&str],
    ) -> Result<Self> {
        let acme = [
            "--acme",
            NAME,
            "--acme-accept-terms",
            "--acme-directory",
            directory,
        ];
        Self::start(home, Some(roots), &[&acme, flags].concat())
    }

    /// Starts a client with a forward to `target`.
    fn client(&self, target: &str) -> Result<Client> {
        let home = Home::new()?;
        let mut command = home.command(&Machine::here(), "quictun")?;
        command.args([
            "client",
            "--server",
            &SERVER.to_string(),
            "--carrier",
            "tls",
        ]);
        command.args(&self.client);
        command.args(["-L", &format!("127.0.0.1:0={target}")]);
        Client::from_command(home, &mut command)
    }

    fn status(&self) -> Result<String> {
        let mut command = self.home.command(&Machine::here(), "quictun")?;
        command.args(["status", "--http", &http(&self.home)]);
        quictun_testbed::program::run(&mut command)
    }

    /// Ends the server, and returns its home for the next one.
    fn end(mut self) -> Result<Home> {
        self.program.signal(Signal::TERM)?;
        self.program.wait_end(SOON)?;
        Ok(self.home)
    }
}

/// Returns the server's interface for `quictun status`.
fn http(home: &Home) -> String {
    format!("unix:{}", home.path().join("http.sock").display())
}

/// Returns the certificate that a client with this protocol sees.
fn seen(protocol: &[u8]) -> Result<Vec<u8>> {
    let (trust, identity) = (ServerTrust::Insecure, ClientIdentity::default());
    let config = tls::client_config(&trust, &identity, Offer::Native, &SharedConfig::default())?;
    let mut config = (*config).clone();
    config.alpn_protocols = vec![protocol.to_vec()];
    let mut client = ClientConnection::new(Arc::new(config), NAME.try_into()?)?;
    let mut stream = TcpStream::connect(SERVER)?;
    stream.set_read_timeout(Some(SOON))?;
    while client.is_handshaking() {
        client.complete_io(&mut stream)?;
    }
    let chain = client.peer_certificates().context("no certificate")?;
    Ok(chain.first().context("an empty chain")?.to_vec())
}

fn is_of_pebble(certificate: &[u8]) -> bool {
    let issuer = b"Pebble Intermediate";
    certificate
        .windows(issuer.len())
        .any(|window| window == issuer)
}

/// Waits until HTTPS clients see another certificate of Pebble than this one. No handshake fails meanwhile, and none shows
/// the pinned certificate again.
fn next_certificate(last: Option<&[u8]>) -> Result<Vec<u8>> {
    deadline::wait("another certificate", SOON, || {
        let now = seen(alpn::HTTP_1)?;
        ensure!(
            last.is_none() || is_of_pebble(&now),
            "the pinned one is back"
        );
        Ok((is_of_pebble(&now) && Some(now.as_slice()) != last).then_some(now))
    })
}

fn state(home: &Home) -> Result<Value> {
    let path = home.path().join("state/acme.json");
    let mode = fs::metadata(&path)?.permissions().mode();
    ensure!(mode & 0o777 == 0o600, "mode {mode:o}");
    Ok(serde_json::from_slice(&fs::read(path)?)?)
}

#[test]
fn a_certificate_is_issued_and_renewed_during_a_download_and_kept_with_its_account() -> Result<()> {
    isolated(|| {
        let home = Home::new()?;
        let pebble = Pebble::start(home.path(), Duration::from_secs(12))?;
        let server = Served::with_authority(home, pebble::DIRECTORY, &pebble.roots, &[])?;
        let source = EndlessSource::new()?;
        let client = server.client(&source.application.target())?;
        let download = Transfer::start(&client.forward)?;
        let first = next_certificate(None)?;
        let pinned = seen(alpn::MUX)?;
        ensure!(
            !is_of_pebble(&pinned),
            "the pin is that of the server's own key"
        );
        download.advance(1, SOON)?;
        let second = next_certificate(Some(&first))?;
        next_certificate(Some(&second))?;
        ensure!(seen(alpn::MUX)? == pinned, "the pin has not changed");
        download.advance(1, SOON)?;
        download.finish(&source)?;
        let status = server.status()?;
        ensure!(
            status.contains(&format!("certificate for {NAME}: expires in")),
            "{status}"
        );
        drop(client);
        let account = state(&server.home)?["account"].clone();
        ensure!(account["key_pkcs8"].is_string(), "{account}");

        // The certificate is there at once after a restart, and the account is the same.
        let home = server.end()?;
        let server = Served::with_authority(home, pebble::DIRECTORY, &pebble.roots, &[])?;
        let kept = seen(alpn::HTTP_1)?;
        ensure!(
            is_of_pebble(&kept) && kept != first,
            "the latest certificate"
        );
        next_certificate(Some(&kept))?;
        ensure!(
            state(&server.home)?["account"] == account,
            "another account"
        );
        ensure!(pebble.accounts() == 1, "{} accounts", pebble.accounts());
        Ok(())
    })
}

#[test]
fn an_authority_that_is_down_at_the_start_is_asked_again_and_may_have_lost_its_data() -> Result<()>
{
    isolated(|| {
        let (home, authority) = (Home::new()?, tempfile::tempdir()?);
        let prepared = Pebble::prepare(authority.path(), Duration::from_hours(24))?;
        let mut server = Served::with_authority(home, pebble::DIRECTORY, &prepared.roots, &[])?;
        let line = server
            .program
            .wait_for("no new certificate from the authority", SOON)?;
        for words in [
            "cannot be reached",
            "check --acme-directory",
            "next_attempt_in_s",
        ] {
            ensure!(line.contains(words), "{line}");
        }
        let status = server.status()?;
        ensure!(
            status.contains("NONE YET") && status.contains("no new certificate:"),
            "{status}"
        );
        let echo = Application::echo()?;
        let client = server.client(&echo.target())?;
        through_echo(&client.forward, Payload::new(3, 100_000))?;

        let pebble = prepared.run()?;
        server.program.signal(Signal::HUP)?;
        let issued = "see a new certificate from the authority";
        server.program.wait_for(issued, SOON)?;
        ensure!(is_of_pebble(&seen(alpn::HTTP_1)?), "the new certificate");
        let before = state(&server.home)?;
        drop(pebble);

        // Another Pebble knows neither the account nor the certificate. The name is new, so that one is ordered.
        let home = server.end()?;
        let pebble = Pebble::prepare(authority.path(), Duration::from_hours(24))?.run()?;
        let flags = ["--acme", "www.example.org"];
        let mut server = Served::with_authority(home, pebble::DIRECTORY, &pebble.roots, &flags)?;
        let line = server
            .program
            .wait_for("see a new certificate from the authority", SOON)?;
        ensure!(line.contains("www.example.org"), "{line}");
        let after = state(&server.home)?;
        let key = |state: &Value| state["account"]["key_pkcs8"].clone();
        ensure!(key(&before) == key(&after), "the account's key stays");
        ensure!(
            before["certificate"] != after["certificate"],
            "another certificate"
        );
        Ok(())
    })
}

#[test]
fn the_authority_checks_by_http_where_asked() -> Result<()> {
    isolated(|| {
        let home = Home::new()?;
        let pebble = Pebble::start(home.path(), Duration::from_hours(24))?;
        let flags = ["--acme-http", HTTP, "--listen-tls", "127.0.0.1:7444"];
        let mut server = Served::with_authority(home, pebble::DIRECTORY, &pebble.roots, &flags)?;
        server
            .program
            .wait_for("see a new certificate from the authority", SOON)?;
        Ok(())
    })
}

#[test]
fn a_failed_check_and_each_refusal_say_what_to_do_and_when() -> Result<()> {
    isolated(|| {
        let home = Home::new()?;
        let pebble = Pebble::start(home.path(), Duration::from_hours(24))?;
        // Pebble finds nothing at the port that it takes for 443.
        let flags = ["--listen-tls", "127.0.0.1:7444"];
        let mut server = Served::with_authority(home, pebble::DIRECTORY, &pebble.roots, &flags)?;
        let line = server
            .program
            .wait_for("could not check web.example.org", SOON)?;
        ensure!(
            line.contains("TCP port 443") && line.contains("--listen-tls"),
            "{line}"
        );
        drop((server, pebble));
        for (mode, words) in [
            ("limit", "only waiting helps"),
            ("busy", "503 Service Unavailable"),
            ("page", "not as RFC 8555"),
            ("other", "not as an ACME server"),
        ] {
            let home = Home::new()?;
            let authority = FakeAuthority::start(home.path(), mode)?;
            let flags = ["--acme-contact", "ops@example.org"];
            let mut server =
                Served::with_authority(home, &authority.directory, &authority.roots, &flags)?;
            let line = server
                .program
                .wait_for("no new certificate from the authority", SOON)?;
            ensure!(line.contains(words), "{mode}: {line}");
            let asked = ["limit", "busy"].contains(&mode);
            ensure!(
                line.contains("\"next_attempt_in_s\": 71") == asked,
                "{mode}: {line}"
            );
            ensure!(
                !is_of_pebble(&seen(alpn::HTTP_1)?),
                "the server's own certificate"
            );
        }
        Ok(())
    })
}

#[test]
fn an_authority_that_says_nothing_is_given_up_and_flows_pass_meanwhile() -> Result<()> {
    isolated(|| {
        let home = Home::new()?;
        let authority = FakeAuthority::start(home.path(), "silent")?;
        let mut server = Served::with_authority(home, &authority.directory, &authority.roots, &[])?;
        let echo = Application::echo()?;
        let client = server.client(&echo.target())?;
        through_echo(&client.forward, Payload::new(4, 100_000))?;
        let failed = "no new certificate from the authority";
        ensure!(
            !server.program.has_printed(failed),
            "it was given up at once"
        );
        let line = server.program.wait_for(failed, SOON)?;
        let expected = "no answer from localhost within 30 s";
        ensure!(line.contains(expected), "{line}");
        through_echo(&client.forward, Payload::new(5, 100_000))
    })
}

/// Writes a self-signed pair for `name` up to the beginning of this year.
fn write_pair(home: &Home, name: &str, last_year: i32) -> Result<()> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new([name.to_owned()])?;
    params.not_after = date_time_ymd(last_year, 1, 1);
    fs::write(home.path().join("web.crt"), params.self_signed(&key)?.pem())?;
    let mut file = fs::File::create(home.path().join("web.key"))?;
    file.set_permissions(fs::Permissions::from_mode(0o600))?;
    Ok(file.write_all(key.serialize_pem().as_bytes())?)
}

#[test]
fn files_are_read_again_and_a_bad_pair_keeps_the_old_one_in_service() -> Result<()> {
    isolated(|| {
        let home = Home::new()?;
        write_pair(&home, "first.example.org", 2100)?;
        let flags = ["--https-cert", "web.crt", "--https-key", "web.key"];
        let mut server = Served::start(home, None, &flags)?;
        let (first, pinned) = (seen(alpn::HTTP_1)?, seen(alpn::MUX)?);
        ensure!(first != pinned, "HTTPS clients see the files' certificate");

        write_pair(&server.home, "second.example.org", 2100)?;
        server.program.signal(Signal::HUP)?;
        let line = server
            .program
            .wait_for("programs without quictun see a new certificate", SOON)?;
        ensure!(line.contains("second.example.org"), "{line}");
        let second = seen(alpn::HTTP_1)?;
        ensure!(second != first, "the new certificate");

        write_pair(&server.home, "late.example.org", 2020)?;
        server.program.signal(Signal::HUP)?;
        let line = server
            .program
            .wait_for("the old one stays in service", SOON)?;
        ensure!(line.contains("expired on 2020-01-01"), "{line}");
        let other = KeyPair::generate()?.serialize_pem();
        fs::write(server.home.path().join("web.key"), other)?;
        server.program.signal(Signal::HUP)?;
        let fits = "does not belong to the certificate";
        server.program.wait_for(fits, SOON)?;
        fs::write(server.home.path().join("web.key"), "")?;
        server.program.signal(Signal::HUP)?;
        server.program.wait_for("contains no private key", SOON)?;
        ensure!(seen(alpn::HTTP_1)? == second, "the old certificate");
        let status = server.status()?;
        ensure!(status.contains("no new certificate:"), "{status}");
        ensure!(seen(alpn::MUX)? == pinned, "the pin has not changed");
        Ok(())
    })
}
