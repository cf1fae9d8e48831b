//! The fields of the HTTP interface's answers that `quictun status` shows. `docs/REST.md` explains each of them.

use std::borrow::Cow;

use quictun_control::settings::HttpListen;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::quantities::{age, time};
use crate::ask::{self, RequestError};

/// The answers to one round of requests.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: Status,
    pub(super) connections: Connections,
    pub(super) tunnels: Tunnels,
    pub(super) bonds: Bonds,
}

/// The answer to `GET /v1/status`.
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
    pub(super) outbound_proxy: Option<String>,
    pub(super) workers: usize,
    pub(super) workers_silent: Vec<usize>,
    pub(super) connections: usize,
    pub(super) tunnels: usize,
    pub(super) detached_tunnels: usize,
    pub(super) bonds: usize,
    pub(super) kept_bytes: u64,
    pub(super) moves: u64,
    pub(super) move_seconds_p50: Option<f64>,
    pub(super) move_seconds_p99: Option<f64>,
    pub(super) moves_refused: u64,
    /// The servers of a client. Older programs, which know only one server, do not send the list.
    #[serde(default)]
    pub(super) servers: Vec<Server>,
    pub(super) reload: Option<LatestReload>,
    /// The flows by their fate if another process took over now. Older programs do not send it, or only servers do.
    pub(super) take_over: Option<TakeOverFates>,
    /// On a server: the certificate that programs without quictun see. Older programs do not send it.
    pub(super) certificate: Option<Certificate>,
}

#[derive(Debug, Deserialize)]
pub(super) struct TakeOverFates {
    pub(super) continuing: usize,
    pub(super) without_bond: usize,
    pub(super) half_reset: usize,
    pub(super) unanswered: usize,
    /// Older programs do not send it.
    #[serde(default)]
    pub(super) own_socket: usize,
}

#[derive(Debug, Deserialize)]
pub(super) struct Certificate {
    pub(super) names: Vec<String>,
    pub(super) expires_at: Option<String>,
    pub(super) problem: Option<String>,
    pub(super) next_attempt_at: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Server {
    pub(super) name: String,
    /// The address for TLS over TCP, if it is another one than the name.
    pub(super) tls_address: Option<String>,
    /// The priority and weight of its SRV record. Programs without support for SRV records send neither.
    pub(super) priority: Option<u16>,
    pub(super) weight: Option<u16>,
    pub(super) why: String,
    pub(super) flows: usize,
    pub(super) rtt_seconds: Option<f64>,
    #[serde(default)]
    pub(super) quic: String,
    pub(super) quic_tried_in_seconds: Option<f64>,
    pub(super) transfers_over_tls: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct LatestReload {
    pub(super) reloaded_at: Option<String>,
    pub(super) reload_error: Option<String>,
    pub(super) changes: Vec<String>,
    pub(super) restart: Vec<String>,
}

/// The answer to `GET /v1/connections`.
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
    #[serde(default)]
    pub(super) carrier: String,
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

/// The answer to `GET /v1/tunnels`.
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
    pub(super) detached_seconds: Option<f64>,
    pub(super) to_tunnel_bytes: u64,
    pub(super) to_app_bytes: u64,
}

/// The answer to `GET /v1/bonds`.
#[derive(Debug, Deserialize)]
pub(super) struct Bonds {
    pub(super) bonds: Vec<Bond>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Bond {
    pub(super) id: String,
    pub(super) client: Option<String>,
    pub(super) detached_flows: usize,
    pub(super) kept_bytes: u64,
    pub(super) alone_seconds: Option<f64>,
}

impl Status {
    /// Returns the moves of flows in words, or `None` if there were none.
    pub(super) fn moves_told(&self) -> Option<String> {
        let mut text = match (self.moves, self.moves_refused) {
            (0, 0) => return None,
            (1, _) => "1 move of a flow".to_owned(),
            (moves, _) => format!("{moves} moves of flows"),
        };
        for (part, within) in [
            ("half", self.move_seconds_p50),
            ("99 %", self.move_seconds_p99),
        ] {
            if let Some(within) = within {
                text.extend([", ", part, " within ", &time(within)]);
            }
        }
        if self.moves_refused > 0 {
            text.extend([", ", &self.moves_refused.to_string(), " REFUSED"]);
        }
        Some(text)
    }

    /// Returns the heading for [`Tunnel::address`]. A server knows the address at which it has reached the target, not
    /// the client's application.
    pub(super) fn address_heading(&self) -> &'static str {
        match self.side.as_str() {
            "server" => "ADDRESS",
            _ => "APPLICATION",
        }
    }
}

impl Tunnel {
    /// Returns the address of the program at this side, if known, or the state of a flow that waits.
    pub(super) fn address(&self) -> Cow<'_, str> {
        let app = self.client_app.as_deref().or(self.server_app.as_deref());
        match self.detached_seconds {
            _ if !self.established => "connecting".into(),
            Some(since) => format!("moving for {}", age(since)).into(),
            None => app.unwrap_or_default().into(),
        }
    }
}

/// Requests all answers. Connections come last: the first request for flows waits one second for their rates, and byte
/// counters should be as old as the answer.
///
/// # Errors
///
/// Returns the errors of [`ask::get`].
pub(super) fn ask(at: &HttpListen) -> Result<Answer, RequestError> {
    let status = ask::get(at, "/v1/status")?;
    let tunnels = ask::get(at, "/v1/tunnels")?;
    Ok(Answer {
        status,
        tunnels,
        bonds: ask::get(at, "/v1/bonds")?,
        connections: ask::get(at, "/v1/connections")?,
    })
}

/// Requests all answers, and returns them unchanged in one object.
///
/// # Errors
///
/// Returns the errors of [`ask::get`], also for an answer that [`ask`] could not parse.
pub(super) fn ask_json(at: &HttpListen) -> Result<serde_json::Value, RequestError> {
    let status = object::<Status>(at, "/v1/status")?;
    let connections = object::<Connections>(at, "/v1/connections")?;
    let tunnels = object::<Tunnels>(at, "/v1/tunnels")?;
    let bonds = object::<Bonds>(at, "/v1/bonds")?;
    Ok(serde_json::json!({
        "status": status,
        "connections": connections["connections"],
        "udp_sockets": connections["udp_sockets"],
        "tunnels": tunnels["tunnels"],
        "bonds": bonds["bonds"],
    }))
}

/// Parses an answer as a `T`.
fn object<T: DeserializeOwned>(
    at: &HttpListen,
    path: &'static str,
) -> Result<serde_json::Value, RequestError> {
    let value = ask::get(at, path)?;
    T::deserialize(&value).map_err(|error| {
        RequestError::Rejected(
            anyhow::Error::from(error)
                .context(format!("{at} answers {path} as another version would")),
        )
    })?;
    Ok(value)
}
