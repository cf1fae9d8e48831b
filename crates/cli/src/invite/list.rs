//! `quictun invite --list`: the clients that are invited, and those that have joined.

use std::fmt;

use anyhow::Context as _;
use jiff::Timestamp;
use quictun_args::native::enrolled::keys_of;
use quictun_args::native::settings::Server;
use quictun_trust::enrolment::{Directory, Entry};
use quictun_trust::settings::Access;
use serde::Serialize;

/// The clients that are invited or have joined, sorted by name.
#[derive(Debug, Serialize)]
pub(super) struct ClientList {
    clients: Vec<ListedClient>,
}

#[derive(Debug, Serialize)]
struct ListedClient {
    name: String,
    #[serde(flatten)]
    state: ClientState,
    allow: Vec<String>,
}

#[derive(Debug, Serialize)]
#[serde(tag = "state", rename_all = "lowercase")]
enum ClientState {
    Invited {
        #[serde(serialize_with = "super::as_text")]
        expires: Timestamp,
    },
    Expired {
        #[serde(serialize_with = "super::as_text")]
        expires: Timestamp,
    },
    Joined {
        keys: Vec<String>,
    },
}

pub(super) fn clients(
    directory: &Directory,
    server: &Server,
    now_s: u64,
) -> anyhow::Result<ClientList> {
    let texts = directory.read();
    let texts = texts.with_context(|| format!("reading {}", directory.path().display()))?;
    let mut clients = joined(server);
    for (name, text) in texts {
        let Some(entry) = Entry::parse(&name, &text) else {
            continue;
        };
        let expires = i64::try_from(entry.until_s).ok();
        let expires = expires.and_then(|until| Timestamp::from_second(until).ok());
        let expires = expires.unwrap_or(Timestamp::MAX);
        let state = if entry.until_s <= now_s {
            ClientState::Expired { expires }
        } else {
            ClientState::Invited { expires }
        };
        clients.push(ListedClient {
            name,
            state,
            allow: entry.allow,
        });
    }
    clients.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(ClientList { clients })
}

fn joined(server: &Server) -> Vec<ListedClient> {
    let Access::Named { clients, .. } = &server.settings.access else {
        return Vec::new();
    };
    let enrolled = |name: &str| server.enrolled.iter().any(|client| client.name == name);
    let joined = clients.iter().filter(|client| enrolled(&client.name));
    let shown = joined.map(|client| ListedClient {
        name: client.name.clone(),
        state: ClientState::Joined {
            keys: keys_of(client),
        },
        allow: client.allow.iter().map(ToString::to_string).collect(),
    });
    shown.collect()
}

impl fmt::Display for ClientList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.clients.is_empty() {
            return writeln!(
                f,
                "no client is invited, and none has joined by an invitation"
            );
        }
        let widest = self.clients.iter().map(|client| client.name.len()).max();
        let widest = widest.unwrap_or(0);
        for ListedClient { name, state, allow } in &self.clients {
            writeln!(f, "{name:widest$}  {state}: {}", allow.join(", "))?;
        }
        Ok(())
    }
}

impl fmt::Display for ClientState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let local = |time: &Timestamp| {
            let local = time.to_zoned(jiff::tz::TimeZone::system());
            local.strftime("%Y-%m-%d %H:%M").to_string()
        };
        match self {
            Self::Invited { expires } => write!(f, "invited until {}", local(expires)),
            Self::Expired { expires } => write!(f, "expired {}", local(expires)),
            Self::Joined { keys } => write!(f, "joined, {}", keys.join(" ")),
        }
    }
}
