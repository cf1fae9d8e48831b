//! Requests to the HTTP interface of a running server or client.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use anyhow::anyhow;
use quictun_control::settings::HttpListen;
use quictun_io::socket_path::check_length;
use serde::de::DeserializeOwned;

/// Time limit for connecting and for each read and write. The slowest answer needs about a second, because a rate is
/// measured over a second.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Largest answer that is read, in bytes: enough for a hundred thousand flows.
const ANSWER_MAX: u64 = 64 << 20;

/// The reason why a request has no usable answer. Each message says what to do.
#[derive(Debug)]
pub(crate) enum RequestError {
    /// No process could be reached at the address.
    Unreachable(anyhow::Error),
    /// A process answers or listens, but it refuses the request, or it is another program or another version.
    Rejected(anyhow::Error),
}

impl From<RequestError> for anyhow::Error {
    fn from(error: RequestError) -> Self {
        let (RequestError::Unreachable(error) | RequestError::Rejected(error)) = error;
        error
    }
}

impl RequestError {
    /// Returns the error in a few words, for a page that has shown answers before.
    pub(crate) fn brief(&self, at: &HttpListen) -> String {
        match self {
            Self::Unreachable(error) => format!("nothing answers at {at}: {}", error.root_cause()),
            Self::Rejected(error) => format!("{error:#}"),
        }
    }
}

/// Sends a GET request and parses the JSON answer.
pub(crate) fn get<T: DeserializeOwned>(
    at: &HttpListen,
    path: &'static str,
) -> Result<T, RequestError> {
    request(at, "GET", path)
}

/// Sends a POST request, which makes the process do something, and parses the JSON answer.
pub(crate) fn post<T: DeserializeOwned>(
    at: &HttpListen,
    path: &'static str,
) -> Result<T, RequestError> {
    request(at, "POST", path)
}

fn request<T: DeserializeOwned>(
    at: &HttpListen,
    method: &'static str,
    path: &'static str,
) -> Result<T, RequestError> {
    let answer = exchange(at, method, path)?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.lines().next().and_then(|line| line.split_once(' '));
    let status = status.map_or("", |(_, status)| status);
    let other = || {
        let status: String = plain(status).chars().take(60).collect();
        RequestError::Rejected(anyhow!(
            "{at} is not an HTTP interface of quictun, or belongs to an older version: {path} answers {status}"
        ))
    };
    if status.starts_with("200") {
        return serde_json::from_str(body).map_err(|_| other());
    }
    let refusal: serde_json::Value = serde_json::from_str(body).map_err(|_| other())?;
    let why = refusal.get("error").and_then(serde_json::Value::as_str);
    Err(why.map_or_else(other, |why| {
        RequestError::Rejected(anyhow!("{at} refuses {path}: {}", plain(why)))
    }))
}

fn exchange(
    at: &HttpListen,
    method: &'static str,
    path: &'static str,
) -> Result<String, RequestError> {
    let nobody = |error: io::Error| {
        RequestError::Unreachable(anyhow::Error::from(error).context(format!(
            "nothing answers at {at}: no server or client runs with this HTTP interface, or it has another address (--http, control.http)"
        )))
    };
    let patience = Some(TIMEOUT);
    let answer = match at {
        HttpListen::Tcp(address) if address.port() == 0 => {
            return Err(RequestError::Unreachable(anyhow!(
                "{at} has port 0, which the system chooses at each start: give the address in the log line \"HTTP interface\" with --http"
            )));
        }
        HttpListen::Tcp(address) => {
            let stream = TcpStream::connect_timeout(&reached(*address), TIMEOUT).map_err(nobody)?;
            stream
                .set_read_timeout(patience)
                .and_then(|()| stream.set_write_timeout(patience))
                .and_then(|()| talk(stream, &address.to_string(), method, path))
        }
        HttpListen::Unix { path: socket, .. } => {
            let length = check_length(socket).map_err(anyhow::Error::from);
            length.map_err(|error| RequestError::Rejected(error.context(at.to_string())))?;
            let stream = UnixStream::connect(socket).map_err(|error| match error.kind() {
                io::ErrorKind::PermissionDenied => RequestError::Rejected(anyhow::Error::from(error).context(format!(
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
        RequestError::Rejected(
            describe_timeout(error).context(format!("asking {at} for {path} failed")),
        )
    })
}

/// Words an expired time limit plainly: the system's own text says that a resource is temporarily unavailable.
fn describe_timeout(error: io::Error) -> anyhow::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
            anyhow!("no answer within {} s", TIMEOUT.as_secs())
        }
        _ => error.into(),
    }
}

/// Replaces an unspecified address by loopback: an interface that listens on all addresses answers there, too.
fn reached(at: SocketAddr) -> SocketAddr {
    let ip = match at.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, at.port())
}

/// Sends one HTTP/1.0 request and reads the answer, which comes in one piece and ends with the connection.
fn talk(mut stream: impl Read + Write, host: &str, method: &str, path: &str) -> io::Result<String> {
    // The interface requires this header in requests that change something.
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

/// Replaces the characters that would control a terminal by `?`, in a text that others have chosen.
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
    fn errors_are_explained_at_first_and_brief_after_an_answer() {
        let at = HttpListen::Tcp("127.0.0.1:8086".parse().expect("an address"));
        let late = RequestError::Rejected(
            describe_timeout(io::ErrorKind::WouldBlock.into()).context("asking failed"),
        );
        assert_eq!(late.brief(&at), "asking failed: no answer within 5 s");
        let refused = anyhow::Error::from(io::Error::from(io::ErrorKind::ConnectionRefused));
        let nobody = RequestError::Unreachable(refused.context("a long sentence with advice"));
        let brief = "nothing answers at 127.0.0.1:8086: connection refused";
        assert_eq!(nobody.brief(&at), brief);
    }
}
