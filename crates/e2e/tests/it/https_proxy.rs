//! `quictun server --https-proxy` as used by curl and by a TLS client without quictun.

pub(crate) mod git;
mod http2;

use std::io::{ErrorKind, Read, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD as STANDARD;
use quictun_testbed::application::{Application, RefusingAddress};
use quictun_testbed::connection::Connection;
use quictun_testbed::deadline;
use quictun_testbed::isolation::with_programs;
use quictun_testbed::machine::Machine;
use quictun_testbed::program::{Program, command, installed};
use quictun_testbed::tunnel::{Home, START, listen_address};
use rustix::process::Signal;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::greedy::keygen;
use crate::proxy::{curl, read_head, serve_http};

const SOON: Duration = Duration::from_secs(10);

/// curl's exit code for an answer to CONNECT other than 200.
const CONNECT_REFUSED: i32 = 56;

/// The client to which `--allow` applies.
const USER: &str = "default";

/// A server that is an HTTPS proxy, or is not.
struct HttpsProxyServer {
    server: Program,
    address: String,
    home: Home,
}

impl HttpsProxyServer {
    fn new(flags: &[&str], allowed: &[&str]) -> Result<Self> {
        Self::at("127.0.0.1:0", Home::new()?, flags, allowed)
    }

    fn at(listen: &str, home: Home, flags: &[&str], allowed: &[&str]) -> Result<Self> {
        let mut command = home.command(&Machine::here(), "quictun")?;
        command.args(["server", "--listen", listen, "--http", "off"]);
        command.args(flags);
        for rule in allowed {
            command.args(["--allow", rule.trim_start_matches("tcp:")]);
        }
        let mut server = Program::start("server", &mut command)?;
        let line = server.wait_for("Server endpoint start up successful", START)?;
        Ok(Self {
            server,
            address: listen_address(&line)?,
            home,
        })
    }

    fn secret(&self) -> Result<String> {
        let file = self.home.path().join("state/client.psk");
        Ok(std::fs::read_to_string(file)?.trim().to_owned())
    }

    fn url(&self, user: &str, secret: &str) -> String {
        format!("https://{user}:{secret}@{}", self.address)
    }

    /// Connects by TLS, as the server's certificate names it.
    fn connect(&self) -> Result<Tls> {
        self.connect_with(b"http/1.1")
    }

    /// Connects by TLS, and offers this protocol.
    fn connect_with(&self, protocol: &[u8]) -> Result<Tls> {
        let socket = TcpStream::connect(&self.address)?;
        socket.set_read_timeout(Some(SOON))?;
        let config = config(&self.home.path().join("state/server.crt"), protocol)?;
        let client = ClientConnection::new(Arc::new(config), "server".try_into()?)?;
        Ok(StreamOwned::new(client, socket))
    }

    /// Connects to a target through the proxy.
    fn tunnel(&self, target: &str) -> Result<Tls> {
        let mut tls = self.connect()?;
        let login = STANDARD.encode(format!("{USER}:{}", self.secret()?));
        let target = bare(target);
        write!(
            tls,
            "CONNECT {target} HTTP/1.1\r\nHost: elsewhere\r\nProxy-Authorization: Basic {login}\r\n\r\n"
        )?;
        let head = read_head(&mut tls)?;
        ensure!(head.starts_with("HTTP/1.1 200 "), "{head}");
        Ok(tls)
    }
}

type Tls = StreamOwned<ClientConnection, TcpStream>;

fn config(certificate: &Path, protocol: &[u8]) -> Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(certificate)?)?;
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    let mut config = ClientConfig::builder_with_provider(provider.into())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![protocol.to_vec()];
    Ok(config)
}

fn bare(target: &str) -> &str {
    target.trim_start_matches("tcp:")
}

/// Runs curl through the proxy. Returns its exit code, output and errors, and the time that it took.
fn fetch(proxy: &str, url: &str) -> Result<(i32, String, String, Duration)> {
    let begun = Instant::now();
    let arguments = ["--proxy-insecure", "--proxytunnel", "--proxy", proxy, url];
    let (code, said, why) = curl(&arguments)?;
    Ok((code, said, why, begun.elapsed()))
}

