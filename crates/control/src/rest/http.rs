//! The HTTP server around the handlers. It bounds the number of connections and the bytes of answers that wait for slow
//! readers, serves one request on each connection, and has a deadline for everything.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::Response;
use hyper::body::{Body as _, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;

use super::error;
use super::guard::RequestGuard;
use super::listen::Listener;

#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Maximum number of connections at once. Further ones wait in the listener's backlog until a connection ends.
    pub(super) connections: usize,
    /// Maximum bytes of large answers under way. Beyond it, a large answer is refused unless it is the only one.
    pub(super) answer_bytes: u32,
    /// Time limit for the request line and all headers.
    pub(super) header_deadline: Duration,
    /// Time limit for a connection as a whole, slow readers included.
    pub(super) connection_deadline: Duration,
    /// Time limit for connections that are open at shutdown.
    pub(super) drain_deadline: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 64,
            answer_bytes: 16 << 20,
            header_deadline: Duration::from_secs(5),
            connection_deadline: Duration::from_secs(30),
            drain_deadline: Duration::from_secs(1),
        }
    }
}

const MAX_HEADERS: usize = 16 * 1024;

/// Answers up to this size are never refused: the connections' number bounds their memory to 4 MiB.
const SMALL_ANSWER: u64 = 64 * 1024;

/// Maximum number of bytes of a request's body. No resource needs one, but a small body that clients send by habit (an
/// empty form) passes unread.
const MAX_BODY: u64 = 4 * 1024;

/// Pause after a failed accept, for example without free descriptors: the same error would return at once.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);

/// Serves `router` until `shutdown` completes, and then lets open requests finish.
pub(super) async fn serve(
    listener: Listener,
    router: Router,
    guard: RequestGuard,
    limits: Limits,
    shutdown: impl Future,
) {
    let guard = Arc::new(guard);
    let places = Arc::new(Semaphore::new(limits.connections));
    let answers = AnswerMemory::new(limits.answer_bytes);
    let mut connections = JoinSet::new();
    let mut shutdown = pin!(shutdown);
    loop {
        let next = async {
            let place = Arc::clone(&places).acquire_owned().await;
            (place, accept(&listener).await)
        };
        let (place, accepted) = tokio::select! {
            next = next => next,
            _ = &mut shutdown => break,
        };
        // Removes finished connections, so that the set has at most one entry more than there are places.
        while connections.try_join_next().is_some() {}
        match accepted {
            Ok(stream) => {
                let (router, guard, answers) = (router.clone(), guard.clone(), answers.clone());
                connections.spawn(async move {
                    match stream {
                        AcceptedStream::Tcp(stream) => {
                            serve_connection(stream, router, (guard, answers), limits).await;
                        }
                        AcceptedStream::Unix(stream) => {
                            serve_connection(stream, router, (guard, answers), limits).await;
                        }
                    }
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "Cannot accept an HTTP connection");
                tokio::time::sleep(ACCEPT_BACKOFF).await;
            }
        }
    }
    drop(listener);
    let drained = async { while connections.join_next().await.is_some() {} };
    // Dropping the set aborts requests that are still open.
    tokio::time::timeout(limits.drain_deadline, drained)
        .await
        .ok();
}

/// The memory of large answers that are under way. Clones share it.
#[derive(Clone, Debug)]
struct AnswerMemory {
    bytes: Arc<Semaphore>,
    most: u32,
}

impl AnswerMemory {
    fn new(most: u32) -> Self {
        let bytes = usize::try_from(most).unwrap_or(Semaphore::MAX_PERMITS);
        Self {
            bytes: Arc::new(Semaphore::new(bytes)),
            most,
        }
    }

    /// Takes memory for an answer, until the returned value is dropped. Returns `None` if others have taken too much.
    fn take(&self, bytes: u64) -> Option<OwnedSemaphorePermit> {
        let bytes = match bytes {
            0..=SMALL_ANSWER => 0,
            large => u32::try_from(large).unwrap_or(u32::MAX).min(self.most),
        };
        self.bytes.clone().try_acquire_many_owned(bytes).ok()
    }
}

enum AcceptedStream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

async fn accept(listener: &Listener) -> std::io::Result<AcceptedStream> {
    Ok(match listener {
        Listener::Tcp(listener) => AcceptedStream::Tcp(listener.accept().await?.0),
        Listener::Unix(listener) => AcceptedStream::Unix(listener.accept().await?.0),
    })
}

async fn serve_connection(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    router: Router,
    (guard, answers): (Arc<RequestGuard>, AnswerMemory),
    limits: Limits,
) {
    let handlers = TowerToHyperService::new(router);
    // The answer is in memory until the connection ends: the service keeps its share.
    let held = Arc::new(OnceLock::new());
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        let handlers = handlers.clone();
        let judged = guard.check(request.uri(), request.headers());
        let (answers, held) = (answers.clone(), held.clone());
        async move {
            if let Err(foreign) = judged {
                let refusal = error::json(StatusCode::FORBIDDEN, &foreign.to_string());
                return Ok::<Response, Infallible>(refusal);
            }
            if request.body().size_hint().lower() > MAX_BODY {
                let text = "requests with a body are not accepted here";
                return Ok(error::json(StatusCode::PAYLOAD_TOO_LARGE, text));
            }
            let request = request.map(Body::new) as Request;
            let response = hyper::service::Service::call(&handlers, request).await?;
            let Some(share) = answers.take(response.body().size_hint().lower()) else {
                let text = "other readers have not taken their large answers yet: try again";
                return Ok(error::json(StatusCode::SERVICE_UNAVAILABLE, text));
            };
            // Each connection serves one request.
            held.set(share).ok();
            Ok(response)
        }
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header_deadline)
        .max_buf_size(MAX_HEADERS)
        .keep_alive(false)
        .half_close(true)
        .title_case_headers(true)
        .serve_connection(TokioIo::new(stream), service);
    match tokio::time::timeout(limits.connection_deadline, connection).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "HTTP connection failed"),
        Err(_) => tracing::debug!("HTTP connection took too long"),
    }
}
