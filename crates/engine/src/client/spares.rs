//! Connections beyond the wanted ones: opened when flows would have to wait, closed when idle.

use std::time::{Duration, Instant};

use quictun_flow::{ConnectionKey, FlowKey, Socket};
use quictun_wire::code::CloseCode;

use super::Client;
use super::slot::Slot;
use crate::report::{CarrierKind, Protocol};
use crate::role::RoleSteps;
use crate::traffic::Traffic;

/// Limit for connections beyond the wanted ones, which are made when streams run out or a server answers late.
const SPARES_MAX: usize = 32;

/// Minimum time that an attempt beside a silent connection gets for an answer.
const ANSWER_TIME_MIN: Duration = Duration::from_millis(200);

/// The same limit in round trips. A handshake takes one, or two if an address must be validated.
const ANSWER_ROUND_TRIPS: u32 = 4;

/// Time after which a spare connection without flows is closed.
pub(super) const SPARE_IDLE: Duration = Duration::from_secs(30);

impl Client {
    /// Takes a connection out of its slot if it does not answer. If it carries flows of a slot whose connection is
    /// another one, that one is left, too, unless it was heard meanwhile.
    pub(super) fn check_connection<S: Socket>(
        &mut self,
        now: Instant,
        traffic: &mut Traffic<S>,
        key: ConnectionKey,
    ) {
        let Some(connection) = traffic.connections.get(key) else {
            return;
        };
        let Some(silent_since) = connection.silent_since() else {
            return;
        };
        let is_as_silent = |slot: &Slot| {
            let up = slot.up().and_then(|up| traffic.connections.get(up));
            let of_bond = slot.bond.is_some() && slot.bond == connection.bond;
            of_bond && up.is_some_and(|up| !up.heard_since(silent_since))
        };
        let to_leave = |slot: &Slot| slot.up() == Some(key) || is_as_silent(slot);
        if let Some(index) = self.slots.iter().position(to_leave) {
            let resolved = connection.resolved;
            let unresponsive = connection.is_unresponsive();
            let by_quic = connection.carrier.kind() == CarrierKind::Quic;
            let ladder = self.servers.ladder(connection.server);
            let chooses = ladder.is_some_and(|ladder| ladder.chooses());
            let unproven = by_quic && chooses && !connection.is_admitted();
            let answer_time = ANSWER_TIME_MIN.max(ANSWER_ROUND_TRIPS * connection.answer_time(now));
            if let Some(other) = self.slots[index].up().filter(|&up| up != key)
                && let Some(other) = traffic.connections.get_mut(other)
            {
                // The idle connection has not noticed the silence. A retired connection takes no new flows.
                other.retire();
            }
            self.slots[index].leave_silent(resolved);
            self.sweep_at.get_or_insert(now + SPARE_IDLE);
            if unproven {
                self.leave_unproven(now, traffic, index);
            } else if !unresponsive {
                self.race(now, traffic, index);
                self.slots[index].expect_answer_within(now, answer_time);
            }
        }
    }

    /// Compatibility: handles a request that the server has not answered for long, so that other requests do not wait
    /// behind it.
    pub(super) fn handle_late_answer<S: Socket>(
        &mut self,
        now: Instant,
        traffic: &mut Traffic<S>,
        key: FlowKey,
    ) {
        let Some(entry) = traffic.flows.get(key) else {
            return;
        };
        let (Some(stream_key), established) = (entry.stream_key(), entry.is_established()) else {
            return;
        };
        let Some(connection) = traffic.connections.get_mut(stream_key.connection) else {
            return;
        };
        // A later request was answered first, so this server does not serve requests one after the other.
        let overtaken = connection.streams.is_overtaken(stream_key.stream);
        if established || overtaken || !connection.speaks(Protocol::Compat) {
            return;
        }
        let new = connection.retire();
        if let Some(index) = self.slot_of(stream_key.connection) {
            self.slots[index].vacate();
        }
        self.sweep_at.get_or_insert(now + SPARE_IDLE);
        if new {
            // The late flow waits for its own target. Those behind it need not wait.
            let behind = Some(stream_key.stream.index());
            self.reopen_unanswered(now, traffic, stream_key.connection, behind);
        }
        self.drive(now, traffic);
    }

    /// Makes another connection if flows wait although the wanted connections are up.
    pub(super) fn want_spare<S: Socket>(&mut self, now: Instant, traffic: &Traffic<S>) {
        let Some(server) = self.servers.chosen() else {
            return;
        };
        let mut slots = self.slots.iter().filter(|slot| slot.server == server);
        let coming = slots.any(|slot| !slot.is_up() || self.awaits_admission(traffic, slot));
        let spares = self.slots.iter().filter(|slot| slot.is_spare()).count();
        if !coming && spares < SPARES_MAX {
            self.slots.push(Slot::new(server, true));
            self.sweep_at = Some(now + SPARE_IDLE);
        }
    }

    pub(super) fn sweep_spares<S: Socket>(&mut self, now: Instant, traffic: &mut Traffic<S>) {
        if self.sweep_at.is_none_or(|at| at > now) {
            return;
        }
        let mut close = Vec::new();
        let mut again = false;
        for (key, connection) in traffic.connections.iter() {
            let spare = match self.slot_of(key) {
                Some(index) => self.slots[index].is_spare(),
                None => connection.is_established(),
            };
            if spare && !connection.is_closed() {
                again = true;
                let confirmed = connection.control.unconfirmed() == 0;
                if confirmed && connection.streams.is_idle_for(now, SPARE_IDLE) {
                    close.push(connection.id());
                }
            }
        }
        for id in close {
            traffic.close_connection(now, id, CloseCode::Done);
        }
        self.note_ended(now, traffic);
        self.drop_idle_spares(now, traffic);
        // A spare that dials has no connection yet, and may never have one.
        again |= self.slots.iter().any(Slot::is_spare);
        self.sweep_at = again.then(|| now + SPARE_IDLE);
    }

    /// Removes spare slots without a connection that no flow waits for, and ends their attempts.
    fn drop_idle_spares<S: Socket>(&mut self, now: Instant, traffic: &mut Traffic<S>) {
        let wanted = !self.waiting.is_empty();
        let slots = std::mem::take(&mut self.slots);
        let (kept, dropped): (Vec<Slot>, Vec<Slot>) = slots.into_iter().partition(|slot| {
            let bond = slot.bond.and_then(|bond| traffic.bonds.get(bond));
            let waits = bond.is_some_and(|bond| bond.count() > 0);
            wanted || waits || !slot.is_spare() || slot.is_up()
        });
        self.slots = kept;
        for slot in dropped {
            if let Some(bond) = slot.bond {
                traffic.bonds.remove(bond);
            }
            for attempt in slot.under_way() {
                traffic.end_attempt(now, attempt);
            }
        }
    }
}
