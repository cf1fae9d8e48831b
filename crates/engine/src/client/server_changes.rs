//! Servers that change while the client runs: those that the SRV records of a service name, and those that a reload adds
//! or removes.

use std::time::Instant;

use quictun_flow::{BondKey, Socket};
use quictun_wire::code::{CloseCode, FlowCode};

use super::Client;
use super::slot::Slot;
use crate::config::ServerPlace;
use crate::report::ServerId;
use crate::role::RoleSteps;
use crate::traffic::Traffic;

impl Client {
    /// Sets the server in a place from now on. Another tenant ends the connections and flows of the one before.
    pub(crate) fn set_place<S: Socket>(
        &mut self,
        now: Instant,
        traffic: &mut Traffic<S>,
        server: ServerId,
        place: ServerPlace,
    ) {
        let Some(before) = self.servers.set_place(server, place) else {
            return;
        };
        if self.stopped || before == place {
            return;
        }
        let is_another = before.tenant != place.tenant;
        if is_another {
            self.end_all(now, traffic, server);
        } else if before.wanted && !place.wanted {
            self.leave(traffic, server);
            self.sweep_at = Some(now);
        }
        if before.rank.is_none() && place.rank.is_some() {
            let slots = self.slots.iter_mut();
            let of_server = slots.filter(|slot| slot.server == server);
            of_server.for_each(|slot| slot.redial_now(now));
        }
        if place.wanted && (is_another || !before.wanted) {
            let wanted = (0..self.role.connections.max(1)).map(|_| Slot::new(server, false));
            self.slots.extend(wanted);
        }
        self.drive(now, traffic);
        self.place_waiting(now, traffic);
    }

    /// Retires a server from new flows. It keeps its open flows, and is dialled for those that wait for it.
    fn leave<S: Socket>(&mut self, traffic: &mut Traffic<S>, server: ServerId) {
        for slot in self.slots.iter_mut().filter(|slot| slot.server == server) {
            slot.become_spare();
            let up = slot.up().and_then(|key| traffic.connections.get_mut(key));
            if let Some(connection) = up {
                connection.retire();
            }
        }
    }

    /// Ends the attempts, connections and waiting flows of the previous tenant.
    fn end_all<S: Socket>(&mut self, now: Instant, traffic: &mut Traffic<S>, server: ServerId) {
        let slots = std::mem::take(&mut self.slots);
        let (others, left): (Vec<Slot>, Vec<Slot>) =
            slots.into_iter().partition(|slot| slot.server != server);
        self.slots = others;
        for attempt in left.iter().flat_map(Slot::under_way) {
            traffic.end_attempt(now, attempt);
        }
        let connections = traffic.connections.iter();
        let of_server = connections.filter(|(_, connection)| connection.server == server);
        let ids: Vec<_> = of_server.map(|(_, connection)| connection.id()).collect();
        for id in ids {
            traffic.close_connection(now, id, CloseCode::Done);
        }
        self.note_ended(now, traffic);
        let bonds = traffic.bonds.unconnected();
        let of_server = |bond: &BondKey| {
            let bond = traffic.bonds.get(*bond);
            bond.is_some_and(|bond| bond.server == server)
        };
        let bonds: Vec<BondKey> = bonds.map(|(bond, _)| bond).filter(of_server).collect();
        for bond in bonds {
            traffic.give_up_waiting(now, bond, FlowCode::ConnectionLost);
            traffic.bonds.remove_unused(bond);
        }
    }
}
