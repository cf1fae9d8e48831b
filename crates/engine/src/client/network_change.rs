//! Reaction to a change of the network. The new network may reach a server that the old one could not, and timers would
//! take seconds to find out.

use std::time::Instant;

use quictun_flow::{ConnectionKey, Socket};

use super::Client;
use super::extra_attempts::is_asked;
use crate::connection::Connection;
use crate::role::RoleSteps;
use crate::traffic::Traffic;

impl Client {
    /// Asks the servers at once. The kernel announces each change of a route or device, and most leave this machine in
    /// the network where it was, so that what is known of the network stays.
    pub(crate) fn handle_network_change<S: Socket>(
        &mut self,
        now: Instant,
        traffic: &mut Traffic<S>,
    ) {
        ping(traffic, |_| true);
        for server in self.servers.ids() {
            let network = self.network_to(server);
            let ladder = self.servers.ladder(server);
            if ladder.is_some_and(|ladder| ladder.handle_network_change(now, network)) {
                let slots = self.slots.iter_mut();
                for slot in slots.filter(|slot| slot.server == server) {
                    slot.transfers.handle_network_change(now);
                }
            }
        }
        self.redial.handle_change(now);
        self.drive(now, traffic);
    }

    /// Handles a pause of the process that began at `since`. What has arrived meanwhile has been handled, so a
    /// connection that was heard needs no PING. A server that is asked on a connection needs no further attempt: on a
    /// crowded machine, processes pause again and again, and every attempt costs more time than a PING.
    pub(crate) fn handle_pause<S: Socket>(
        &mut self,
        now: Instant,
        traffic: &mut Traffic<S>,
        since: Instant,
    ) {
        ping(traffic, |connection| !connection.heard_since(since));
        let mut slots = self.slots.iter();
        if slots.any(|slot| !slot.is_up() && !is_asked(traffic, slot.server)) {
            self.redial.handle_change(now);
        }
        self.drive(now, traffic);
    }

    /// Dials at once instead of waiting for the next attempt.
    pub(super) fn redial_now(&mut self, now: Instant) {
        for slot in &mut self.slots {
            slot.redial_now(now);
        }
    }

    pub(crate) fn handle_new_port<S: Socket>(&mut self, now: Instant, traffic: &mut Traffic<S>) {
        for slot in &mut self.slots {
            slot.race_again(now);
        }
        self.drive(now, traffic);
    }
}

/// Sends a PING on the connections that `wanted` selects.
fn ping<S: Socket>(traffic: &mut Traffic<S>, wanted: impl Fn(&Connection) -> bool) {
    let connections = &mut traffic.connections;
    let all = connections.iter();
    let all = all.filter_map(|(key, connection)| wanted(connection).then_some(key));
    for key in all.collect::<Vec<ConnectionKey>>() {
        if let Some(connection) = connections.get_mut(key) {
            connection.send_ping();
            connections.want_transmit(key);
        }
    }
}