fn is_refused(found: &(i32, String, String, Duration), status: &str) -> Result<()> {
    let (code, said, why, _) = found;
    ensure!(
        *code == CONNECT_REFUSED && why.contains(status),
        "{status}: {code} {said} {why}"
    );
    Ok(())
}

#[test]
fn curl_reaches_what_the_rules_of_its_login_allow_and_nothing_else() -> Result<()> {
    with_programs(|| {
        let web = Application::tcp(serve_http)?;
        let (closed, other) = (RefusingAddress::new()?, Application::echo()?);
        let named = format!("localhost:{}", web.endpoint().port()?);
        let allowed = [&*web.target(), &closed.target(), &named];
        let mut site = HttpsProxyServer::new(&["--https-proxy"], &allowed)?;
        let proxy = site.url(USER, &site.secret()?);
        for target in [&*named, bare(&web.target())] {
            let (code, said, why, _) = fetch(&proxy, &format!("http://{target}/"))?;
            ensure!(
                code == 0 && said == "GET / HTTP/1.1",
                "{target}: {code} {said} {why}"
            );
        }
        let url = format!("http://{}/", bare(&closed.target()));
        is_refused(&fetch(&proxy, &url)?, "502")?;
        let url = format!("http://{}/", bare(&other.target()));
        is_refused(&fetch(&proxy, &url)?, "403")?;
        site.server.wait_for("flow refused", SOON)?;
        ensure!(
            other.outcome(Duration::ZERO).is_err(),
            "a target that is not allowed was reached"
        );
        // A request for a document, as for another kind of proxy.
        let document = format!("http://{named}/");
        let plain = ["--proxy-insecure", "--proxy", &proxy, &document];
        let answered = ["--output", "/dev/null", "--write-out", "%{http_code}"];
        let (_, status, why) = curl(&[&answered[..], &plain].concat())?;
        ensure!(status == "405", "{status} {why}");
        Ok(())
    })
}

/// Prints its port first.
const WEB: &str = "
import functools, http.server, ssl, sys
directory, certificate, key = sys.argv[1:]
handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=directory)
server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), handler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(certificate, key)
server.socket = context.wrap_socket(server.socket, server_side=True)
print('port', server.server_port, flush=True)
server.serve_forever()
";

/// A web server in Python, which prints a line for each request.
pub(crate) struct Web {
    pub(crate) program: Program,
    pub(crate) port: u16,
}

/// Serves the files of a directory by HTTPS.
pub(crate) fn web(directory: &Path, certificate: &Path, key: &Path) -> Result<Web> {
    let mut python = command(installed("python3", "python3")?);
    python.args(["-c", WEB]).args([directory, certificate, key]);
    let mut program = Program::start("web", &mut python)?;
    let port = program.wait_for("port ", SOON)?;
    let port = port.trim_start_matches("port ").parse()?;
    Ok(Web { program, port })
}

#[test]
fn a_program_uses_the_address_that_its_invitation_prints_until_it_is_revoked() -> Result<()> {
    let target = Application::tcp(serve_http)?;
    let proxy = HttpsProxyServer::new(&["--https-proxy"], &["127.0.0.1:9"])?;
    let invite = |arguments: &[&str]| -> Result<String> {
        let mut command = proxy.home.command(&Machine::here(), "quictun")?;
        command.args(["invite", "browser"]).args(arguments);
        let output = command.output()?;
        ensure!(output.status.success(), "{output:?}");
        Ok(String::from_utf8(output.stdout)?)
    };
    let reload = || proxy.server.signal(Signal::HUP);
    let rule = bare(&target.target()).to_owned();
    let made = invite(&["--proxy", "--allow", &rule, "--address", &proxy.address])?;
    let url = made.trim();
    ensure!(url.starts_with("https://browser:"), "{url}");
    let script = std::fs::read_to_string(proxy.home.path().join("browser.pac"))?;
    ensure!(script.contains("127.0.0.1"), "{script}");
    let wanted = format!("http://{rule}/");
    let found = || fetch(url, &wanted);
    reload()?;
    deadline::until("the reload", SOON, || {
        found().is_ok_and(|(code, ..)| code == 0)
    })?;
    invite(&["--revoke"])?;
    reload()?;
    deadline::until("the revocation", SOON, || {
        found().is_ok_and(|it| is_refused(&it, "407").is_ok())
    })
}

