//! What the handlers work with.

use std::sync::Arc;
use std::time::Duration;

use quictun_engine::report::{FlowReport, Side};
use quictun_wire::spice::{self, Spice};
use tokio::sync::{mpsc, oneshot};

use super::clients::{Told, Uses};
use super::clock::ProcessClock;
use super::http::Limits;
use super::preview::Preview;
use super::readiness::Readiness;
use super::reconnect::{Reconnect, Replace};
use super::reverse::ReverseForwards;
use super::sample::{Ask, Sample};
use super::server_names::ServerNames;
use crate::flow_uuids::FlowUuids;
use crate::reload::Reloadable;
use crate::settings::ControlSettings;
use crate::snapshot::{Detail, Workers};

/// Rates are over one second, as the original's.
const RATE_WINDOW: Duration = Duration::from_secs(1);

/// What the HTTP interface shows.
#[derive(Debug)]
pub struct RestState {
    /// The answer of `/readyz` depends on it; the program sets it.
    pub readiness: Readiness,
    pub(super) side: Side,
    /// Keeps the original's misspelt channel names in `/tunnels`.
    pub(super) compat_json: bool,
    pub(super) workers: Workers,
    pub(super) clock: ProcessClock,
    pub(super) uuids: FlowUuids,
    pub(super) rate_window: Duration,
    pub(super) limits: Limits,
    /// Names in `Host` headers that are answered, beside addresses and `localhost`.
    pub(super) names: Vec<String>,
    pub(super) facts: Facts,
    pub(super) reload: Option<Arc<dyn Reloadable>>,
    pub(super) preview: Preview,
    /// Client: what replaces its connections.
    pub(super) reconnect: Option<Reconnect>,
    /// Server: tells what clients use.
    pub(super) uses: Option<Told>,
}

/// Facts that a process has made of its settings, for `/v1/status`.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Where it listens.
    pub listen: Vec<String>,
    /// The cipher suite that it prefers, and the library that computes it.
    pub aead: String,
    /// Client: its servers, in the order in which they were given.
    pub servers: ServerNames,
    /// Client: its reverse forwards.
    pub reverse: ReverseForwards,
}

impl RestState {
    /// The state of a process that starts now and has these `workers`.
    ///
    /// `facts` are for `/v1/status`, and `reload` is what the process can read again.
    pub fn new(
        side: Side,
        workers: Workers,
        settings: &ControlSettings,
        facts: Facts,
        reload: Option<Arc<dyn Reloadable>>,
    ) -> Self {
        Self {
            readiness: Readiness::default(),
            side,
            compat_json: settings.compat_json,
            workers,
            clock: ProcessClock::start(),
            uuids: FlowUuids::of_process(),
            rate_window: RATE_WINDOW,
            limits: Limits::default(),
            names: settings.http_names.clone(),
            facts,
            reload,
            preview: Preview::default(),
            reconnect: None,
            uses: None,
        }
    }

    /// The same, of a server that tells what its clients use.
    #[must_use]
    pub fn with_uses(self, uses: Uses) -> Self {
        Self {
            uses: Some(Told(uses)),
            ..self
        }
    }

    /// The same, of a process whose connections `replace` replaces.
    #[must_use]
    pub fn with_reconnect(self, replace: Replace) -> Self {
        Self {
            reconnect: Some(Reconnect::new(replace)),
            ..self
        }
    }

    pub(super) fn side_name(&self) -> &'static str {
        match self.side {
            Side::Client => "client",
            Side::Server => "server",
        }
    }

    /// What the application at the client's end is on this side: the local one on a client, the far one on a server.
    pub(super) fn spice(&self, flow: &FlowReport) -> Option<Spice> {
        match self.side {
            Side::Client => spice::classify(&flow.head_from_app, &flow.head_to_app),
            Side::Server => spice::classify(&flow.head_to_app, &flow.head_from_app),
        }
    }
}

#[derive(Debug)]
pub(super) struct App {
    pub(super) state: Arc<RestState>,
    pub(super) asks: mpsc::Sender<Ask>,
}

impl App {
    pub(super) async fn sample(&self, detail: Detail) -> Option<Arc<Sample>> {
        let (reply, answer) = oneshot::channel();
        self.asks.send(Ask { detail, reply }).await.ok()?;
        answer.await.ok()
    }
}
