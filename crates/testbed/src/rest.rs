//! A minimal HTTP client for querying HTTP interfaces.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

const TIMEOUT: Duration = Duration::from_secs(5);

/// A response of an HTTP server.
#[derive(Clone, Debug)]
pub struct HttpResponse {
    /// The HTTP status code.
    pub status: u16,
    /// The status line and the header lines.
    pub head: String,
    /// The body of the response.
    pub body: String,
}

impl HttpResponse {
    /// Returns the body as JSON.
    ///
    /// # Errors
    ///
    /// Fails if the status is not 200 or the body is not JSON.
    pub fn json(&self) -> Result<serde_json::Value> {
        ensure!(self.status == 200, "{}: {}", self.status, self.body);
        serde_json::from_str(&self.body).with_context(|| format!("{} is not JSON", self.body))
    }
}

/// Sends a `GET` request.
///
/// # Errors
///
/// Fails if the server cannot be reached or its response is not HTTP.
pub fn get(server: SocketAddr, path: &str) -> Result<HttpResponse> {
    request(server, "GET", path)
}

/// Sends a request with any method.
///
/// # Errors
///
/// Fails if the server cannot be reached or its response is not HTTP.
pub fn request(server: SocketAddr, method: &str, path: &str) -> Result<HttpResponse> {
    let mut stream = TcpStream::connect_timeout(&server, TIMEOUT)
        .with_context(|| format!("connecting to the HTTP interface at {server}"))?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    // HTTP/1.0: the response arrives without chunks and ends with the connection.
    write!(stream, "{method} {path} HTTP/1.0\r\nHost: {server}\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let (head, body) = text
        .split_once("\r\n\r\n")
        .with_context(|| format!("{text:?} is not an HTTP response"))?;
    let status = head
        .split(' ')
        .nth(1)
        .with_context(|| format!("{head:?} has no status"))?;
    Ok(HttpResponse {
        status: status.parse()?,
        head: head.to_owned(),
        body: body.to_owned(),
    })
}
