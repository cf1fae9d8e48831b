//! The HTTP interface: what runs through the tunnel, how the process is doing, metrics.
//!
//! Make a [`RestState`] and a listener, and run [`serve`] on the control plane's runtime; tell [`RestState::readiness`]
//! when the program listens and when it drains. `docs/REST.md` describes every resource, `docs/METRICS.md` every metric.
//!
//! Nothing here blocks a worker: see [`crate::snapshot`] for how they are asked, and `rest/sample.rs` for how
//! seldom. Access control is the address listened on, 127.0.0.1 unless told otherwise, or the mode of a Unix socket;
//! web pages are kept out by `rest/guard.rs`.

mod clock;
mod compat;
mod error;
mod go;
mod guard;
mod health;
mod http;
mod listen;
pub(crate) mod sample;
mod status;
pub mod v1;

#[cfg(test)]
pub(crate) mod fake;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use quictun_engine::report::{FlowReport, Side};
use quictun_wire::spice::{self, Spice};
use tokio::sync::{mpsc, oneshot};

pub use clock::ProcessClock;
pub use health::Readiness;
pub use listen::{Bound, Listener, bind};

use crate::flow_uuids::FlowUuids;
use crate::metrics;
use crate::reload::Reloadable;
use crate::snapshot::{Detail, Workers};
use guard::Guard;
use sample::{Ask, Sample, Sampler};

/// Rates are over one second, as the original's.
const RATE_WINDOW: Duration = Duration::from_secs(1);

/// What the HTTP interface shows.
#[derive(Debug)]
pub struct RestState {
    side: Side,
    compat_json: bool,
    workers: Workers,
    clock: ProcessClock,
    uuids: FlowUuids,
    readiness: Readiness,
    rate_window: Duration,
    limits: http::Limits,
    version: &'static str,
    pid: u32,
    names: Vec<String>,
    listen: Vec<String>,
    reload: Option<Arc<dyn Reloadable>>,
    preview: status::Preview,
}

impl RestState {
    /// The state of a process that started at `clock`, does not listen yet, and has these `workers`.
    ///
    /// `compat_json` keeps the original's misspelt channel names in `/tunnels`.
    pub fn new(side: Side, workers: Workers, compat_json: bool, clock: ProcessClock) -> Self {
        Self {
            side,
            compat_json,
            workers,
            clock,
            uuids: FlowUuids::of_process(),
            readiness: Readiness::default(),
            rate_window: RATE_WINDOW,
            limits: http::Limits::default(),
            version: env!("CARGO_PKG_VERSION"),
            pid: std::process::id(),
            names: Vec::new(),
            listen: Vec::new(),
            reload: None,
            preview: status::Preview::default(),
        }
    }

    /// Names in `Host` headers that are answered, beside addresses and `localhost`.
    #[must_use]
    pub fn with_names(self, names: &[String]) -> Self {
        Self {
            names: names.to_vec(),
            ..self
        }
    }

    /// Where the process listens, for `/v1/status`.
    #[must_use]
    pub fn with_listen(self, listen: Vec<String>) -> Self {
        Self { listen, ..self }
    }

    /// What the process can read again.
    #[must_use]
    pub fn with_reload(self, reload: Option<Arc<dyn Reloadable>>) -> Self {
        Self { reload, ..self }
    }

    /// What `/readyz` hangs on; to be told by the program.
    pub fn readiness(&self) -> &Readiness {
        &self.readiness
    }
}

/// Serves the interface on `listener` until `shutdown` is ready; open requests then have a second to finish.
///
/// # Cancel safety
///
/// Dropping it closes the listener and all connections at once.
pub async fn serve(listener: Listener, state: Arc<RestState>, shutdown: impl Future) {
    let (asks, questions) = mpsc::channel(state.limits.connections);
    let app = Arc::new(App {
        state: Arc::clone(&state),
        asks,
    });
    let guard = match &listener {
        Listener::Tcp(_) => Guard::Tcp(state.names.clone()),
        Listener::Unix(_) => Guard::Unix,
    };
    let sampler = Sampler::new(&state.workers, state.rate_window);
    // The sampler ends when the last handler is gone; it never ends before the server.
    tokio::join!(
        http::serve(listener, router(app), guard, state.limits, shutdown),
        sampler.run(questions)
    );
}

fn router(app: Arc<App>) -> Router {
    Router::new()
        .route("/tunnels", any(compat::tunnels))
        .route("/v1/status", get(status::status).fallback(error::method))
        .route("/v1/tunnels", get(v1::tunnels).fallback(error::method))
        .route(
            "/v1/connections",
            get(v1::connections).fallback(error::method),
        )
        .route("/v1/reload", get(status::reload).fallback(error::method))
        .route("/metrics", get(scrape))
        .route("/healthz", get(health::healthz))
        .route("/readyz", get(health::readyz))
        .fallback(not_found)
        .with_state(app)
}

/// What handlers have.
#[derive(Debug)]
struct App {
    state: Arc<RestState>,
    asks: mpsc::Sender<Ask>,
}

impl App {
    /// A sample of the workers; `None` at shutdown.
    async fn sample(&self, detail: Detail) -> Option<Arc<Sample>> {
        let (reply, answer) = oneshot::channel();
        self.asks.send(Ask { detail, reply }).await.ok()?;
        answer.await.ok()
    }
}

async fn scrape(State(app): State<Arc<App>>) -> Response {
    let Some(sample) = app.sample(Detail::Counters).await else {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    };
    let text = metrics::render(&metrics::View {
        side: side_name(app.state.side),
        started: app.state.clock.started(),
        collected: &sample.collected,
        counters: &sample.counters,
    });
    ([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response()
}

async fn not_found(uri: Uri) -> Response {
    let text = "Not found. There are /tunnels, /v1/status, /v1/tunnels, /v1/connections, /v1/reload, /metrics, /healthz and /readyz.\n";
    if uri.path().starts_with("/v1") {
        return error::json(StatusCode::NOT_FOUND, text.trim_end());
    }
    (StatusCode::NOT_FOUND, text).into_response()
}

fn side_name(side: Side) -> &'static str {
    match side {
        Side::Client => "client",
        Side::Server => "server",
    }
}

/// Every flow of every worker that answered.
fn flows(sample: &Sample) -> impl Iterator<Item = (usize, &FlowReport)> {
    let snapshots = sample.collected.snapshots.iter();
    snapshots.flat_map(|snapshot| snapshot.flows.iter().map(|flow| (snapshot.worker, flow)))
}

/// What the application at the client's end is on this side: the local one on a client, the far one on a server.
fn spice(side: Side, flow: &FlowReport) -> Option<Spice> {
    match side {
        Side::Client => spice::classify(&flow.head_from_app, &flow.head_to_app),
        Side::Server => spice::classify(&flow.head_to_app, &flow.head_from_app),
    }
}
