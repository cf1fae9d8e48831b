//! `GET /v1/status` and `GET /v1/reload`: the process as a whole, and what a reload would change.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use jiff::Timestamp;
use serde::Serialize;
use tokio::sync::Mutex;

use super::{App, error, health};
use crate::reload::{Changes, Outcome, Reloadable};
use crate::snapshot::Detail;

/// A reading is as good as new for so long: reading costs the disk, and anyone may ask.
const READ_AGAIN: Duration = Duration::from_secs(1);

#[derive(Serialize)]
struct Status<'a> {
    version: &'static str,
    side: &'static str,
    pid: u32,
    started_at: String,
    uptime_seconds: f64,
    ready: bool,
    reason: Option<String>,
    listen: &'a [String],
    workers: usize,
    workers_silent: &'a [usize],
    connections: usize,
    tunnels: usize,
    sent_bytes: u64,
    received_bytes: u64,
    reload: Option<Latest>,
}

/// The latest reload.
#[derive(Serialize)]
struct Latest {
    reloaded_at: Option<String>,
    reload_error: Option<String>,
    changes: Vec<String>,
    restart: Vec<&'static str>,
}

#[derive(Serialize)]
struct WouldChange {
    error: Option<String>,
    changes: Vec<String>,
    restart: Vec<&'static str>,
}

/// How the process is, in one answer.
pub(super) async fn status(State(app): State<Arc<App>>) -> Response {
    let Some(sample) = app.sample(Detail::Counters).await else {
        return error::shutting_down();
    };
    let state = &app.state;
    let reason = health::not_ready(state, &sample);
    let connections = || {
        let snapshots = sample.collected.snapshots.iter();
        snapshots.flat_map(|snapshot| &snapshot.connections)
    };
    let snapshots = sample.collected.snapshots.iter();
    let taken = snapshots.map(|snapshot| snapshot.taken).max();
    let now = taken.unwrap_or_else(Instant::now);
    Json(Status {
        version: state.version,
        side: super::side_name(state.side),
        pid: state.pid,
        started_at: format!("{:.6}", state.clock.started()),
        uptime_seconds: state.clock.since_start(now).as_secs_f64(),
        ready: reason.is_none(),
        reason,
        listen: &state.listen,
        workers: state.workers.count(),
        workers_silent: &sample.collected.silent,
        connections: connections().count(),
        tunnels: connections().map(|connection| connection.flows).sum(),
        sent_bytes: connections().map(|connection| connection.bytes_sent).sum(),
        received_bytes: connections()
            .map(|connection| connection.bytes_received)
            .sum(),
        reload: state
            .reload
            .as_ref()
            .map(|reload| reloaded(reload.state().latest())),
    })
    .into_response()
}

fn reloaded(outcome: Option<Outcome>) -> Latest {
    let at = |at: SystemTime| Timestamp::try_from(at).ok().map(|at| format!("{at:.6}"));
    let reloaded_at = outcome.as_ref().and_then(|outcome| at(outcome.at));
    let (changes, reload_error) = match outcome.map(|outcome| outcome.result) {
        Some(Ok(changes)) => (changes, None),
        Some(Err(error)) => (Changes::default(), Some(error)),
        None => (Changes::default(), None),
    };
    Latest {
        reloaded_at,
        reload_error,
        changes: changes.lines,
        restart: changes.restart,
    }
}

/// What a reload would change; nothing is changed.
pub(super) async fn reload(State(app): State<Arc<App>>) -> Response {
    let Some(reload) = &app.state.reload else {
        let text = "this process reads its configuration only when it starts";
        return error::json(StatusCode::NOT_FOUND, text);
    };
    let (error, changes) = match app.state.preview.of(reload.as_ref()).await {
        Ok(changes) => (None, changes),
        Err(error) => (Some(error), Changes::default()),
    };
    Json(WouldChange {
        error,
        changes: changes.lines,
        restart: changes.restart,
    })
    .into_response()
}

/// The latest reading.
#[derive(Debug, Default)]
pub(super) struct Preview(Mutex<Option<Reading>>);

#[derive(Debug)]
struct Reading {
    at: Instant,
    /// When the latest reload before it was over: a newer one makes it worthless.
    after: Option<SystemTime>,
    result: Result<Changes, String>,
}

impl Preview {
    /// Reads the configuration, unless that was done a moment ago. One at a time.
    async fn of(&self, reload: &dyn Reloadable) -> Result<Changes, String> {
        let mut latest = self.0.lock().await;
        let after = reload.state().latest().map(|outcome| outcome.at);
        if let Some(reading) = &*latest
            && reading.at.elapsed() < READ_AGAIN
            && reading.after == after
        {
            return reading.result.clone();
        }
        let result = reload.would_change().await;
        *latest = Some(Reading {
            at: Instant::now(),
            after,
            result: result.clone(),
        });
        result
    }
}
