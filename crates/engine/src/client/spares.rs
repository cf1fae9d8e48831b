//! Connections beyond the wanted ones: made when flows would have to wait, closed when they are idle.

use std::time::{Duration, Instant};

use quictun_flow::Socket;
use quictun_wire::code::CloseCode;

use crate::client::{Slot, State};
use crate::engine::{Engine, Role};
use crate::report::Protocol;

/// Connections beyond the wanted ones, made when streams run out or a server answers late.
const SPARES_MAX: usize = 32;

/// A spare connection without flows goes away after this.
pub(super) const SPARE_IDLE: Duration = Duration::from_secs(30);

/// Compatibility: the original dials one target after the other, so an answer this late may mean that
/// one dead target holds up all that follow on the same connection.
pub(super) const ANSWER_LATE: Duration = Duration::from_secs(2);

impl<S: Socket> Engine<S> {
    /// Compatibility: the server has not answered a request for long; others should not wait behind it.
    pub(crate) fn answer_is_late(&mut self, now: Instant, key: usize) {
        let Some((entry, connection)) = self.entry_and_connection(key) else {
            return;
        };
        let Some(place) = entry.place else { return };
        // A later request was answered before this one: this server does not serve one after the other.
        let overtaken = connection.answered > Some(place.stream.index());
        if !entry.established && !overtaken && connection.protocol == Some(Protocol::Compat) {
            let noticed = std::mem::replace(&mut connection.retiring, true);
            if let Role::Client(client) = &mut self.role {
                if let Some(index) = client.slot_of(place.handle) {
                    client.slots[index].state = State::Idle;
                }
                client.sweep_at.get_or_insert(now + SPARE_IDLE);
            }
            if !noticed {
                // It waits for its own target; those behind it need not.
                self.reopen_unanswered(now, place.handle, Some(place.stream.index()));
            }
            self.drive_client(now);
        }
    }

    /// Flows wait although the wanted connections are up: make another.
    pub(super) fn want_spare(&mut self, now: Instant) {
        let Role::Client(client) = &mut self.role else {
            return;
        };
        let coming = client
            .slots
            .iter()
            .any(|slot| !matches!(slot.state, State::Up(_)));
        let spares = client.slots.iter().filter(|slot| slot.spare).count();
        if !coming && spares < SPARES_MAX {
            client.slots.push(Slot::new(true));
            client.sweep_at = Some(now + SPARE_IDLE);
        }
    }

    /// Closes spares, and connections that left their slot, once they have been idle for a while.
    pub(super) fn sweep_spares(&mut self, now: Instant) {
        let Role::Client(client) = &mut self.role else {
            return;
        };
        if client.sweep_at.is_none_or(|at| at > now) {
            return;
        }
        let mut close = Vec::new();
        let mut again = false;
        for (handle, connection) in self.connections.iter().enumerate() {
            let Some(connection) = connection else {
                continue;
            };
            let spare = match client.slot_of(handle) {
                Some(index) => client.slots[index].spare,
                None => connection.protocol.is_some(),
            };
            if spare && !connection.quic.is_closed() {
                again = true;
                let idle = connection.idle_since;
                let confirmed = connection.control.unconfirmed() == 0;
                if confirmed && idle.is_some_and(|since| now >= since + SPARE_IDLE) {
                    close.push(connection.id);
                }
            }
        }
        client.sweep_at = again.then(|| now + SPARE_IDLE);
        for id in close {
            self.close_connection(now, id, CloseCode::Done);
        }
        if let Role::Client(client) = &mut self.role {
            let wanted = !client.waiting.is_empty();
            client.slots.retain(|slot| {
                wanted || !slot.spare || !matches!(slot.state, State::Idle | State::Waiting(_))
            });
        }
    }
}
