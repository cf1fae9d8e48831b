//! The forwards of a running client, and how a reload changes them.
//!
//! ```text
//!  the forwards that the configuration names now ─► ForwardTable::plan ─┬─► removed: workers close them
//!                                                                       ├─► retargeted: they keep their listeners
//!                                                                       └─► added: bound by the keeper, then watched by workers
//! ```

use std::io;
use std::sync::{Arc, Weak};

use quictun_io::socket_path::make_room;
use quictun_trust::keeper;
use tracing::debug;

use super::pairing::{pair, unpaired};
use crate::forward_listener::{ForwardDestination, ForwardListener};
use crate::listener::{self, Listener};
use crate::settings::{Forward, ForwardTo, ListenOn};

/// Identifies a forward in the process. Numbers are never reused.
pub(crate) type ForwardNumber = usize;

/// The forwards whose listeners are open.
#[derive(Clone, Debug, Default)]
pub(crate) struct ForwardTable {
    each: Vec<OpenForward>,
    next: ForwardNumber,
}

#[derive(Clone, Debug)]
struct OpenForward {
    number: ForwardNumber,
    forward: Forward,
    /// True if only this machine can reach the listener, which systemd may have made.
    is_local: bool,
    /// The address of the listener, for people.
    address: String,
    /// The listener, until the workers close it.
    listener: Weak<Listener>,
}

/// The difference between the open forwards and those that the configuration names.
#[derive(Debug, Default)]
pub(crate) struct ForwardPlan {
    pub(crate) removed: Vec<(ForwardNumber, ListenOn)>,
    pub(crate) retargeted: Vec<(ForwardNumber, Forward)>,
    pub(crate) added: Vec<Forward>,
}

/// A change of the forwards, for the workers.
#[derive(Clone, Debug, Default)]
pub(crate) struct ForwardChange {
    pub(crate) removed: Vec<ForwardNumber>,
    pub(crate) retargeted: Vec<(ForwardNumber, ForwardDestination)>,
    pub(crate) added: Vec<(ForwardNumber, ForwardListener)>,
}

impl ForwardTable {
    /// Adds a forward whose listener is open. Returns its number.
    pub(crate) fn add(&mut self, forward: Forward, listener: &Arc<Listener>) -> ForwardNumber {
        let number = self.next;
        self.next += 1;
        self.each.push(OpenForward {
            number,
            forward,
            is_local: listener.is_local(),
            address: listener.address(),
            listener: Arc::downgrade(listener),
        });
        number
    }

    /// Returns the changes that lead to these forwards.
    pub(crate) fn plan(&self, wanted: &[Forward]) -> ForwardPlan {
        let open: Vec<Forward> = self.each.iter().map(|it| it.forward.clone()).collect();
        let paired = pair(&open, wanted, |forward| forward.listen.clone());
        let mut plan = ForwardPlan::default();
        for index in unpaired(open.len(), &paired) {
            let OpenForward {
                number, forward, ..
            } = &self.each[index];
            plan.removed.push((*number, forward.listen.clone()));
        }
        for (forward, pair) in wanted.iter().zip(paired) {
            match pair.map(|index| &self.each[index]) {
                None => plan.added.push(forward.clone()),
                Some(open) if open.forward.to != forward.to => {
                    plan.retargeted.push((open.number, forward.clone()));
                }
                Some(_) => {}
            }
        }
        plan
    }

    /// Applies the part of a plan that needs no listener.
    pub(crate) fn apply(&mut self, plan: &ForwardPlan) {
        let is_removed = |number| plan.removed.iter().any(|(removed, _)| *removed == number);
        self.each.retain(|it| !is_removed(it.number));
        for (number, forward) in &plan.retargeted {
            if let Some(it) = self.each.iter_mut().find(|it| it.number == *number) {
                it.forward = forward.clone();
            }
        }
    }

    /// Returns the forwards whose listeners are open.
    pub(crate) fn forwards(&self) -> Vec<Forward> {
        self.each.iter().map(|it| it.forward.clone()).collect()
    }

    /// Returns the listeners that are open, and the addresses that the configuration has for them.
    pub(crate) fn listeners(&self) -> Vec<(ListenOn, Arc<Listener>)> {
        let each = self.each.iter();
        each.filter_map(|it| Some((it.forward.listen.clone(), it.listener.upgrade()?)))
            .collect()
    }

    /// Returns the addresses of the listeners, for people.
    pub(crate) fn addresses(&self) -> Vec<String> {
        self.each.iter().map(|it| it.address.clone()).collect()
    }

    /// Returns the address of a listener that would become a proxy for other machines.
    pub(crate) fn first_open_proxy(&self, wanted: &[Forward]) -> Option<&str> {
        let open: Vec<Forward> = self.each.iter().map(|it| it.forward.clone()).collect();
        let paired = pair(&open, wanted, |forward| forward.listen.clone());
        let pairs = wanted.iter().zip(paired);
        let mut proxies = pairs.filter(|(forward, _)| forward.to == ForwardTo::Proxy);
        proxies.find_map(|(_, pair)| {
            let open = &self.each[pair?];
            (!open.is_local).then_some(open.address.as_str())
        })
    }
}

/// Opens the listener of a forward. It waits for the keeper, so it must not run on a worker or in an async task.
pub(crate) fn open(address: &ListenOn) -> io::Result<Listener> {
    match keeper::listen(&address.to_string(), None) {
        None => listener::bind(address),
        Some(socket) => Ok(Listener::of_socket(address, socket?)),
    }
}

/// Removes the socket file of a listener that is closed. It waits for the keeper, so it must not run on a worker or in
/// an async task.
pub(crate) fn remove_file(address: &ListenOn) {
    let ListenOn::Unix(path) = address else {
        return;
    };
    let removed = keeper::remove_listener(&address.to_string()).unwrap_or_else(|| make_room(path));
    if let Err(cause) = removed {
        debug!(target: "quictun", path = %path.display(), %cause, "the socket file of a forward stays");
    }
}
