//! `quictun invite --list`: the clients that are invited, and those that have joined.

use std::fmt;

use anyhow::Context as _;
use jiff::Timestamp;
use quictun_args::native::enrolled::keys_of;
use quictun_args::native::settings::Server;
use quictun_link::units::Rate;
use quictun_trust::enrolment::{Directory, Entry};
use quictun_trust::limits::timestamp;
use quictun_trust::settings::ClientLimits;
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
    limits: ListedLimits,
}

/// The limits that the client has, or will have once it has joined. An absent one is not limited.
#[derive(Debug, Default, Serialize)]
struct ListedLimits {
    #[serde(skip_serializing_if = "Option::is_none")]
    max_flows: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rate_up_bytes_per_second: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rate_down_bytes_per_second: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    quota_bytes: Option<u64>,
    /// The time from which on the server refuses the client, as RFC 3339 text in UTC.
    #[serde(skip_serializing_if = "Option::is_none")]
    expires: Option<String>,
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
            limits: entry.limits.into(),
        });
    }
    clients.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(ClientList { clients })
}

fn joined(server: &Server) -> Vec<ListedClient> {
    let clients = server.settings.access.clients();
    let enrolled = |name: &str| server.enrolled.iter().any(|client| client.name == name);
    let joined = clients.iter().filter(|client| enrolled(&client.name));
    let shown = joined.map(|client| ListedClient {
        name: client.name.clone(),
        state: ClientState::Joined {
            keys: keys_of(client),
        },
        allow: client.allow.iter().map(ToString::to_string).collect(),
        limits: client.limits.into(),
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
        for client in &self.clients {
            let (name, state, limits) = (&client.name, &client.state, &client.limits);
            let allow = client.allow.join(", ");
            writeln!(f, "{name:widest$}  {state}: {allow}{limits}")?;
        }
        Ok(())
    }
}

impl From<ClientLimits> for ListedLimits {
    fn from(limits: ClientLimits) -> Self {
        Self {
            max_flows: limits.max_flows,
            rate_up_bytes_per_second: limits.rate_up,
            rate_down_bytes_per_second: limits.rate_down,
            quota_bytes: limits.quota,
            expires: limits.expires.map(timestamp),
        }
    }
}

/// Each limit with the key and spelling of a `[[client]]` table.
impl fmt::Display for ListedLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (up, down) = (
            self.rate_up_bytes_per_second,
            self.rate_down_bytes_per_second,
        );
        let (both, up, down) = if up == down {
            (up, None, None)
        } else {
            (None, up, down)
        };
        let rate = |key: &str, bytes: Option<u64>| bytes.map(|it| format!("{key} {}", Rate(it)));
        let limits = [
            self.max_flows.map(|flows| format!("max_flows {flows}")),
            rate("rate", both),
            rate("rate_up", up),
            rate("rate_down", down),
            self.quota_bytes.map(|bytes| format!("quota {bytes}B")),
            self.expires.as_ref().map(|at| format!("expires {at}")),
        ];
        let limits: Vec<String> = limits.into_iter().flatten().collect();
        if limits.is_empty() {
            return Ok(());
        }
        write!(f, "; {}", limits.join(", "))
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

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;

    fn listed(name: &str, limits: ClientLimits) -> ListedClient {
        let keys = vec!["sha256:47DE".to_owned()];
        ListedClient {
            name: name.to_owned(),
            state: ClientState::Joined { keys },
            allow: vec!["a:1".to_owned(), "b:2".to_owned()],
            limits: limits.into(),
        }
    }

    #[test]
    fn each_limit_is_shown_in_text_and_json_and_no_other() {
        let all = ClientLimits {
            max_flows: Some(10),
            rate_up: Some(2_500_000),
            rate_down: Some(1000),
            quota: Some(500_000_000_000),
            expires: Some(SystemTime::UNIX_EPOCH + Duration::from_hours(24)),
        };
        let same = ClientLimits {
            rate_up: Some(125_000),
            rate_down: Some(125_000),
            ..ClientLimits::default()
        };
        let list = ClientList {
            clients: vec![
                listed("guest", all),
                listed("laptop", same),
                listed("web", ClientLimits::default()),
            ],
        };
        let text = "\
guest   joined, sha256:47DE: a:1, b:2; max_flows 10, rate_up 20mbit, rate_down 8kbit, quota 500000000000B, expires 1970-01-02T00:00:00Z
laptop  joined, sha256:47DE: a:1, b:2; rate 1mbit
web     joined, sha256:47DE: a:1, b:2
";
        assert_eq!(list.to_string(), text);
        let json = serde_json::to_value(&list).expect("a list");
        let limits = |client: usize| json["clients"][client]["limits"].clone();
        assert_eq!(
            limits(0),
            serde_json::json!({
                "max_flows": 10,
                "rate_up_bytes_per_second": 2_500_000,
                "rate_down_bytes_per_second": 1000,
                "quota_bytes": 500_000_000_000u64,
                "expires": "1970-01-02T00:00:00Z",
            })
        );
        assert_eq!(limits(2), serde_json::json!({}));
    }
}
