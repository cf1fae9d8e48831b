//! The HTTP interface: flows and connections, the state of the process, and metrics.
//!
//! Make a [`RestState`] and a listener, and run [`serve`] on the control plane's runtime. Set [`RestState::readiness`]
//! when the program listens and when it drains. `docs/REST.md` describes every resource, `docs/METRICS.md` every
//! metric.
//!
//! Nothing here blocks a worker: see [`crate::snapshot`] for how workers are asked, and `rest/sample.rs` for the
//! interval between requests. Access control is the listening address, 127.0.0.1 by default, or the mode of a Unix
//! socket. `rest/guard.rs` refuses requests of web pages.

mod certificate;
mod clients;
mod clock;
mod compat;
mod error;
mod go;
mod guard;
mod health;
mod http;
mod index;
mod listen;
mod object;
mod preview;
mod readiness;
mod reconnect;
mod reverse;
pub(crate) mod sample;
mod server_names;
mod servers;
mod state;
mod status;
mod v1;

#[cfg(test)]
pub(crate) mod fake;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get, post};
use tokio::sync::mpsc;

pub use certificate::{CertificateReport, CertificateReports};
pub use clients::{ClientUse, ReadUsage};
pub use listen::{BoundListener, ListenError, Listener, bind};
pub use readiness::Readiness;
pub use reconnect::ReplaceConnections;
pub use reverse::{ReverseForward, ReverseForwards};
pub use server_names::{ServerName, ServerNames, ServerRecord};
pub use state::{ListenAddresses, ProcessFacts, RestState};

use crate::metrics::{self, MetricsFormat};
use crate::snapshot::Detail;
use guard::RequestGuard;
use sample::Sampler;
use state::RestApp;

/// Serves the interface on `listener` until `shutdown` completes. Open requests then have one second to finish.
///
/// # Cancel safety
///
/// Dropping the future closes the listener and all connections at once.
pub async fn serve(listener: Listener, state: Arc<RestState>, shutdown: impl Future) {
    let (requests, questions) = mpsc::channel(state.limits.connections);
    let app = Arc::new(RestApp {
        state: Arc::clone(&state),
        requests,
    });
    let guard = match &listener {
        Listener::Tcp(_) => RequestGuard::Tcp(state.names.clone()),
        Listener::Unix(_) => RequestGuard::Unix,
    };
    let sampler = Sampler::new(&state.workers, state.rate_window);
    // The sampler ends when the last handler is gone, so never before the server.
    tokio::join!(
        http::serve(listener, router(app), guard, state.limits, shutdown),
        sampler.run(questions)
    );
}

fn router(app: Arc<RestApp>) -> Router {
    Router::new()
        .route("/tunnels", any(compat::tunnels))
        .route("/v1", get(index::index).fallback(error::method))
        .route("/v1/", get(index::index).fallback(error::method))
        .route("/v1/status", get(status::status).fallback(error::method))
        .route("/v1/tunnels", get(v1::tunnels).fallback(error::method))
        .route(
            "/v1/connections",
            get(v1::connections).fallback(error::method),
        )
        .route("/v1/clients", get(clients::clients).fallback(error::method))
        .route("/v1/bonds", get(v1::bonds).fallback(error::method))
        .route("/v1/reload", get(status::reload).fallback(error::method))
        .route(
            "/v1/reconnect",
            post(reconnect::reconnect).fallback(error::not_post),
        )
        .route("/metrics", get(scrape))
        .route("/healthz", get(health::healthz))
        .route("/readyz", get(health::readyz))
        .fallback(index::not_found)
        .with_state(app)
}

async fn scrape(State(app): State<Arc<RestApp>>, headers: HeaderMap) -> Response {
    let Some(sample) = app.sample(Detail::Counters).await else {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    };
    let view = metrics::MetricsView {
        side: app.state.side_name(),
        started: app.state.clock.started(),
        collected: &sample.collected,
        counters: &sample.counters,
        certificate_expires: app.state.facts.certificate.get().and_then(|it| it.expires),
    };
    let fields = headers.get_all(header::ACCEPT).iter();
    let format = MetricsFormat::accepted(fields.filter_map(|field| field.to_str().ok()));
    let headers = [
        (header::CONTENT_TYPE, format.content_type()),
        (header::VARY, "Accept"),
    ];
    (headers, metrics::render(format, &view)).into_response()
}