#[test]
fn a_wrong_login_is_answered_late_and_delays_the_next_one_of_its_source() -> Result<()> {
    with_programs(|| {
        let web = Application::tcp(serve_http)?;
        let mut site = HttpsProxyServer::new(&["--https-proxy"], &[&web.target()])?;
        let (url, secret) = (format!("http://{}/", bare(&web.target())), site.secret()?);
        // A browser asks without a login at first. That is no guess.
        let asked = fetch(&format!("https://{}", site.address), &url)?;
        is_refused(&asked, "407")?;
        let mut least = Duration::from_secs(1);
        for (user, secret) in [(USER, "a wrong secret"), ("another", &secret)] {
            let secret = secret.replace(' ', "%20");
            let found = fetch(&site.url(user, &secret), &url)?;
            is_refused(&found, "407")?;
            ensure!(found.3 >= least, "{user} was answered after {:?}", found.3);
            least *= 2;
        }
        site.server.wait_for("is wrong", SOON)?;
        ensure!(!site.server.has_printed("a wrong secret"));
        ensure!(
            web.outcome(Duration::ZERO).is_err(),
            "the target was reached without a login"
        );
        let (code, said, why, _) = fetch(&site.url(USER, &secret), &url)?;
        ensure!(code == 0 && said == "GET / HTTP/1.1", "{code} {said} {why}");
        Ok(())
    })
}

#[test]
fn a_right_login_waits_while_a_wrong_one_of_its_source_is_held() -> Result<()> {
    with_programs(|| {
        let web = Application::tcp(serve_http)?;
        let site = HttpsProxyServer::new(&["--https-proxy"], &[&web.target()])?;
        let mut wrong = site.connect()?;
        let login = STANDARD.encode("default:wrong");
        let target = web.target();
        let target = bare(&target);
        write!(
            wrong,
            "CONNECT {target} HTTP/1.1\r\nProxy-Authorization: Basic {login}\r\n\r\n"
        )?;
        let begun = Instant::now();
        wrong.flush()?;
        let mut site = site;
        site.server.wait_for("is wrong", SOON)?;
        let (code, said, why, _) = fetch(
            &site.url(USER, &site.secret()?),
            &format!("http://{target}/"),
        )?;
        ensure!(code == 0 && said == "GET / HTTP/1.1", "{code} {said} {why}");
        let passed = begun.elapsed();
        ensure!(passed >= Duration::from_millis(900), "after {passed:?}");
        Ok(())
    })
}

#[test]
fn without_the_flag_no_program_is_served_and_without_clients_there_is_no_proxy() -> Result<()> {
    with_programs(|| {
        let web = Application::tcp(serve_http)?;
        let site = HttpsProxyServer::new(&[], &[&web.target()])?;
        let url = format!("http://{}/", bare(&web.target()));
        let (code, said, why, _) = fetch(&site.url(USER, &site.secret()?), &url)?;
        ensure!(code != 0 && said.is_empty(), "{code} {said} {why}");
        ensure!(site.tunnel(&web.target()).is_err());
        ensure!(
            web.outcome(Duration::ZERO).is_err(),
            "the target was reached"
        );
        let home = Home::new()?;
        let mut command = home.command(&Machine::here(), "quictun")?;
        let flags = ["server", "--https-proxy", "--listen", "127.0.0.1:0"];
        let output = command.args(flags).output()?;
        let text = String::from_utf8(output.stderr)?;
        ensure!(
            !output.status.success() && text.contains("no client is named"),
            "{text}"
        );
        Ok(())
    })
}

