//! Groups the moves of flows to the next connection of their bond: one log line per connection, not one per flow.
//!
//! ```text
//! Rejoined ─► waiting ─── Moved ───► moving ─── all have moved, or none did for a while ───► logged
//!                └────────── Disconnected ──────────┴─► logged, as far as they had moved
//! ```

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use quictun_engine::{ConnectionId, LeaveReason};

/// Time without another move after which the moves so far are logged. A thousand flows move within two seconds, without
/// a pause.
const QUIET: Duration = Duration::from_secs(1);

/// The connections to which flows are moving.
#[derive(Debug, Default)]
pub(crate) struct Moves(BTreeMap<ConnectionId, Move>);

/// The move of flows to one connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Move {
    pub(crate) connection: ConnectionId,
    pub(crate) remote: SocketAddr,
    /// Number of flows that have moved.
    pub(crate) flows: usize,
    /// The longest time without progress of any of these flows.
    pub(crate) without: Duration,
    /// The reason why the flows left their earlier connection.
    pub(crate) reason: LeaveReason,
    /// Number of flows that have not moved yet.
    missing: usize,
    quiet_at: Option<Instant>,
}

impl Moves {
    /// Handles that a bond has its next connection, with this number of flows to move.
    pub(crate) fn handle_rejoined(
        &mut self,
        connection: ConnectionId,
        remote: SocketAddr,
        flows: usize,
        reason: LeaveReason,
    ) {
        if flows > 0 {
            let begun = Move {
                connection,
                remote,
                flows: 0,
                without: Duration::ZERO,
                reason,
                missing: flows,
                quiet_at: None,
            };
            self.0.insert(connection, begun);
        }
    }

    /// Handles that a flow has moved. Returns the move to log, if this was its last flow.
    pub(crate) fn handle_moved(
        &mut self,
        now: Instant,
        connection: ConnectionId,
        without: Duration,
    ) -> Option<Move> {
        let going = self.0.get_mut(&connection)?;
        going.flows += 1;
        going.missing = going.missing.saturating_sub(1);
        going.without = going.without.max(without);
        going.quiet_at = Some(now + QUIET);
        (going.missing == 0)
            .then(|| self.0.remove(&connection))
            .flatten()
    }

    /// Handles the end of a connection. Returns the flows that moved to it and are not logged yet.
    pub(crate) fn handle_disconnected(&mut self, connection: ConnectionId) -> Option<Move> {
        let going = self.0.remove(&connection)?;
        (going.flows > 0).then_some(going)
    }

    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.0.values().filter_map(|going| going.quiet_at).min()
    }

    /// Returns a move without progress for a while. Flows that arrive later form another move.
    pub(crate) fn handle_timeout(&mut self, now: Instant) -> Option<Move> {
        let mut moves = self.0.values_mut();
        let going = moves.find(|going| going.quiet_at.is_some_and(|at| at <= now))?;
        let logged = going.clone();
        (going.flows, going.without, going.quiet_at) = (0, Duration::ZERO, None);
        Some(logged)
    }
}

impl Move {
    pub(crate) fn without_ms(&self) -> u64 {
        u64::try_from(self.without.as_millis()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const TO: ConnectionId = ConnectionId(2);

    fn begun(flows: usize) -> Moves {
        let mut moves = Moves::default();
        let remote = "192.0.2.1:7500".parse().expect("an address");
        moves.handle_rejoined(TO, remote, flows, LeaveReason::Silent);
        moves
    }

    /// Returns the number of flows and the longest time of a logged move.
    fn logged(logged: Option<Move>) -> Option<(usize, u64)> {
        logged.map(|logged| (logged.flows, logged.without_ms()))
    }

    #[test]
    fn all_moved_flows_of_a_connection_are_logged_together_with_the_longest_time() {
        let (mut moves, now) = (begun(3), Instant::now());
        assert_eq!(moves.next_timeout(), None, "nothing has moved");
        assert_eq!(logged(moves.handle_moved(now, TO, 700 * MS)), None);
        assert_eq!(logged(moves.handle_moved(now, TO, 900 * MS)), None);
        let last = moves.handle_moved(now, TO, 800 * MS);
        assert_eq!(logged(last), Some((3, 900)));
        assert_eq!(moves.next_timeout(), None);
        assert_eq!(moves.handle_disconnected(TO), None, "it is logged already");
    }

    #[test]
    fn flows_that_never_move_do_not_delay_the_log_line() {
        let (mut moves, now) = (begun(3), Instant::now());
        moves.handle_moved(now, TO, MS);
        moves.handle_moved(now + MS, TO, 2 * MS);
        let quiet = now + MS + QUIET;
        assert_eq!(moves.next_timeout(), Some(quiet));
        assert_eq!(moves.handle_timeout(now + QUIET), None);
        assert_eq!(logged(moves.handle_timeout(quiet)), Some((2, 2)));
        assert_eq!(moves.handle_timeout(quiet), None);
        let late = moves.handle_moved(quiet, TO, 5 * MS);
        assert_eq!(logged(late), Some((1, 5)), "a late flow has moved");
    }

    #[test]
    fn moved_flows_are_logged_when_their_connection_ends() {
        let (mut moves, now) = (begun(2), Instant::now());
        moves.handle_moved(now, TO, MS);
        assert_eq!(logged(moves.handle_disconnected(TO)), Some((1, 1)));
        assert_eq!(logged(begun(2).handle_disconnected(TO)), None);
        let mut nothing = begun(0);
        assert_eq!(nothing.handle_moved(now, TO, MS), None);
    }
}
