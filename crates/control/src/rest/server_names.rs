//! The servers of a client by name, as `/v1/status` shows them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The names of all servers, indexed by their numbers in the engines. The process changes the list, and the interface
/// shows it. Clones share one list.
#[derive(Clone, Debug, Default)]
pub struct ServerNames(Arc<Mutex<Vec<Option<ServerName>>>>);

/// The name of one server, and its SRV record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerName {
    /// The name as it was given, or the host and port of the record.
    pub name: String,
    /// The server's SRV record, or `None` if no record names the server.
    pub record: Option<ServerRecord>,
    /// The service whose records named the server before, but no longer do. The server may still carry flows.
    pub withdrawn_from: Option<String>,
    /// True if the configuration no longer names the server.
    pub removed: bool,
    /// The server's address for TLS over TCP, if it is another one than its name.
    pub tls_address: Option<String>,
}

/// The contents of a server's SRV record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerRecord {
    /// The service, as it was given.
    pub service: String,
    /// The record's priority. While a server with a lower number answers, those with higher numbers are not used.
    pub priority: u16,
    /// The server's share of the clients, relative to the weights of the same priority.
    pub weight: u16,
}

impl ServerName {
    /// Returns whether the client connects to the server for new flows.
    pub fn is_current(&self) -> bool {
        self.withdrawn_from.is_none() && !self.removed
    }
}

impl ServerNames {
    /// Creates the list. `None` means that there is no server with this number at the moment.
    pub fn new(names: Vec<Option<ServerName>>) -> Self {
        Self(Arc::new(Mutex::new(names)))
    }

    /// Makes room for this number of servers.
    pub fn reserve(&self, count: usize) {
        let mut names = self.lock();
        let count = count.max(names.len());
        names.resize(count, None);
    }

    /// Replaces the name of a server. An unknown number is ignored.
    pub fn set(&self, server: usize, name: Option<ServerName>) {
        if let Some(known) = self.lock().get_mut(server) {
            *known = name;
        }
    }

    /// Returns the name of a server, or `None` if there is none with this number.
    pub fn get(&self, server: usize) -> Option<ServerName> {
        self.lock().get(server).cloned().flatten()
    }

    /// Returns all servers with their numbers, including those that were withdrawn.
    pub fn all(&self) -> Vec<(usize, ServerName)> {
        let names = self.lock();
        let known = names.iter().enumerate();
        let known = known.filter_map(|(server, name)| Some((server, name.clone()?)));
        known.collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Option<ServerName>>> {
        // Each name is replaced as a whole: a thread that panicked with the lock left the old or the new one.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Creates a list of servers that were given by name.
impl<S: Into<String>> FromIterator<S> for ServerNames {
    fn from_iter<I: IntoIterator<Item = S>>(names: I) -> Self {
        let named = |name: S| ServerName {
            name: name.into(),
            ..ServerName::default()
        };
        Self::new(names.into_iter().map(|name| Some(named(name))).collect())
    }
}