#[test]
fn a_program_with_a_known_certificate_needs_no_login() -> Result<()> {
    with_programs(|| {
        let web = Application::tcp(serve_http)?;
        let home = Home::new()?;
        let (pin, known) = keygen(&home, "known")?;
        let (_, unknown) = keygen(&home, "unknown")?;
        let target = web.target();
        let rules = format!(
            "name = \"laptop\"\nkey = \"{pin}\"\nallow = [\"{}\"]",
            bare(&target)
        );
        let file = home.path().join("server.toml");
        std::fs::write(&file, format!("https_proxy = true\n[[client]]\n{rules}\n"))?;
        let file = file.display().to_string();
        let server = HttpsProxyServer::at("127.0.0.1:0", home, &["--config", &file], &[])?;
        let proxy = format!("https://{}", server.address);
        let url = format!("http://{}/", bare(&target));
        let fetch = |certificate: &[&str]| {
            let through = ["--proxy-insecure", "--proxytunnel", "--proxy", &proxy, &url];
            curl(&[certificate, &through].concat())
        };
        let shows = |[certificate, key]: &[String; 2]| {
            fetch(&["--proxy-cert", certificate, "--proxy-key", key])
        };
        for (code, said, why) in [fetch(&[])?, shows(&unknown)?] {
            ensure!(code != 0 && said.is_empty(), "{code} {said} {why}");
        }
        ensure!(
            web.outcome(Duration::ZERO).is_err(),
            "the target was reached"
        );
        let (code, said, why) = shows(&known)?;
        ensure!(code == 0 && said == "GET / HTTP/1.1", "{code} {said} {why}");
        Ok(())
    })
}

/// Answers what it has read to its end.
fn echo_at_end(mut connection: Connection) -> Result<()> {
    let mut read = Vec::new();
    connection.read_to_end(&mut read)?;
    connection.write_all(&read)?;
    connection.finish()
}

// PROTOCOL CLOSE-1, CLOSE-2.
#[test]
fn each_direction_ends_by_itself_and_megabytes_pass() -> Result<()> {
    with_programs(|| {
        let echo = Application::tcp(echo_at_end)?;
        let site = HttpsProxyServer::new(&["--https-proxy"], &[&echo.target()])?;
        let mut tls = site.tunnel(&echo.target())?;
        let payload: Vec<u8> = (0..3_000_000_u32).map(|at| (at % 251) as u8).collect();
        tls.write_all(&payload)?;
        tls.conn.send_close_notify();
        tls.flush()?;
        let mut answer = Vec::new();
        // It ends with `close_notify`: rustls reports anything else as an error.
        tls.read_to_end(&mut answer)?;
        ensure!(answer == payload, "{} bytes", answer.len());
        echo.outcome(SOON)
    })
}

#[test]
fn a_program_that_is_silent_keeps_its_flow() -> Result<()> {
    with_programs(|| {
        let echo = Application::echo()?;
        let flags = ["--https-proxy", "--keep-alive", "500ms"];
        let site = HttpsProxyServer::new(&flags, &[&echo.target()])?;
        let mut tls = site.tunnel(&echo.target())?;
        // Longer than a client of quictun may be silent.
        tls.sock.set_read_timeout(Some(Duration::from_secs(5)))?;
        let silence = tls.read(&mut [0]).map_err(|error| error.kind());
        ensure!(silence == Err(ErrorKind::WouldBlock), "{silence:?}");
        ensure!(!site.server.has_printed("does not answer"));
        tls.write_all(b"x")?;
        let mut byte = [0];
        tls.read_exact(&mut byte)?;
        ensure!(byte == *b"x");
        Ok(())
    })
}

/// Sends a part of its answer, and resets the connection.
fn reset_after_a_part(mut connection: Connection) -> Result<()> {
    let mut byte = [0];
    connection.read_exact(&mut byte)?;
    connection.write_all(b"a part")?;
    connection.read_exact(&mut byte)?;
    connection.reset()
}

// PROTOCOL CLOSE-3, CLOSE-4.
#[test]
fn a_reset_of_either_side_is_no_end_for_the_other() -> Result<()> {
    with_programs(|| {
        let cutting = Application::tcp(reset_after_a_part)?;
        let ended = Application::tcp(|mut connection| {
            let ending = connection.ending();
            ensure!(ending.is_reset(), "{ending:?}");
            Ok(())
        })?;
        let site =
            HttpsProxyServer::new(&["--https-proxy"], &[&cutting.target(), &ended.target()])?;
        let mut tls = site.tunnel(&cutting.target())?;
        tls.write_all(b"1")?;
        let mut part = [0; 6];
        tls.read_exact(&mut part)?;
        tls.write_all(b"2")?;
        let cut = tls.read(&mut [0]).map_err(|error| error.kind());
        ensure!(
            cut == Err(ErrorKind::ConnectionReset),
            "the reset became {cut:?}"
        );
        cutting.outcome(SOON)?;
        let tls = site.tunnel(&ended.target())?;
        // The end of TCP without `close_notify`.
        drop(tls);
        ended.outcome(SOON)
    })
}

