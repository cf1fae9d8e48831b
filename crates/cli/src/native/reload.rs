//! Reading the configuration again: in the process that runs, and for one who wants to know what that would change.

use quictun_tunnel::reload::{ServerAgain, Unreadable};
use quictun_tunnel::settings::{ClientSettings, ServerSettings};
use serde::Deserialize;

use super::action::{Action, parse};
use crate::ask::{self, AskError};
use quictun_args::inputs::Inputs;
use quictun_args::layers::Kept;

/// What `quictun server` would run with if this process were started now: the same arguments, environment and working
/// directory, and the files as they are. `started` is what it was started with.
pub(super) fn read_server(started: &Kept) -> Result<ServerAgain, Unreadable> {
    match parse(&Inputs::of_process())? {
        Action::Server(server) => Ok(ServerAgain {
            settings: server.settings,
            restart: started.changed(&server.kept),
            warnings: server.warnings,
        }),
        _ => unreachable!("invariant: a running server was asked for by these arguments"),
    }
}

/// The same for `quictun client`.
pub(super) fn read_client() -> Result<ClientSettings, Unreadable> {
    match parse(&Inputs::of_process())? {
        Action::Client(client) => Ok(client),
        _ => unreachable!("invariant: a running client was asked for by these arguments"),
    }
}

/// What a reload would change in the server that runs with this HTTP interface; empty where none does.
pub(super) fn would_change(settings: &ServerSettings) -> String {
    let Some(http) = &settings.control.httpd else {
        return String::new();
    };
    let would = match ask::get::<WouldChange>(http, "/v1/reload") {
        Ok(would) => would,
        // No server runs: there is nothing to reload.
        Err(AskError::Nobody(_)) => return String::new(),
        Err(AskError::Other(error)) => {
            return format!("what a reload would change is not known: {error}\n");
        }
    };
    would.text(&http.to_string())
}

/// `GET /v1/reload`.
#[derive(Debug, Deserialize)]
struct WouldChange {
    error: Option<String>,
    changes: Vec<String>,
    restart: Vec<String>,
}

impl WouldChange {
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
