//! An ACME server that refuses, in ways that Pebble does not have.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Result;
use quictun_trust::identity;
use quictun_trust::settings::CertificateFiles;
use quictun_trust::tls::{self, SharedConfig};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

/// A running server, which ends with the test's process.
pub(super) struct FakeAuthority {
    pub(super) directory: String,
    /// The certificate of the server.
    pub(super) roots: PathBuf,
}

impl FakeAuthority {
    /// Starts a server that refuses in this way.
    pub(super) fn start(directory: &Path, mode: &'static str) -> Result<Self> {
        identity::generate(directory, "localhost")?;
        let files = CertificateFiles {
            cert: directory.join("localhost.crt"),
            key: directory.join("localhost.key"),
        };
        let config = tls::server_config(&identity::load_files(&files)?, &SharedConfig::default())?;
        let mut config = (*config).clone();
        config.alpn_protocols.clear();
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let base = format!("https://localhost:{}", listener.local_addr()?.port());
        let (config, at) = (Arc::new(config), base.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (config, base) = (config.clone(), at.clone());
                std::thread::spawn(move || serve(stream, config, &base, mode).is_ok());
            }
        });
        Ok(Self {
            directory: format!("{base}/directory"),
            roots: files.cert,
        })
    }
}

fn serve(
    stream: std::net::TcpStream,
    config: Arc<ServerConfig>,
    base: &str,
    mode: &str,
) -> Result<()> {
    let mut stream = BufReader::new(StreamOwned::new(ServerConnection::new(config)?, stream));
    loop {
        let (mut first, mut length) = (String::new(), 0);
        if stream.read_line(&mut first)? == 0 {
            return Ok(());
        }
        loop {
            let mut line = String::new();
            stream.read_line(&mut line)?;
            let field = line.trim().to_ascii_lowercase();
            if let Some(value) = field.strip_prefix("content-length:") {
                length = value.trim().parse()?;
            }
            if field.is_empty() {
                break;
            }
        }
        stream.read_exact(&mut vec![0; length])?;
        if mode == "silent" {
            // Until the client gives up.
            return Ok(std::io::copy(&mut stream, &mut std::io::sink()).map(drop)?);
        }
        let path = first.split_whitespace().nth(1).unwrap_or_default();
        let answer = answer(path, base, mode);
        stream.get_mut().write_all(answer.as_bytes())?;
    }
}

fn answer(path: &str, base: &str, mode: &str) -> String {
    const JSON: &str = "application/json";
    const PROBLEM: &str = "application/problem+json";
    let directory = format!(
        r#"{{"newNonce": "{base}/nonce", "newAccount": "{base}/account", "newOrder": "{base}/order"}}"#
    );
    let limit =
        r#"{"type": "urn:ietf:params:acme:error:rateLimited", "detail": "too many certificates"}"#;
    let (status, kind, more, body) = match (path, mode) {
        ("/directory", "busy") => (
            "503 Service Unavailable",
            "text/html",
            "Retry-After: 7200\r\n",
            "busy",
        ),
        ("/directory", "page") => ("200 OK", "text/html", "", "<html>a login page</html>"),
        ("/directory", "other") => ("404 Not Found", "text/html", "", "nothing here"),
        ("/directory", _) => ("200 OK", JSON, "", directory.as_str()),
        ("/nonce", _) => ("200 OK", JSON, "", ""),
        ("/account", _) => (
            "201 Created",
            JSON,
            "Location: https://localhost/account/1\r\n",
            r#"{"status": "valid"}"#,
        ),
        ("/order", "limit") => (
            "429 Too Many Requests",
            PROBLEM,
            "Retry-After: 7200\r\n",
            limit,
        ),
        _ => ("500 Internal Server Error", PROBLEM, "", "{}"),
    };
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nReplay-Nonce: bm9uY2U\r\n{more}\r\n{body}"
    )
}
