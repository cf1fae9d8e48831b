//! Groups the moves of flows to the next connection of their bond: one log line per connection, not one per flow.
//!
//! ```text
//! Rejoined ─► waiting ─── Moved ───► moving ─── all have moved, or none did for a while ───► logged
//!                └────────── Disconnected ──────────┴─► logged, as far as they had moved
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use quictun_engine::{ConnectionId, LeaveReason};

/// Time without another move after which the moves so far are logged. A thousand flows move within two seconds, without
/// a pause.
const QUIET: Duration = Duration::from_secs(1);

/// The connections to which flows are moving.
///
/// A connection stays here for as long as some of its flows have not moved, which may be until it ends: they may have
/// ended meanwhile. Only those with moves to log are looked at in each turn.
#[derive(Debug, Default)]
pub(crate) struct Moves {
    under_way: BTreeMap<ConnectionId, Move>,
    /// Connections with moves that are not logged yet, and when they are to be logged.
    unlogged: BTreeSet<(Instant, ConnectionId)>,
}

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
            let before = self.under_way.insert(connection, begun);
            if let Some(quiet_at) = before.and_then(|before| before.quiet_at) {
                self.unlogged.remove(&(quiet_at, connection));
            }
        }
    }

    /// Handles that a flow has moved. Returns the move to log, if this was its last flow.
    pub(crate) fn handle_moved(
        &mut self,
        now: Instant,
        connection: ConnectionId,
        without: Duration,
    ) -> Option<Move> {
        let going = self.under_way.get_mut(&connection)?;
        going.flows += 1;
        going.missing = going.missing.saturating_sub(1);
        going.without = going.without.max(without);
        let quiet_at = now + QUIET;
        if let Some(before) = going.quiet_at.replace(quiet_at) {
            self.unlogged.remove(&(before, connection));
        }
        if going.missing == 0 {
            return self.under_way.remove(&connection);
        }
        self.unlogged.insert((quiet_at, connection));
        None
    }

    /// Handles the end of a connection. Returns the flows that moved to it and are not logged yet.
    pub(crate) fn handle_disconnected(&mut self, connection: ConnectionId) -> Option<Move> {
        let going = self.under_way.remove(&connection)?;
        if let Some(quiet_at) = going.quiet_at {
            self.unlogged.remove(&(quiet_at, connection));
        }
        (going.flows > 0).then_some(going)
    }

    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.unlogged.first().map(|(at, _)| *at)
    }

    /// Returns a move without progress for a while. Flows that arrive later form another move.
    pub(crate) fn handle_timeout(&mut self, now: Instant) -> Option<Move> {
        let (_, connection) = *self.unlogged.first().filter(|(at, _)| *at <= now)?;
        self.unlogged.pop_first();
        let going = self.under_way.get_mut(&connection)?;
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

    #[test]
    fn connections_without_moves_to_log_are_not_looked_at_in_each_turn() {
        let (mut moves, now) = (begun(3), Instant::now());
        assert_eq!(moves.unlogged.len(), 0, "nothing has moved");
        moves.handle_moved(now, TO, MS);
        moves.handle_moved(now + MS, TO, MS);
        assert_eq!(moves.unlogged.len(), 1);
        moves.handle_timeout(now + MS + QUIET);
        assert_eq!((moves.under_way.len(), moves.unlogged.len()), (1, 0));
        moves.handle_moved(now + 2 * QUIET, TO, MS);
        assert_eq!((moves.under_way.len(), moves.unlogged.len()), (0, 0));
        for flows in [1, 2] {
            let mut moves = begun(flows);
            moves.handle_moved(now, TO, MS);
            moves.handle_disconnected(TO);
            assert_eq!((moves.under_way.len(), moves.unlogged.len()), (0, 0));
        }
    }
}
