//! Reads the configuration again: for a reload of the running process, and for `quictun config check`, which prints
//! what a reload would change.

use quictun_tunnel::reload::{ConfigReadError, RereadClient, RereadServer};
use quictun_tunnel::settings::ServerSettings;
use serde::Deserialize;

use super::action::{Action, parse};
use crate::ask::{self, RequestError};
use quictun_args::inputs::Inputs;
use quictun_args::layers::RestartSettings;

/// Returns the settings that `quictun server` would get if this process were started now: with the same arguments,
/// environment and working directory, and the files as they are now. `started` holds the values of its start.
pub(super) fn read_server(started: &RestartSettings) -> Result<RereadServer, ConfigReadError> {
    match parse(&Inputs::of_process())? {
        Action::Server(server) => Ok(RereadServer {
            settings: server.settings,
            restart: started.changed(&server.restart_settings),
            warnings: server.warnings,
        }),
        _ => unreachable!("invariant: the arguments of a running server parse as a server"),
    }
}

/// Returns the settings that `quictun client` would get if this process were started now, as [`read_server`] does for a
/// server.
pub(super) fn read_client(started: &RestartSettings) -> Result<RereadClient, ConfigReadError> {
    match parse(&Inputs::of_process())? {
        Action::Client(client) => Ok(RereadClient {
            settings: client.settings,
            restart: started.changed(&client.restart_settings),
        }),
        _ => unreachable!("invariant: the arguments of a running client parse as a client"),
    }
}

/// Returns the changes that a reload would make in the server with this HTTP interface, as text. The text is empty if
/// no such server runs.
pub(super) fn would_change(settings: &ServerSettings) -> String {
    let Some(http) = &settings.control.httpd else {
        return String::new();
    };
    let would = match ask::get::<ReloadPreview>(http, "/v1/reload") {
        Ok(would) => would,
        // No server runs, so a reload would change nothing.
        Err(RequestError::Unreachable(_)) => return String::new(),
        Err(RequestError::Rejected(error)) => {
            return format!("what a reload would change is not known: {error}\n");
        }
    };
    would.text(&http.to_string())
}

/// The answer to `GET /v1/reload`.
#[derive(Debug, Deserialize)]
struct ReloadPreview {
    error: Option<String>,
    changes: Vec<String>,
    restart: Vec<String>,
}

impl ReloadPreview {
    fn text(&self, at: &str) -> String {
        let mut lines = vec![match &self.error {
            Some(error) => format!(
                "the server that answers at {at} would refuse to reload: {}",
                ask::plain(error)
            ),
            None if self.changes.is_empty() => {
                format!("a reload of the server that answers at {at} would change nothing")
            }
            None => format!("a reload of the server that answers at {at} would change:"),
        }];
        lines.extend(
            self.changes
                .iter()
                .map(|line| format!("  {}", ask::plain(line))),
        );
        if !self.restart.is_empty() {
            lines.push(format!("needs a restart: {}", self.restart.join(", ")));
        }
        lines.join("\n") + "\n"
    }
}
