//! Asking the HTTP interface of a running server or client.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use anyhow::anyhow;
use quictun_control::settings::HttpListen;
use serde::de::DeserializeOwned;

/// Longer than the interface takes at its slowest: a rate is measured over a second.
const PATIENCE: Duration = Duration::from_secs(5);

/// Largest answer read, bytes: a hundred thousand flows.
const ANSWER_MAX: u64 = 64 << 20;

/// Why there is no answer. Each message says what to do.
#[derive(Debug)]
pub(crate) enum AskError {
    /// No process listens at the address, as far as it is one.
    Nobody(anyhow::Error),
    /// One does, but not to us or not of this version.
    Other(anyhow::Error),
}

impl From<AskError> for anyhow::Error {
    fn from(error: AskError) -> Self {
        let (AskError::Nobody(error) | AskError::Other(error)) = error;
        error
    }
}

impl AskError {
    /// Says the same in a few words, for a page that has had answers before.
    pub(crate) fn brief(&self, at: &HttpListen) -> String {
        match self {
            Self::Nobody(error) => format!("nothing answers at {at}: {}", error.root_cause()),
            Self::Other(error) => format!("{error:#}"),
        }
    }
}

/// Asks for a resource that is JSON.
pub(crate) fn get<T: DeserializeOwned>(at: &HttpListen, path: &'static str) -> Result<T, AskError> {
    request(at, "GET", path)
}

/// Has the process do something; its answer is JSON.
pub(crate) fn post<T: DeserializeOwned>(
    at: &HttpListen,
    path: &'static str,
) -> Result<T, AskError> {
    request(at, "POST", path)
}

fn request<T: DeserializeOwned>(
    at: &HttpListen,
    method: &'static str,
    path: &'static str,
) -> Result<T, AskError> {
    let answer = exchange(at, method, path)?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.lines().next().and_then(|line| line.split_once(' '));
    let status = status.map_or("", |(_, status)| status);
    let other = || {
        let status: String = plain(status).chars().take(60).collect();
        AskError::Other(anyhow!(
            "{at} is no HTTP interface of quictun, or of an older version: {path} answers {status}"
        ))
    };
    if status.starts_with("200") {
        return serde_json::from_str(body).map_err(|_| other());
    }
    let refusal: serde_json::Value = serde_json::from_str(body).map_err(|_| other())?;
    let why = refusal.get("error").and_then(serde_json::Value::as_str);
    Err(why.map_or_else(other, |why| {
        AskError::Other(anyhow!("{at} refuses {path}: {}", plain(why)))
    }))
}

fn exchange(at: &HttpListen, method: &'static str, path: &'static str) -> Result<String, AskError> {
    let nobody = |error: io::Error| {
        AskError::Nobody(anyhow::Error::from(error).context(format!(
            "nothing answers at {at}: no server or client runs with this HTTP interface, or it has another address (--http, control.http)"
        )))
    };
    let patience = Some(PATIENCE);
    let answer = match at {
        HttpListen::Tcp(address) if address.port() == 0 => {
            return Err(AskError::Nobody(anyhow!(
                "{at} has port 0, which the system chooses anew: give the address in the log line \"HTTP interface\" with --http"
            )));
        }
        HttpListen::Tcp(address) => {
            let stream =
                TcpStream::connect_timeout(&reached(*address), PATIENCE).map_err(nobody)?;
            stream
                .set_read_timeout(patience)
                .and_then(|()| stream.set_write_timeout(patience))
                .and_then(|()| talk(stream, &address.to_string(), method, path))
        }
        HttpListen::Unix { path: socket, .. } => {
            let stream = UnixStream::connect(socket).map_err(|error| match error.kind() {
                io::ErrorKind::PermissionDenied => AskError::Other(anyhow::Error::from(error).context(format!(
                    "{} may not be opened by this user: ask its owner, or set control.http_mode",
                    socket.display()
                ))),
                _ => nobody(error),
            })?;
            stream
                .set_read_timeout(patience)
                .and_then(|()| stream.set_write_timeout(patience))
                .and_then(|()| talk(stream, "localhost", method, path))
        }
    };
    answer.map_err(|error| {
        AskError::Other(told(error).context(format!("asking {at} for {path} failed")))
    })
}

/// A limit of time that has passed, in words: the system calls it a resource that is unavailable.
fn told(error: io::Error) -> anyhow::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
            anyhow!("no answer within {} s", PATIENCE.as_secs())
        }
        _ => error.into(),
    }
}

/// An interface that listens on all addresses answers on loopback, too.
fn reached(at: SocketAddr) -> SocketAddr {
    let ip = match at.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, at.port())
}

/// One request of HTTP/1.0: the answer comes in one piece and ends with the connection.
fn talk(mut stream: impl Read + Write, host: &str, method: &str, path: &str) -> io::Result<String> {
    // The header that requests need which change something.
    let ours = if method == "GET" {
        ""
    } else {
        "Quictun-Request: 1\r\nContent-Length: 0\r\n"
    };
    let request = format!("{method} {path} HTTP/1.0\r\nHost: {host}\r\n{ours}\r\n");
    stream.write_all(request.as_bytes())?;
    let mut text = Vec::new();
    let length = stream.take(ANSWER_MAX + 1).read_to_end(&mut text)?;
    if length as u64 > ANSWER_MAX {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "the answer is larger than 64 MiB",
        ));
    }
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// A text that others have chosen, without what would act on a terminal.
pub(crate) fn plain(text: &str) -> String {
    let acts = |c: char| {
        c.is_control()
            || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    text.chars()
        .map(|c| if acts(c) { '?' } else { c })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_told_in_words_and_briefly_to_who_has_had_answers() {
        let at = HttpListen::Tcp("127.0.0.1:8086".parse().expect("an address"));
        let late = AskError::Other(told(io::ErrorKind::WouldBlock.into()).context("asking failed"));
        assert_eq!(late.brief(&at), "asking failed: no answer within 5 s");
        let refused = anyhow::Error::from(io::Error::from(io::ErrorKind::ConnectionRefused));
        let nobody = AskError::Nobody(refused.context("a long sentence with advice"));
        let brief = "nothing answers at 127.0.0.1:8086: connection refused";
        assert_eq!(nobody.brief(&at), brief);
    }
}
