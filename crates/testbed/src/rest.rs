//! The least that is needed to ask an HTTP interface.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

const PATIENCE: Duration = Duration::from_secs(5);

/// An answer.
#[derive(Clone, Debug)]
pub struct Answer {
    /// HTTP status code.
    pub status: u16,
    /// Header lines.
    pub head: String,
    /// Body.
    pub body: String,
}

impl Answer {
    /// The body as JSON.
    ///
    /// # Errors
    ///
    /// Where it is none, or the status is not 200.
    pub fn json(&self) -> Result<serde_json::Value> {
        ensure!(self.status == 200, "{}: {}", self.status, self.body);
        serde_json::from_str(&self.body).with_context(|| format!("{} is no JSON", self.body))
    }
}

/// Asks with `GET`.
///
/// # Errors
///
/// Where nobody answers, or with something else than HTTP.
pub fn get(server: SocketAddr, path: &str) -> Result<Answer> {
    request(server, "GET", path)
}

/// Asks with any method.
///
/// # Errors
///
/// Where nobody answers, or with something else than HTTP.
pub fn request(server: SocketAddr, method: &str, path: &str) -> Result<Answer> {
    let mut stream = TcpStream::connect_timeout(&server, PATIENCE)
        .with_context(|| format!("HTTP on {server}"))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    // 1.0: the answer comes in one piece and ends with the connection.
    write!(stream, "{method} {path} HTTP/1.0\r\nHost: {server}\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let (head, body) = text
        .split_once("\r\n\r\n")
        .with_context(|| format!("{text:?} is no HTTP"))?;
    let status = head
        .split(' ')
        .nth(1)
        .with_context(|| format!("{head:?} has no status"))?;
    Ok(Answer {
        status: status.parse()?,
        head: head.to_owned(),
        body: body.to_owned(),
    })
}
