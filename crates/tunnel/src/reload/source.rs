//! The source of a reload: reads everything that a process can read again.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::change::Rules;
use super::client::ClientRules;
use super::error::{ReadConfig, ReloadError, RereadClient, RereadServer};
use super::pairing::made;
use super::running_client::ClientState;
use super::server::ServerRules;
use crate::listener::with_one_listener;
use crate::settings::{Address, TransportSettings};
use quictun_control::reload::Changes;
use quictun_trust::access::{AccessError, OwnHttp, Policy};
use quictun_trust::enrolment::JoinAttempt;
use quictun_trust::identity;
use quictun_trust::keeper::{LoadFn, LoadPurpose};
use quictun_trust::settings::{Access, NamedClient, ServerIdentity};
use quictun_trust::tls;

/// Reads the rules. It opens files and may block, so it must not run on a worker or in an async task.
pub(crate) type LoadRules = Box<dyn Fn() -> Result<LoadedRules, ReloadError> + Send + Sync>;

#[derive(Debug)]
pub(crate) struct LoadedRules {
    rules: Rules,
    transport: TransportSettings,
    /// The keys of the configuration whose changes need a restart.
    restart: Vec<&'static str>,
    warnings: Vec<String>,
}

#[derive(Clone, Debug)]
pub(crate) struct PreparedReload {
    pub(crate) changes: Changes,
    pub(crate) rules: Rules,
    pub(crate) transport: Arc<TransportSettings>,
    pub(crate) warnings: Vec<String>,
}

pub(crate) struct ReloadSource {
    load: LoadRules,
    in_force: Mutex<Rules>,
    transport: Mutex<Arc<TransportSettings>>,
}

/// The relation of an attempt's key and name to the rules in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyStatus {
    /// The rules contain neither the key nor the name.
    New,
    /// The rules contain the key under this name.
    Same,
    /// The rules contain the key under another name.
    OtherName,
    /// The rules contain the name with another key.
    OtherKey,
}

impl ReloadSource {
    pub(crate) fn new(load: LoadRules, rules: Rules, transport: TransportSettings) -> Self {
        Self {
            load,
            in_force: Mutex::new(rules),
            transport: Mutex::new(Arc::new(transport)),
        }
    }

    pub(crate) fn read(&self) -> Result<PreparedReload, ReloadError> {
        let LoadedRules {
            rules,
            transport,
            restart,
            warnings,
        } = (self.load)()?;
        let mut lines = self.in_force().changes(&rules);
        lines.extend(transport_changes(&self.transport(), &transport));
        Ok(PreparedReload {
            changes: Changes { lines, restart },
            rules,
            transport: Arc::new(transport),
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

    /// Returns the settings of the data path that are in force.
    pub(crate) fn transport(&self) -> Arc<TransportSettings> {
        let transport = self.transport.lock();
        transport.unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn commit_transport(&self, transport: &Arc<TransportSettings>) {
        let mut known = self
            .transport
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *known = transport.clone();
    }

    fn in_force(&self) -> MutexGuard<'_, Rules> {
        self.in_force.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns one sentence for each key of the data path that a reload applies and that has another value.
fn transport_changes(old: &TransportSettings, new: &TransportSettings) -> Vec<String> {
    let changed = made(&[
        ("congestion", old.congestion != new.congestion),
        ("idle_timeout", old.idle_timeout != new.idle_timeout),
        ("keep_alive", old.keep_alive != new.keep_alive),
        ("datagram_idle", old.datagram_idle != new.datagram_idle),
        ("drain", old.drain != new.drain),
    ]);
    let lines = changed
        .iter()
        .map(|key| format!("transport.{key}: another value"));
    lines.collect()
}

/// Returns a function that reads the files of a reload, for the keeper. `apply` gets valid rules that are to be in force
/// from now on.
pub(crate) fn reader(load: LoadRules, apply: impl Fn(&Rules) + 'static) -> LoadFn {
    Box::new(move |purpose| match (load(), purpose) {
        (Ok(loaded), LoadPurpose::Apply) => apply(&loaded.rules),
        // The process that needs the files reports their errors.
        (Ok(_), LoadPurpose::Preview) | (Err(_), _) => {}
    })
}

/// Returns the reload of a client. Its files are opened nowhere else.
pub(crate) fn of_client(
    read: ReadConfig<RereadClient>,
    state: Arc<ClientState>,
    shared: tls::SharedConfig,
) -> LoadRules {
    Box::new(move || {
        let RereadClient {
            mut settings,
            mut restart,
        } = read()?;
        settings.forwards = with_one_listener(settings.forwards);
        let named: Vec<Address> = settings.servers().into_iter().map(|it| it.server).collect();
        let planned = state.dialled.plan(&named);
        if planned.is_none() {
            restart.push("server");
        }
        let dialled = planned.unwrap_or_else(|| state.dialled.places());
        let rules = ClientRules::new(&settings, dialled, &shared)?;
        let open = state.forwards();
        if rules.logins.is_none()
            && let Some(proxy) = open.first_open_proxy(&rules.forwards)
        {
            return Err(ReloadError::OpenProxy(proxy.to_owned()));
        }
        Ok(LoadedRules {
            rules: Rules::Client(Arc::new(rules)),
            transport: settings.transport,
            restart,
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
            .with_header_targets(settings.header_targets.clone())
            .with_dial_family(settings.dial_family);
        let identity = match &settings.identity {
            ServerIdentity::Files(files) => identity::load_files(files)?,
            // A reload never makes a key: a missing key is a mistake.
            ServerIdentity::State(dir) => identity::load(dir, "server")?,
        };
        let rules = ServerRules::new(&settings.access, policy, &identity, &shared)?;
        Ok(LoadedRules {
            rules: Rules::Server(Arc::new(rules)),
            transport: settings.transport,
            restart,
            warnings,
        })
    })
}
