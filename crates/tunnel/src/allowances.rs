//! The allowances of all named clients, shared by all workers and kept across reloads.
//!
//! Workers take an [`Allowance`] when a client connects or the rules change, not for every byte.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime};

use quictun_control::rest::ClientUse;
use quictun_engine::{Allowance, AllowanceLimits, ClientUsage};
use quictun_trust::access::Policy;
use quictun_trust::limits::{ClientLimits, timestamp};

/// The table of allowances. Cloning is cheap and shares the table.
#[derive(Clone, Debug)]
pub(crate) struct Allowances {
    base: Instant,
    clients: Arc<Mutex<BTreeMap<String, Entry>>>,
}

#[derive(Debug)]
struct Entry {
    allowance: Arc<Allowance>,
    expires: Option<SystemTime>,
    /// The client is in the configuration.
    named: bool,
}

impl Allowances {
    /// Creates an empty table. No later call may pass a time before `base`.
    pub(crate) fn new(base: Instant) -> Self {
        Self {
            base,
            clients: Arc::default(),
        }
    }

    /// Applies the clients and limits of these rules. Each client's usage stays.
    pub(crate) fn apply(&self, policy: &Policy) {
        let mut clients = self.clients();
        for entry in clients.values_mut() {
            entry.named = false;
        }
        for name in policy.names() {
            let limits = policy.by_name(name).map(|client| *client.limits());
            let limits = limits.unwrap_or_default();
            let entry = self.entry(&mut clients, name);
            entry.named = true;
            entry.expires = limits.expires;
            entry.allowance.set(engine_limits(limits));
        }
    }

    /// Returns the allowance of a client.
    pub(crate) fn of(&self, name: &str) -> Arc<Allowance> {
        self.entry(&mut self.clients(), name).allowance.clone()
    }

    /// Returns the usage of each client in the configuration, ordered by name.
    pub(crate) fn uses(&self) -> Vec<ClientUse> {
        let now = SystemTime::now();
        let clients = self.clients();
        let named = clients.iter().filter(|(_, entry)| entry.named);
        named
            .map(|(name, entry)| ClientUse {
                name: name.clone(),
                usage: entry.allowance.usage(),
                expires: entry.expires.map(timestamp),
                expired: entry.expires.is_some_and(|expires| now >= expires),
            })
            .collect()
    }

    /// Returns the usage of each client that has moved any bytes, by name.
    pub(crate) fn used(&self) -> BTreeMap<String, ClientUsage> {
        let clients = self.clients();
        let usages = clients
            .iter()
            .map(|(name, entry)| (name, entry.allowance.usage()));
        let used = usages.filter(|(_, usage)| usage.used > 0);
        used.map(|(name, usage)| (name.clone(), usage)).collect()
    }

    /// Returns whether any client in the configuration has a quota.
    pub(crate) fn has_quotas(&self) -> bool {
        let clients = self.clients();
        let mut named = clients.values().filter(|entry| entry.named);
        named.any(|entry| entry.allowance.usage().limits.quota.is_some())
    }

    /// Sets the bytes that these clients have used before, and zero for all others.
    pub(crate) fn set_used(&self, used: &BTreeMap<String, u64>) {
        let mut clients = self.clients();
        for (name, &bytes) in used {
            self.entry(&mut clients, name).allowance.set_used(bytes);
        }
        for (name, entry) in clients.iter() {
            if !used.contains_key(name) {
                entry.allowance.set_used(0);
            }
        }
    }

    fn entry<'a>(&self, clients: &'a mut BTreeMap<String, Entry>, name: &str) -> &'a mut Entry {
        clients.entry(name.to_owned()).or_insert_with(|| Entry {
            allowance: Arc::new(Allowance::new(self.base)),
            expires: None,
            named: false,
        })
    }

    fn clients(&self) -> MutexGuard<'_, BTreeMap<String, Entry>> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn engine_limits(limits: ClientLimits) -> AllowanceLimits {
    AllowanceLimits {
        flows: limits.max_flows,
        rate_up: limits.rate_up,
        rate_down: limits.rate_down,
        quota: limits.quota,
    }
}
