//! Messages that carry new rules to the workers.

use std::sync::Arc;

use quictun_engine::report::ServerId;
use tokio::sync::mpsc::Sender;

use super::client::ClientRules;
use super::dialled::DialledServer;
use super::forwards::ForwardChange;
use super::server::ServerRules;
use crate::settings::TransportSettings;

#[derive(Clone, Debug)]
pub(crate) enum Rules {
    Server(Arc<ServerRules>),
    Client(Arc<ClientRules>),
}

impl Rules {
    /// Returns one sentence for each change from these rules to `new`.
    pub(super) fn changes(&self, new: &Self) -> Vec<String> {
        match (self, new) {
            (Self::Server(old), Self::Server(new)) => old.changes(new),
            (Self::Client(old), Self::Client(new)) => old.changes(new),
            // A process never changes from client to server or back.
            _ => Vec::new(),
        }
    }
}

/// The part of a client's rules that its workers have to do something about.
#[derive(Clone, Debug)]
pub(crate) struct ClientChange {
    /// The servers, by their places.
    pub(crate) dialled: Vec<DialledServer>,
    /// The server that listens for reverse forwards.
    pub(crate) reverse_server: Option<ServerId>,
    pub(crate) forwards: ForwardChange,
}

#[derive(Clone, Debug)]
pub(crate) struct RulesUpdate {
    pub(crate) rules: Rules,
    /// The change of the client's forwards and servers. `None` on a server.
    pub(crate) client: Option<Arc<ClientChange>>,
    /// The settings of the data path, if the configuration was read.
    pub(crate) transport: Option<Arc<TransportSettings>>,
    pub(super) done: Sender<RevokedCounts>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RevokedCounts {
    pub(crate) connections: usize,
    pub(crate) flows: usize,
}

impl RulesUpdate {
    /// Reports that the worker applies the new rules from now on.
    pub(crate) fn done(self, ended: RevokedCounts) {
        // The channel has room for every worker's answer. At the end of the process the receiver may be gone.
        if self.done.try_send(ended).is_err() {}
    }
}
