//! `GET /v1/clients`: the limits and the usage of each named client of a server.

use std::fmt;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use quictun_engine::ClientUsage;
use serde::Serialize;

use super::object::object;
use super::state::RestApp;

/// The limits and the usage of one named client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientUse {
    /// The client's name in the configuration.
    pub name: String,
    /// The client's limits, and its usage of them.
    pub usage: ClientUsage,
    /// The time at which the client expires, in the form of RFC 3339.
    pub expires: Option<String>,
    /// True if the client has expired.
    pub expired: bool,
}

/// Returns what clients use, by name, without blocking for long.
pub type ReadUsage = Box<dyn Fn() -> Vec<ClientUse> + Send + Sync>;

pub(super) struct UsageSource(pub(super) ReadUsage);

impl fmt::Debug for UsageSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UsageSource").finish_non_exhaustive()
    }
}

#[derive(Serialize)]
struct Clients<'a> {
    clients: Vec<Client<'a>>,
}

pub(super) async fn clients(State(app): State<Arc<RestApp>>) -> Response {
    let uses = app.state.uses.as_ref();
    let uses = uses.map_or_else(Vec::new, |UsageSource(uses)| uses());
    Json(Clients {
        clients: uses.iter().map(client).collect(),
    })
    .into_response()
}

fn left(usage: &ClientUsage) -> Option<u64> {
    Some(usage.limits.quota?.saturating_sub(usage.used))
}

object! {
    struct Client<'a>,
    fn client(of: &'a ClientUse) {
        name: &'a str = &of.name,
        flows: u64 = of.usage.flows,
        max_flows: Option<u64> = of.usage.limits.flows,
        up_bytes: u64 = of.usage.up,
        down_bytes: u64 = of.usage.down,
        rate_up_bytes_per_second: Option<u64> = of.usage.limits.rate_up,
        rate_down_bytes_per_second: Option<u64> = of.usage.limits.rate_down,
        month_used_bytes: u64 = of.usage.used,
        quota_bytes: Option<u64> = of.usage.limits.quota,
        quota_left_bytes: Option<u64> = left(&of.usage),
        expires: Option<&'a str> = of.expires.as_deref(),
        expired: bool = of.expired,
    }
}