#[test]
fn a_server_that_dies_resets_its_programs_and_serves_them_again_after_its_restart() -> Result<()> {
    with_programs(|| {
        let (web, echo) = (Application::tcp(serve_http)?, Application::echo()?);
        let (web_target, echo_target) = (web.target(), echo.target());
        let allowed = [&*web_target, &echo_target];
        let mut site = HttpsProxyServer::new(&["--https-proxy"], &allowed)?;
        let mut tls = site.tunnel(&echo.target())?;
        tls.write_all(b"x")?;
        tls.read_exact(&mut [0])?;
        site.server.kill()?;
        let cut = tls.read(&mut [0]).map_err(|error| error.kind());
        ensure!(
            cut == Err(ErrorKind::ConnectionReset),
            "the death became {cut:?}"
        );
        let HttpsProxyServer { address, home, .. } = site;
        let site = HttpsProxyServer::at(&address, home, &["--https-proxy"], &allowed)?;
        let url = format!("http://{}/", bare(&web_target));
        let (code, said, why, _) = fetch(&site.url(USER, &site.secret()?), &url)?;
        ensure!(code == 0 && said == "GET / HTTP/1.1", "{code} {said} {why}");
        Ok(())
    })
}

#[test]
fn malformed_and_long_requests_are_answered_and_closed() -> Result<()> {
    with_programs(|| {
        let echo = Application::echo()?;
        let site = HttpsProxyServer::new(&["--https-proxy"], &[&echo.target()])?;
        let long = format!("CONNECT a:1 HTTP/1.1\r\nx: {}", "y".repeat(9000));
        // What other readers may take for the content of the first request has a right login.
        let target = echo.target();
        let login = STANDARD.encode(format!("{USER}:{}", site.secret()?));
        let hidden = format!(
            "CONNECT {} HTTP/1.1\r\nProxy-Authorization: Basic {login}\r\n",
            bare(&target)
        );
        let by_length = format!("{hidden}Content-Length: 999\r\n\r\n{hidden}\r\n");
        let by_chunks = format!("{hidden}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n{hidden}\r\n");
        let folded = format!("{hidden}X: a\r\n Content-Length: 999\r\n\r\n{hidden}\r\n");
        let in_get = format!("GET http://a/ HTTP/1.1\r\n\r\n{hidden}\r\n");
        for (request, status) in [
            (&*by_length, "400"),
            (&by_chunks, "400"),
            (&folded, "400"),
            (&in_get, "405"),
            (
                "CONNECT a:1 HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello",
                "400",
            ),
            (
                "CONNECT a:1 HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
                "400",
            ),
            ("CONNECT a HTTP/1.1\r\n\r\n", "400"),
            ("GET http://a/ HTTP/1.1\r\n\r\n", "405"),
            ("CONNECT http://a:1/ HTTP/1.1\r\n\r\n", "400"),
            ("CONNECT a:1 HTTP/2.0\r\n\r\n", "505"),
            ("\x05\x01\x00\n", "400"),
            (&long, "431"),
        ] {
            let mut tls = site.connect()?;
            tls.write_all(request.as_bytes())?;
            let mut answer = String::new();
            tls.read_to_string(&mut answer)
                .with_context(|| format!("{request:?}"))?;
            let expected = format!("HTTP/1.1 {status} ");
            ensure!(answer.starts_with(&expected), "{request:?}: {answer}");
            ensure!(!answer.contains("HTTP/1.1 200 "), "{request:?}: {answer}");
        }
        ensure!(
            echo.outcome(Duration::ZERO).is_err(),
            "a hidden request reached the target"
        );
        Ok(())
    })
}
