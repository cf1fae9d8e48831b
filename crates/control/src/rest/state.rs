//! The state that the handlers share.

use std::sync::Arc;
use std::time::Duration;

use quictun_engine::report::{FlowReport, Side};
use quictun_wire::spice::{self, Spice};
use tokio::sync::{mpsc, oneshot};

use super::certificate::CertificateReports;
use super::clients::{ReadUsage, UsageSource};
use super::clock::ProcessClock;
use super::http::Limits;
use super::preview::Preview;
use super::readiness::Readiness;
use super::reconnect::{Reconnect, ReplaceConnections};
use super::reverse::ReverseForwards;
use super::sample::{Sample, SampleRequest};
use super::server_names::ServerNames;
use crate::flow_uuids::FlowUuids;
use crate::reload::Reloadable;
use crate::settings::ControlSettings;
use crate::shown::ShownValue;
use crate::snapshot::{Detail, Workers};

/// The time over which rates are measured: one second, as in the original.
const RATE_WINDOW: Duration = Duration::from_secs(1);

/// The data and settings behind the HTTP interface.
#[derive(Debug)]
pub struct RestState {
    /// The state that `/readyz` reports. The program sets it.
    pub readiness: Readiness,
    pub(super) side: Side,
    /// True if `/tunnels` keeps the original's misspelt channel names.
    pub(super) compat_json: bool,
    pub(super) workers: Workers,
    pub(super) clock: ProcessClock,
    pub(super) uuids: FlowUuids,
    pub(super) rate_window: Duration,
    pub(super) limits: Limits,
    /// Names that are accepted in `Host` headers, beside addresses and `localhost`.
    pub(super) names: Vec<String>,
    pub(super) facts: ProcessFacts,
    pub(super) reload: Option<Arc<dyn Reloadable>>,
    pub(super) preview: Preview,
    /// On a client: replaces its connections.
    pub(super) reconnect: Option<Reconnect>,
    /// On a server: reports the usage of clients.
    pub(super) uses: Option<UsageSource>,
}

/// The addresses that a process listens on.
pub type ListenAddresses = ShownValue<Vec<String>>;

/// Facts that follow from a process's settings, for `/v1/status`.
#[derive(Clone, Debug, Default)]
pub struct ProcessFacts {
    /// The addresses that the process listens on.
    pub listen: ListenAddresses,
    /// The preferred cipher suite, and the library that computes it.
    pub aead: String,
    /// On a server: the certificate that programs without quictun see.
    pub certificate: CertificateReports,
    /// On a client: its servers, in the order given.
    pub servers: ServerNames,
    /// On a client: its reverse forwards.
    pub reverse: ReverseForwards,
    /// On a client: the URL of the outbound proxy for TLS over TCP, without the login.
    pub outbound_proxy: Option<String>,
}

impl RestState {
    /// Creates the state of a process that starts now and has these `workers`.
    ///
    /// `/v1/status` shows `facts`. `reload` gives access to the reloads of the process.
    pub fn new(
        side: Side,
        workers: Workers,
        settings: &ControlSettings,
        facts: ProcessFacts,
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

    /// Adds the usage of clients, for a server.
    #[must_use]
    pub fn with_uses(self, uses: ReadUsage) -> Self {
        Self {
            uses: Some(UsageSource(uses)),
            ..self
        }
    }

    /// Adds the function by which the process replaces its connections.
    #[must_use]
    pub fn with_reconnect(self, replace: ReplaceConnections) -> Self {
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

    /// Recognises SPICE in the first bytes of a flow. The application of the client's side is the local one on a
    /// client, and the remote one on a server.
    pub(super) fn spice(&self, flow: &FlowReport) -> Option<Spice> {
        match self.side {
            Side::Client => spice::classify(&flow.head_from_app, &flow.head_to_app),
            Side::Server => spice::classify(&flow.head_to_app, &flow.head_from_app),
        }
    }
}

#[derive(Debug)]
pub(super) struct RestApp {
    pub(super) state: Arc<RestState>,
    pub(super) requests: mpsc::Sender<SampleRequest>,
}

impl RestApp {
    pub(super) async fn sample(&self, detail: Detail) -> Option<Arc<Sample>> {
        let (reply, answer) = oneshot::channel();
        self.requests
            .send(SampleRequest { detail, reply })
            .await
            .ok()?;
        answer.await.ok()
    }
}
