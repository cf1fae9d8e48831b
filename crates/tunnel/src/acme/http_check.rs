//! Answers the authority's checks by HTTP (RFC 8555 section 8.3): one resource for each check, and nothing else.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// Time for a request and its answer.
const DEADLINE: Duration = Duration::from_secs(5);

/// Largest request, bytes. Those of authorities have some hundred.
const REQUEST_MAX: usize = 4096;

/// Connections at a time. An authority makes fewer than ten for one check.
const CONNECTIONS: usize = 64;

/// Pause after a failure to accept, which is one of the system's limits.
const PAUSE: Duration = Duration::from_millis(100);

const PATH: &str = "/.well-known/acme-challenge/";

/// The answers to the checks that are under way, by their tokens. All clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct HttpAnswers(Arc<Mutex<BTreeMap<String, String>>>);

impl HttpAnswers {
    pub(super) fn add(&self, token: &str, answer: &str) {
        self.all().insert(token.to_owned(), answer.to_owned());
    }

    pub(super) fn clear(&self) {
        self.all().clear();
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<String, String>> {
        // Each change is complete as soon as it is visible.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the answer to a request, whose head may be incomplete beyond the first line.
    fn answer(&self, request: &[u8]) -> String {
        let line = request
            .split(|byte| *byte == b'\n')
            .next()
            .unwrap_or_default();
        let line = String::from_utf8_lossy(line);
        let mut words = line.split_whitespace();
        let (Some("GET"), Some(path)) = (words.next(), words.next()) else {
            return response("405 Method Not Allowed", "");
        };
        let answer = path
            .strip_prefix(PATH)
            .and_then(|token| self.all().get(token).cloned());
        match answer {
            Some(answer) => response("200 OK", &answer),
            None => response("404 Not Found", ""),
        }
    }
}

fn response(status: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/octet-stream\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
}

/// A port that is open while the process runs.
#[derive(Debug)]
pub(super) struct HttpListener(std::net::TcpListener);

impl HttpListener {
    pub(super) fn bind(address: SocketAddr) -> Result<Self> {
        let bind = || {
            let listener = std::net::TcpListener::bind(address)?;
            listener.set_nonblocking(true)?;
            Ok::<_, std::io::Error>(listener)
        };
        let listener =
            bind().with_context(|| format!("cannot listen on TCP {address} (--acme-http)"))?;
        Ok(Self(listener))
    }

    /// Serves the answers. Returns only if the system refuses the socket.
    pub(super) async fn serve(self, answers: HttpAnswers) -> std::io::Result<()> {
        let listener = TcpListener::from_std(self.0)?;
        let mut open = JoinSet::new();
        loop {
            tokio::select! {
                accepted = listener.accept(), if open.len() < CONNECTIONS => match accepted {
                    Ok((stream, _)) => {
                        let answers = answers.clone();
                        // An end before the answer is the authority's affair.
                        open.spawn(async move { timeout(DEADLINE, serve(stream, &answers)).await.is_ok() });
                    }
                    Err(_) => sleep(PAUSE).await,
                },
                Some(_) = open.join_next() => {}
            }
        }
    }
}

async fn serve(mut stream: TcpStream, answers: &HttpAnswers) -> std::io::Result<()> {
    let mut request = Vec::new();
    let is_whole = |request: &[u8]| {
        request.windows(4).any(|end| end == b"\r\n\r\n")
            || request.windows(2).any(|end| end == b"\n\n")
    };
    while !is_whole(&request) && request.len() < REQUEST_MAX {
        if (&mut stream).take(1024).read_buf(&mut request).await? == 0 {
            return Ok(());
        }
    }
    stream
        .write_all(answers.answer(&request).as_bytes())
        .await?;
    stream.shutdown().await
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn ask(address: SocketAddr, request: &str) -> String {
        let mut stream = TcpStream::connect(address).await.expect("a connection");
        stream.write_all(request.as_bytes()).await.expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("an answer");
        answer
    }

    #[tokio::test]
    async fn only_tokens_of_checks_under_way_are_answered() {
        let listener = HttpListener::bind(([127, 0, 0, 1], 0).into()).expect("a port");
        let (address, answers) = (
            listener.0.local_addr().expect("bound"),
            HttpAnswers::default(),
        );
        let mut serving = JoinSet::new();
        serving.spawn(listener.serve(answers.clone()));
        let get = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: web.example\r\n\r\n");
        let check = get("/.well-known/acme-challenge/token");
        assert!(ask(address, &check).await.starts_with("HTTP/1.1 404"));
        answers.add("token", "token.thumbprint");
        let answer = ask(address, &check).await;
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        assert!(answer.ends_with("\r\n\r\ntoken.thumbprint"), "{answer}");
        for (request, status) in [
            (get("/.well-known/acme-challenge/"), 404),
            (get("/"), 404),
            (get("/.well-known/acme-challenge/../token"), 404),
            (check.replace("GET", "POST"), 405),
            ("\n\n".to_owned(), 405),
            ("G".repeat(REQUEST_MAX), 405),
        ] {
            let answer = ask(address, &request).await;
            assert!(
                answer.starts_with(&format!("HTTP/1.1 {status} ")),
                "{request:.20} {answer}"
            );
        }
        answers.clear();
        assert!(ask(address, &check).await.starts_with("HTTP/1.1 404"));
    }
}
