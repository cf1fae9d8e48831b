//! Asking the HTTP interface of a running server or client.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use quictun_control::settings::HttpListen;
use serde::de::DeserializeOwned;
use thiserror::Error;

/// Longer than the interface takes at its slowest: a rate is measured over a second.
const PATIENCE: Duration = Duration::from_secs(5);

/// Largest answer read, bytes: a hundred thousand flows.
const ANSWER_MAX: u64 = 64 << 20;

/// Why there is no answer. Each message says what to do.
#[derive(Debug, Error)]
#[non_exhaustive]
pub(crate) enum AskError {
    /// No process listens at the address.
    #[error(
        "nothing answers at {at}: no server or client runs with this HTTP interface, or it has another address (--http, control.http)"
    )]
    Nobody {
        /// The address or path.
        at: String,
        /// The system's answer.
        source: io::Error,
    },
    /// A socket of another user.
    #[error("{} may not be opened by this user: ask its owner, or set control.http_mode", path.display())]
    NotAllowed {
        /// The socket.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// A port that the system chooses.
    #[error(
        "{at} has port 0, which the system chooses anew: give the address in the log line \"HTTP interface\" with --http"
    )]
    AnyPort {
        /// The address.
        at: SocketAddr,
    },
    /// The connection failed on the way.
    #[error("asking {at} for {path} failed")]
    Io {
        /// The address or path.
        at: String,
        /// The resource.
        path: &'static str,
        /// The system's answer.
        source: io::Error,
    },
    /// The answer does not come from an HTTP interface of this version.
    #[error(
        "{at} is no HTTP interface of quictun, or of an older version: {path} answers {status}"
    )]
    Other {
        /// The address or path.
        at: String,
        /// The resource.
        path: &'static str,
        /// The status line, cut.
        status: String,
    },
    /// The interface refuses the request.
    #[error("{at} refuses {path}: {why}")]
    Refused {
        /// The address or path.
        at: String,
        /// The resource.
        path: &'static str,
        /// The reason that the interface gives.
        why: String,
    },
}

/// An answer that was read whole.
struct Answer {
    status: String,
    body: String,
}

/// Asks for a resource that is JSON; also returns its text.
pub(crate) fn get<T: DeserializeOwned>(
    at: &HttpListen,
    path: &'static str,
) -> Result<(T, serde_json::Value), AskError> {
    let answer = exchange(at, path)?;
    let other = || AskError::Other {
        at: at.to_string(),
        path,
        status: plain(&answer.status).chars().take(60).collect(),
    };
    let value: serde_json::Value = serde_json::from_str(&answer.body).map_err(|_| other())?;
    if !answer.status.starts_with("200") {
        let why = value.get("error").and_then(serde_json::Value::as_str);
        return Err(why.map_or_else(other, |why| AskError::Refused {
            at: at.to_string(),
            path,
            why: plain(why),
        }));
    }
    let parsed = T::deserialize(&value).map_err(|_| other())?;
    Ok((parsed, value))
}

fn exchange(at: &HttpListen, path: &'static str) -> Result<Answer, AskError> {
    let text = match at {
        HttpListen::Tcp(address) => {
            let stream = connect(*address)?;
            let patience = Some(PATIENCE);
            let ready = stream
                .set_read_timeout(patience)
                .and_then(|()| stream.set_write_timeout(patience));
            ready.and_then(|()| talk(stream, &address.to_string(), path))
        }
        HttpListen::Unix { path: socket, .. } => {
            let stream = UnixStream::connect(socket).map_err(|source| match source.kind() {
                io::ErrorKind::PermissionDenied => AskError::NotAllowed {
                    path: socket.clone(),
                    source,
                },
                _ => AskError::Nobody {
                    at: at.to_string(),
                    source,
                },
            })?;
            let patience = Some(PATIENCE);
            let ready = stream
                .set_read_timeout(patience)
                .and_then(|()| stream.set_write_timeout(patience));
            ready.and_then(|()| talk(stream, "localhost", path))
        }
    };
    let text = text.map_err(|source| AskError::Io {
        at: at.to_string(),
        path,
        source,
    })?;
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.lines().next().unwrap_or_default();
    Ok(Answer {
        status: status
            .split_once(' ')
            .map_or("", |(_, rest)| rest)
            .to_owned(),
        body: body.to_owned(),
    })
}

fn connect(at: SocketAddr) -> Result<TcpStream, AskError> {
    if at.port() == 0 {
        return Err(AskError::AnyPort { at });
    }
    // An interface that listens on all addresses answers on loopback, too.
    let ip = match at.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    TcpStream::connect_timeout(&SocketAddr::new(ip, at.port()), PATIENCE).map_err(|source| {
        AskError::Nobody {
            at: at.to_string(),
            source,
        }
    })
}

/// One request of HTTP/1.0: the answer comes in one piece and ends with the connection.
fn talk(mut stream: impl Read + Write, host: &str, path: &str) -> io::Result<String> {
    stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: {host}\r\n\r\n").as_bytes())?;
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
            || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    text.chars()
        .map(|c| if acts(c) { '?' } else { c })
        .collect()
}
