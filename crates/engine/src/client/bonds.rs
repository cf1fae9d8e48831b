//! The bonds of a client. Each wanted connection has a bond, and the next connection of the slot continues it.

use std::time::Instant;

use quictun_flow::{BondKey, ConnectionKey, Socket};

use super::Client;
use super::slot::Slot;
use super::spares::SPARE_IDLE;
use crate::report::ServerId;
use crate::role::RoleSteps;
use crate::traffic::Traffic;

/// Returns the server's worker that has the slot's bond, if flows depend on it, or if the server is to learn of flows that
/// were reset: their targets wait (PROTOCOL BOND-6).
pub(super) fn route_of<S: Socket>(slot: &Slot, traffic: &Traffic<S>) -> Option<u8> {
    let bond = traffic.bonds.get(slot.bond?)?;
    (bond.granted && (bond.count() > 0 || bond.has_resets())).then_some(bond.route)
}

impl Client {
    /// Returns the bond for the next connection of a slot.
    pub(super) fn bond_of<S: Socket>(
        &mut self,
        traffic: &mut Traffic<S>,
        index: usize,
    ) -> Option<BondKey> {
        if self.role.bond_ttl.is_zero() {
            return None;
        }
        let slot = &mut self.slots[index];
        let known = slot
            .bond
            .filter(|&bond| traffic.bonds.can_be_requested(bond));
        let bond = known.unwrap_or_else(|| traffic.bonds.create(slot.server));
        Some(*slot.bond.insert(bond))
    }

    /// Finds slots for bonds that belong to no slot but have flows that wait. Such bonds exist because two
    /// connections of one slot may both have been granted a bond.
    pub(super) fn adopt_bonds<S: Socket>(&mut self, now: Instant, traffic: &mut Traffic<S>) {
        let of_slots = |bond| self.slots.iter().any(|slot| slot.bond == Some(bond));
        let others = traffic
            .bonds
            .unconnected()
            .filter(|&(bond, _)| !of_slots(bond));
        let others: Vec<_> = others.collect();
        for (bond, waits) in others {
            if waits {
                let server = traffic.bonds.get(bond).map(|bond| bond.server);
                self.adopt(now, server.unwrap_or_default(), bond);
            } else {
                traffic.bonds.remove_unused(bond);
            }
        }
    }

    /// Gives a bond without a slot to a slot that has not dialled yet and has no bond, or to a spare one.
    pub(crate) fn adopt(&mut self, now: Instant, server: ServerId, bond: BondKey) {
        let is_free = |slot: &&mut Slot| slot.server == server && slot.is_new();
        if let Some(slot) = self.slots.iter_mut().find(is_free) {
            slot.bond = Some(bond);
            return;
        }
        let mut slot = Slot::new(server, true);
        slot.bond = Some(bond);
        self.slots.push(slot);
        self.sweep_at.get_or_insert(now + SPARE_IDLE);
    }

    /// Handles a connection that answers again. If its slot has no other connection yet, the connection takes the slot
    /// back.
    pub(super) fn handle_back<S: Socket>(
        &mut self,
        now: Instant,
        traffic: &mut Traffic<S>,
        key: ConnectionKey,
    ) {
        let connection = traffic.connections.get(key);
        let bond = connection
            .filter(|connection| connection.is_usable())
            .and_then(|connection| connection.bond);
        if let Some(bond) = bond
            && let Some(slot) = self.slots.iter_mut().find(|slot| slot.bond == Some(bond))
            && let Some(attempts) = slot.restore(key)
        {
            let kind = connection.map(|connection| connection.carrier.kind());
            if let (Some(kind), Some(ladder)) = (kind, self.servers.ladder(slot.server)) {
                ladder.handle_carried(now, kind);
            }
            for attempt in attempts {
                traffic.end_attempt(now, attempt);
            }
        }
        // A later connection may have been lost, so that flows wait.
        traffic.move_flows(now, key);
        self.place_waiting(now, traffic);
    }

    /// Replaces every connection by a new one.
    pub(crate) fn reconnect<S: Socket>(&mut self, now: Instant, traffic: &mut Traffic<S>) {
        for slot in &mut self.slots {
            let Some(key) = slot.up() else { continue };
            if let Some(connection) = traffic.connections.get_mut(key) {
                connection.retire();
            }
            slot.vacate();
        }
        self.sweep_at.get_or_insert(now);
        self.drive(now, traffic);
    }
}
