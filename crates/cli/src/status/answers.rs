//! The answers of the HTTP interface, as far as they are shown. `docs/REST.md` explains each field.

use quictun_control::settings::HttpListen;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::ask::{self, AskError};

/// One round of questions.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: Status,
    pub(super) connections: Connections,
    pub(super) tunnels: Tunnels,
}

/// `GET /v1/status`.
#[derive(Debug, Deserialize)]
pub(super) struct Status {
    pub(super) version: String,
    pub(super) side: String,
    pub(super) pid: u32,
    pub(super) started_at: String,
    pub(super) uptime_seconds: f64,
    pub(super) ready: bool,
    pub(super) reason: Option<String>,
    pub(super) listen: Vec<String>,
    pub(super) workers: usize,
    pub(super) workers_silent: Vec<usize>,
    pub(super) connections: usize,
    pub(super) tunnels: usize,
    pub(super) reload: Option<Latest>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Latest {
    pub(super) reloaded_at: Option<String>,
    pub(super) reload_error: Option<String>,
    pub(super) changes: Vec<String>,
    pub(super) restart: Vec<String>,
}

/// `GET /v1/connections`.
#[derive(Debug, Deserialize)]
pub(super) struct Connections {
    pub(super) connections: Vec<Connection>,
    pub(super) workers_silent: Vec<usize>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Connection {
    pub(super) id: u64,
    pub(super) worker: usize,
    pub(super) remote: String,
    pub(super) protocol: Option<String>,
    pub(super) peer: Option<String>,
    pub(super) opened_at: String,
    pub(super) age_seconds: f64,
    pub(super) unresponsive: bool,
    pub(super) flows: usize,
    pub(super) rtt_seconds: f64,
    pub(super) limited_by: String,
    pub(super) loss_ratio: f64,
    pub(super) sent_bytes: u64,
    pub(super) received_bytes: u64,
    pub(super) packets_sent: u64,
    pub(super) packets_lost: u64,
}

/// `GET /v1/tunnels`.
#[derive(Debug, Deserialize)]
pub(super) struct Tunnels {
    pub(super) tunnels: Vec<Tunnel>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Tunnel {
    pub(super) id: String,
    pub(super) worker: usize,
    pub(super) connection: u64,
    pub(super) target: String,
    pub(super) client_app: Option<String>,
    pub(super) server_app: Option<String>,
    pub(super) age_seconds: f64,
    pub(super) established: bool,
    pub(super) to_tunnel_bytes: u64,
    pub(super) to_app_bytes: u64,
}

impl Tunnel {
    /// The application at this end, where it is known.
    pub(super) fn application(&self) -> &str {
        let app = self.client_app.as_deref().or(self.server_app.as_deref());
        if self.established {
            app.unwrap_or_default()
        } else {
            "connecting"
        }
    }
}

/// Asks for all of it. Connections come last: a first question for flows waits a second for their rates, and counters
/// of bytes should be as old as the answer.
///
/// # Errors
///
/// Those of [`ask::get`].
pub(super) fn ask(at: &HttpListen) -> Result<Answer, AskError> {
    let status = ask::get(at, "/v1/status")?;
    let tunnels = ask::get(at, "/v1/tunnels")?;
    Ok(Answer {
        status,
        tunnels,
        connections: ask::get(at, "/v1/connections")?,
    })
}

/// Asks for all of it, and gives it as it came, in one object.
///
/// # Errors
///
/// Those of [`ask::get`], also where it is not what [`ask`] could read.
pub(super) fn ask_json(at: &HttpListen) -> Result<serde_json::Value, AskError> {
    let status = object::<Status>(at, "/v1/status")?;
    let connections = object::<Connections>(at, "/v1/connections")?;
    let tunnels = object::<Tunnels>(at, "/v1/tunnels")?;
    Ok(serde_json::json!({
        "status": status,
        "connections": connections["connections"],
        "udp_sockets": connections["udp_sockets"],
        "tunnels": tunnels["tunnels"],
    }))
}

/// An answer that holds a `T`.
fn object<T: DeserializeOwned>(
    at: &HttpListen,
    path: &'static str,
) -> Result<serde_json::Value, AskError> {
    let value = ask::get(at, path)?;
    T::deserialize(&value).map_err(|error| {
        AskError::Other(
            anyhow::Error::from(error)
                .context(format!("{at} answers {path} as another version would")),
        )
    })?;
    Ok(value)
}
