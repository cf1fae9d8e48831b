//! `GET /v1/status` and `GET /v1/reload`: the process as a whole, and what a reload would change.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use jiff::Timestamp;
use serde::Serialize;

use super::certificate::{Certificate, certificate};
use super::clock::seconds;
use super::object::object;
use super::reverse::ReverseForward;
use super::sample::Sample;
use super::servers::{Server, servers};
use super::state::{RestApp, RestState};
use super::{error, health};
use crate::reload::{Changes, ReloadOutcome};
use crate::snapshot::Detail;

object! {
    struct Status<'a>,
    fn summary(state: &'a RestState, sample: &'a Sample, reason: Option<String>) {
        version: &'static str = env!("CARGO_PKG_VERSION"),
        side: &'static str = state.side_name(),
        pid: u32 = std::process::id(),
        started_at: String = format!("{:.6}", state.clock.started()),
        uptime_seconds: f64 = seconds(uptime(state, sample)),
        ready: bool = reason.is_none(),
        reason: Option<String> = reason,
        listen: Vec<String> = state.facts.listen.get(),
        reverse: Vec<ReverseForward> = state.facts.reverse.get(),
        outbound_proxy: Option<&'a str> = state.facts.outbound_proxy.as_deref(),
        certificate: Option<Certificate> = state.facts.certificate.get().map(certificate),
        aead: &'a str = &state.facts.aead,
        workers: usize = state.workers.count(),
        workers_silent: &'a [usize] = &sample.collected.silent,
        connections: usize = sample.collected.connections().count(),
        tunnels: usize = sample.collected.flow_count(),
        detached_tunnels: usize = sample.collected.detached_count(),
        bonds: usize = sample.collected.bonds().count(),
        kept_bytes: u64 = sample.collected.retained(),
        moves: u64 = sample.moves().count(),
        move_seconds_p50: Option<f64> = sample.moves().within(0.5).map(seconds),
        move_seconds_p99: Option<f64> = sample.moves().within(0.99).map(seconds),
        moves_refused: u64 = sample.counters.iter().map(|it| it.totals.moves_refused).sum(),
        sent_bytes: u64 = sample.collected.connections().map(|it| it.bytes_sent).sum(),
        received_bytes: u64 = sample.collected.connections().map(|it| it.bytes_received).sum(),
        take_over: TakeOverFates = fates(sample),
        servers: Vec<Server> = servers(state, sample),
        reload: Option<LatestReload> = state.reload.as_ref().map(|it| reloaded(it.state().get())),
    }
}

#[derive(Serialize)]
struct LatestReload {
    reloaded_at: Option<String>,
    reload_error: Option<String>,
    #[serde(flatten)]
    changes: Changes,
}

/// The number of flows for each fate, if another process took over now.
#[derive(Default, Serialize)]
struct TakeOverFates {
    continuing: usize,
    without_bond: usize,
    half_reset: usize,
    unanswered: usize,
    own_socket: usize,
}

#[derive(Serialize)]
struct WouldChange {
    error: Option<String>,
    #[serde(flatten)]
    changes: Changes,
}

pub(super) async fn status(State(app): State<Arc<RestApp>>) -> Response {
    let Some(sample) = app.sample(Detail::Counters).await else {
        return error::shutting_down();
    };
    let reason = health::not_ready(&app.state, &sample);
    Json(summary(&app.state, &sample, reason)).into_response()
}

fn fates(sample: &Sample) -> TakeOverFates {
    let costs = sample.collected.snapshots.iter().map(|it| it.restart_cost);
    costs.fold(TakeOverFates::default(), |all, cost| TakeOverFates {
        continuing: all.continuing + cost.continuing,
        without_bond: all.without_bond + cost.without_bond,
        half_reset: all.half_reset + cost.half_reset,
        unanswered: all.unanswered + cost.unanswered,
        own_socket: all.own_socket + cost.own_socket,
    })
}

/// Returns how long the process had been running when the sample was taken.
fn uptime(state: &RestState, sample: &Sample) -> Duration {
    let snapshots = sample.collected.snapshots.iter();
    let taken = snapshots.map(|snapshot| snapshot.taken).max();
    state.clock.since_start(taken.unwrap_or_else(Instant::now))
}

fn reloaded(outcome: Option<ReloadOutcome>) -> LatestReload {
    let at = |at: SystemTime| Timestamp::try_from(at).ok().map(|at| format!("{at:.6}"));
    let reloaded_at = outcome.as_ref().and_then(|outcome| at(outcome.at));
    let (changes, reload_error) = match outcome.map(|outcome| outcome.result) {
        Some(Ok(changes)) => (changes, None),
        Some(Err(error)) => (Changes::default(), Some(error)),
        None => (Changes::default(), None),
    };
    LatestReload {
        reloaded_at,
        reload_error,
        changes,
    }
}

/// Answers with the changes that a reload would make, without making them.
pub(super) async fn reload(State(app): State<Arc<RestApp>>) -> Response {
    let Some(reload) = &app.state.reload else {
        let text = "this process reads its configuration only when it starts";
        return error::json(StatusCode::NOT_FOUND, text);
    };
    let (error, changes) = match app.state.preview.of(reload.as_ref()).await {
        Ok(changes) => (None, changes),
        Err(error) => (Some(error), Changes::default()),
    };
    Json(WouldChange { error, changes }).into_response()
}
