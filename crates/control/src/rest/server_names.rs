//! The servers of a client by name, as `/v1/status` shows them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A list that the process changes and the interface shows: a server for each that the engines know, by its number there.
/// Clones are the same one.
#[derive(Clone, Debug, Default)]
pub struct ServerNames(Arc<Mutex<Vec<Option<ServerName>>>>);

/// One server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerName {
    /// As it was given, or the host and port of its record.
    pub name: String,
    /// What its record says, where it was found by one.
    pub record: Option<ServerRecord>,
}

/// What the SRV record of a server says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerRecord {
    /// The service, as it was given.
    pub service: String,
    /// No server with a higher number is used while one with a lower number answers.
    pub priority: u16,
    /// Part of the clients, among the servers of one priority.
    pub weight: u16,
}

impl ServerNames {
    /// The list of these servers; `None`: there is none with this number at the moment.
    pub fn new(names: Vec<Option<ServerName>>) -> Self {
        Self(Arc::new(Mutex::new(names)))
    }

    /// Shows this in place of a server.
    pub fn set(&self, server: usize, name: Option<ServerName>) {
        if let Some(known) = self.lock().get_mut(server) {
            *known = name;
        }
    }

    /// One server.
    pub fn get(&self, server: usize) -> Option<ServerName> {
        self.lock().get(server).cloned().flatten()
    }

    /// All, by their numbers.
    pub fn all(&self) -> Vec<(usize, ServerName)> {
        let names = self.lock();
        let known = names.iter().enumerate();
        let known = known.filter_map(|(server, name)| Some((server, name.clone()?)));
        known.collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Option<ServerName>>> {
        // Each name is replaced whole: a thread that panicked with the lock left the old or the new one.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Servers that stand for themselves.
impl<S: Into<String>> FromIterator<S> for ServerNames {
    fn from_iter<I: IntoIterator<Item = S>>(names: I) -> Self {
        let named = |name: S| ServerName {
            name: name.into(),
            record: None,
        };
        Self::new(names.into_iter().map(|name| Some(named(name))).collect())
    }
}
