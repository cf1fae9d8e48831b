//! The source of a reload: reads everything that a process can read again.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::change::Rules;
use super::client::ClientRules;
use super::error::{ReadConfig, ReloadError, RereadServer};
use super::joining::KeyStatus;
use super::server::ServerRules;
use crate::service::places;
use crate::settings::{Address, ClientSettings};
use quictun_control::reload::Changes;
use quictun_trust::access::{AccessError, OwnHttp, Policy};
use quictun_trust::enrolment::JoinAttempt;
use quictun_trust::identity;
use quictun_trust::settings::{Access, NamedClient, ServerIdentity};
use quictun_trust::tls;

/// Reads the rules. It opens files and may block, so it must not run on a worker or in an async task.
pub(crate) type LoadRules = Box<dyn Fn() -> Result<LoadedRules, ReloadError> + Send + Sync>;

#[derive(Debug)]
pub(crate) struct LoadedRules {
    rules: Rules,
    /// The keys of the configuration whose changes need a restart.
    restart: Vec<&'static str>,
    warnings: Vec<String>,
}

#[derive(Clone, Debug)]
pub(crate) struct PreparedReload {
    pub(crate) changes: Changes,
    pub(crate) rules: Rules,
    pub(crate) warnings: Vec<String>,
}

pub(crate) struct ReloadSource {
    load: LoadRules,
    in_force: Mutex<Rules>,
}

impl ReloadSource {
    pub(crate) fn new(load: LoadRules, rules: Rules) -> Self {
        Self {
            load,
            in_force: Mutex::new(rules),
        }
    }

    pub(crate) fn read(&self) -> Result<PreparedReload, ReloadError> {
        let LoadedRules {
            rules,
            restart,
            warnings,
        } = (self.load)()?;
        let lines = self.in_force().changes(&rules);
        Ok(PreparedReload {
            changes: Changes { lines, restart },
            rules,
            warnings,
        })
    }

    pub(crate) fn commit(&self, rules: &Rules) {
        *self.in_force() = rules.clone();
    }

    /// Returns the rules in force, with this client and its rules added.
    pub(super) fn with_client(&self, client: &NamedClient) -> Result<Rules, AccessError> {
        match &*self.in_force() {
            Rules::Server(rules) => Ok(Rules::Server(Arc::new(rules.with_client(client)?))),
            // Only servers have clients that join.
            Rules::Client(_) => Err(AccessError::Open),
        }
    }

    pub(super) fn key_status(&self, attempt: &JoinAttempt) -> KeyStatus {
        let Rules::Server(rules) = self.in_force().clone() else {
            return KeyStatus::OtherKey;
        };
        let name = attempt.join.name.as_str();
        match rules.policy.by_pin(&attempt.pin) {
            Some(client) if client.name() == name => KeyStatus::Same,
            Some(_) => KeyStatus::OtherName,
            None if rules.policy.by_name(name).is_some() => KeyStatus::OtherKey,
            None => KeyStatus::New,
        }
    }

    fn in_force(&self) -> MutexGuard<'_, Rules> {
        self.in_force.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns a function that reads the files of a reload, for the keeper.
pub(crate) fn reader(load: LoadRules) -> Box<dyn Fn()> {
    // The process that needs the files reports their errors.
    Box::new(move || drop(load()))
}

/// Returns the reload of a client. Its files are opened nowhere else.
///
/// `started_with` are the servers that the process was started with.
pub(crate) fn of_client(
    read: ReadConfig<ClientSettings>,
    started_with: Vec<Address>,
    shared: tls::SharedConfig,
) -> LoadRules {
    Box::new(move || {
        let settings = read()?;
        let rules = ClientRules::new(&settings, &started_with, &shared)?;
        let named: Vec<Address> = settings.servers().into_iter().map(|it| it.server).collect();
        let several = started_with.len() > 1 || !settings.other_servers.is_empty();
        let others = several && places::expand_services(&named) != started_with;
        Ok(LoadedRules {
            rules: Rules::Client(Arc::new(rules)),
            restart: if others { vec!["server"] } else { Vec::new() },
            warnings: Vec::new(),
        })
    })
}

/// Returns the reload of a server. Its files are opened nowhere else.
///
/// Only rules for the address itself permit the server's own HTTP interface, `own_http`, whose address stays the same.
pub(crate) fn of_server(
    read: ReadConfig<RereadServer>,
    own_http: Option<OwnHttp>,
    shared: tls::SharedConfig,
) -> LoadRules {
    Box::new(move || {
        let RereadServer {
            settings,
            restart,
            warnings,
        } = read()?;
        if matches!(settings.access, Access::Open { .. }) {
            return Err(ReloadError::Open);
        }
        let policy = Policy::new(&settings.access)?
            .with_own_http(own_http.clone())
            .with_header_targets(settings.header_targets.clone());
        let identity = match &settings.identity {
            ServerIdentity::Files(files) => identity::load_files(files)?,
            // A reload never makes a key: a missing key is a mistake.
            ServerIdentity::State(dir) => identity::load(dir, "server")?,
        };
        let rules = ServerRules::new(&settings.access, policy, &identity, &shared)?;
        Ok(LoadedRules {
            rules: Rules::Server(Arc::new(rules)),
            restart,
            warnings,
        })
    })
}
