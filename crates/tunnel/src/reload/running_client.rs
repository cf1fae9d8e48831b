//! The parts of a running client that a reload changes, and the order of these changes.
//!
//! ```text
//!  read ─► plan ─► workers: close, retarget, servers ─► the keeper binds what is new ─► workers: watch it
//! ```
//!
//! A listener closes before another one is bound, because the new address may contain the old one.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use quictun_control::rest::{ListenAddresses, ServerName};
use quictun_engine::report::ServerId;
use tracing::{info, warn};

use super::change::{ClientChange, RevokedCounts, Rules};
use super::client::ClientRules;
use super::dialled::DialledServers;
use super::forwards::{self, ForwardChange, ForwardPlan, ForwardTable};
use super::send_rules::send_rules;
use crate::disk_queue::RULES;
use crate::forward_listener::{ForwardDestination, ForwardListener};
use crate::listener::Listener;
use crate::mailbox::Mailbox;
use crate::servers::Servers;
use crate::settings::{Forward, ListenOn, TransportSettings};

/// The open forwards and the servers of a client.
#[derive(Debug, Default)]
pub(crate) struct ClientState {
    forwards: Mutex<ForwardTable>,
    pub(crate) dialled: Arc<DialledServers>,
}

/// A client that runs.
#[derive(Clone, Debug)]
pub(crate) struct RunningClient {
    pub(crate) state: Arc<ClientState>,
    pub(crate) servers: Arc<Servers>,
    pub(crate) listen: ListenAddresses,
}

impl ClientState {
    pub(crate) fn new(forwards: ForwardTable, dialled: Arc<DialledServers>) -> Self {
        Self {
            forwards: Mutex::new(forwards),
            dialled,
        }
    }

    pub(crate) fn forwards(&self) -> MutexGuard<'_, ForwardTable> {
        // Each change of the table is one step.
        self.forwards.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RunningClient {
    /// Applies new rules. Returns the number of revoked flows, the rules in force, and one sentence for each forward that
    /// cannot listen.
    pub(super) async fn apply(
        &self,
        rules: &ClientRules,
        transport: &Arc<TransportSettings>,
        mailboxes: &[Mailbox],
    ) -> (RevokedCounts, Arc<ClientRules>, Vec<String>) {
        self.apply_servers(rules);
        let plan = self.state.forwards().plan(&rules.forwards);
        let change = change(rules, &plan);
        let rules = Arc::new(rules.clone());
        let update = Rules::Client(rules.clone());
        let first = Arc::new(change.clone());
        let ended = send_rules(&update, Some(&first), Some(transport), mailboxes).await;
        self.state.forwards().apply(&plan);
        let (opened, failed) = open_all(plan).await;
        let mut added = Vec::new();
        for (forward, listener) in opened {
            let (listen, to) = (listener.address(), forward.to.to_string());
            let Some(of_worker) = ForwardListener::of(&forward, Arc::new(listener)) else {
                continue;
            };
            let number = self.state.forwards().add(forward, &of_worker.listener);
            info!(target: "quictun", { "listen address" = listen, to }, "listening for a new forward");
            added.push((number, of_worker));
        }
        if !added.is_empty() {
            let forwards = ForwardChange {
                added,
                ..ForwardChange::default()
            };
            let change = ClientChange { forwards, ..change };
            send_rules(&update, Some(&Arc::new(change)), None, mailboxes).await;
        }
        let table = self.state.forwards();
        self.listen.set(table.addresses());
        let in_force = rules.with_forwards(table.forwards());
        (ended, Arc::new(in_force), failed)
    }

    fn apply_servers(&self, rules: &ClientRules) {
        let before = self.state.dialled.places();
        for (index, place) in rules.dialled.iter().enumerate() {
            if before.get(index) == Some(place) {
                continue;
            }
            if let Some(server) = place.place() {
                let name = ServerName {
                    name: place.address.to_string(),
                    removed: !place.wanted,
                    tls_address: place.address.tls_address(place.tls_port),
                    ..ServerName::default()
                };
                self.servers.set_place(ServerId(index), server, Some(name));
            }
        }
        self.state.dialled.set(rules.dialled.clone());
    }
}

/// Returns the part of the rules that workers have to do something about, without the listeners that are opened later.
fn change(rules: &ClientRules, plan: &ForwardPlan) -> ClientChange {
    let retargeted = plan
        .retargeted
        .iter()
        .filter_map(|(number, forward)| Some((*number, ForwardDestination::of(&forward.to)?)));
    ClientChange {
        dialled: rules.for_workers(),
        reverse_server: rules.first_server(),
        forwards: ForwardChange {
            removed: plan.removed.iter().map(|(number, _)| *number).collect(),
            retargeted: retargeted.collect(),
            added: Vec::new(),
        },
    }
}

/// Removes the socket files of the listeners that a plan closes, and opens those that it adds. Returns the open ones,
/// and one sentence for each that cannot be opened.
async fn open_all(plan: ForwardPlan) -> (Vec<(Forward, Listener)>, Vec<String>) {
    let results = RULES.run(move || {
        for (_, listen) in &plan.removed {
            forwards::remove_file(listen);
        }
        let each = plan.added.into_iter().map(|forward| {
            let opened = forwards::open(&forward.listen);
            (forward, opened)
        });
        each.collect::<Vec<(Forward, io::Result<Listener>)>>()
    });
    // An error is a panic, which has a log line of its own.
    let results = results.await.unwrap_or_default();
    let (mut opened, mut failed) = (Vec::new(), Vec::new());
    for (forward, result) in results {
        match result {
            Ok(listener) => opened.push((forward, listener)),
            Err(cause) => {
                let listen = &forward.listen;
                warn!(target: "quictun", %listen, %cause, "a forward of the new configuration cannot listen: it is left out until the next reload");
                failed.push(failure(listen, &cause));
            }
        }
    }
    (opened, failed)
}

fn failure(listen: &ListenOn, cause: &io::Error) -> String {
    format!("forward {listen}: cannot listen: {cause}")
}
