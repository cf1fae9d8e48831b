//! What flows hold, and what follows from that: their connection's window, a rest for flows whose applications do not
//! read, and the end of those that send tiny pieces to make us hold much.

use std::ops::{AddAssign, SubAssign};
use std::time::{Duration, Instant};

use quictun_flow::{Flow, Socket};
use quictun_wire::code::FlowCode;

use crate::connection::FLOWS_INITIAL;
use crate::engine::{Engine, Role};
use crate::flow_entry::{FlowEntry, Phase};
use crate::quic_stream::QuicStream;

/// What a flow takes besides the bytes that it carries: `quictun-scale idle` shows
/// 2.4 to 2.6 KiB for an idle one.
pub(crate) const FLOW_COST: u64 = 2560;

/// What a flow whose application does not read may hold without taking it from the others' window: as long as there is
/// memory, and less the less there is.
const SHARE_MAX: u64 = 256 * 1024;
const SHARE_PART: u64 = 1024;

/// Part of the free memory that the flows of one connection may hold behind gaps and at rest beside its window. Heavy loss
/// leaves many times the data in flight behind gaps. A flow at rest holds what arrived before the peer obeyed HOLD: one or
/// two windows.
const POOL_PART: u64 = 4;

/// Bytes that a flow may receive after HOLD beyond the credit at that time, in units of [`Lease::floor`]. An honest peer
/// sends for one round trip more, or for a few if the frame is lost.
///
/// [`Lease::floor`]: crate::account::Lease::floor
const REST_SLACK: u64 = 8;

/// A peer may open at first what this part of the free memory has room for, but not too few.
const FLOWS_PART: u64 = 1024;
const FLOWS_MIN: u32 = 16;

/// The longest read from an application once half of the budget is taken. Large reads keep unused capacity, and more than
/// the peer may give credit for.
const READ_LARGE: usize = 64 * 1024;

/// The longest read once three quarters are taken. Reads of this size are kept without unused capacity.
const READ_SCARCE: usize = 8 * 1024;

/// Memory that one flow's turn may take with small reads: one batch, and the cost of its pieces.
const TURN_COST: u64 = 68 * 1024;

/// What a connection may read and send per round trip while only the reserve is left.
const READ_LITTLE: usize = 4 * 1024;

/// Whatever the share, a flow is not stopped for less.
const HOLD_MIN: usize = 4 * 1024;

/// Shortest time over which it is measured how fast an application reads.
const PACE_MIN: Duration = Duration::from_millis(2);

/// Overhead of pieces that every flow may have, bytes.
pub(crate) const OVERHEAD_MIN: usize = 256;

/// Received data that a flow holds, or all flows of a connection, bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Holding {
    /// All of its memory.
    pub(crate) held: usize,
    /// The part of it that does not count against the connection's window.
    pub(crate) parked: usize,
    /// The part of it that is not data: the overhead of pieces.
    pub(crate) overhead: usize,
}

impl AddAssign for Holding {
    fn add_assign(&mut self, other: Self) {
        self.held += other.held;
        self.parked += other.parked;
        self.overhead += other.overhead;
    }
}

impl SubAssign for Holding {
    fn sub_assign(&mut self, other: Self) {
        self.held -= other.held;
        self.parked -= other.parked;
        self.overhead -= other.overhead;
    }
}

/// How fast an application reads.
#[derive(Debug)]
pub(crate) struct Pace {
    since: Instant,
    bytes: u64,
    /// Bytes in the round trip before.
    per_round_trip: u64,
}

impl Pace {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            since: now,
            bytes: 0,
            per_round_trip: 0,
        }
    }

    /// Bytes that the application takes in a round trip, as far as is known when it has taken `bytes` in all.
    fn update(&mut self, now: Instant, rtt: Duration, bytes: u64) -> usize {
        let elapsed = now.saturating_duration_since(self.since);
        let interval = rtt.max(PACE_MIN);
        let taken = bytes - self.bytes;
        if elapsed >= interval {
            let share = interval.as_nanos() * u128::from(taken) / elapsed.as_nanos().max(1);
            self.per_round_trip = u64::try_from(share).unwrap_or(u64::MAX);
            (self.since, self.bytes) = (now, bytes);
        }
        usize::try_from(self.per_round_trip.max(taken)).unwrap_or(usize::MAX)
    }
}

impl<S: Socket> Engine<S> {
    /// What a flow whose application does not read may hold beside its connection's window, bytes.
    fn share(&self) -> usize {
        let share = SHARE_MAX.min(self.lease.free_for_newcomers() / SHARE_PART);
        usize::try_from(share).unwrap_or(usize::MAX)
    }

    /// Notes what a flow holds, and acts on it.
    pub(crate) fn charge_flow(&mut self, now: Instant, key: usize) {
        self.note_pinned(key);
        let share = self.share();
        let pool = self.lease.free_for_newcomers() / POOL_PART;
        let pool = usize::try_from(pool).unwrap_or(usize::MAX);
        let floor = self.lease.floor();
        let Some(entry) = self.flows.get_mut(key) else {
            return;
        };
        let handle = entry.place.map(|place| place.handle);
        let slot = handle.and_then(|handle| self.connections.get_mut(handle));
        let Some(Some(connection)) = slot else {
            return;
        };
        let (held, parked) = (entry.held(), entry.is_parked());
        let came = entry.taken();
        connection.note_taken(came.saturating_sub(entry.noted));
        entry.noted = came;
        let mut told = None;
        if connection.control.open {
            let rtt = connection.quic.min_rtt();
            let rest = entry.should_rest(now, rtt, share, connection.is_taken_up());
            if rest != entry.told_to_rest.is_some() {
                entry.told_to_rest =
                    rest.then(|| came + connection.window_debt() + REST_SLACK * floor);
                told = entry.place.map(|place| (place, rest));
            }
        }
        let before = entry.holding;
        let others = connection.holding.parked - before.parked;
        let most = if !connection.admitted {
            0
        } else if !parked {
            pool.saturating_sub(others)
        } else if entry.told_to_rest.is_some() {
            share.max(pool.saturating_sub(others))
        } else {
            share
        };
        // What it has been given it keeps until it is consumed. Taken back and given again it would be credit for
        // nothing: the library grants what a window grows by, and cannot take it back.
        let mut part = held.min(most.max(before.parked));
        let more = part.saturating_sub(before.parked) as u64;
        if self.lease.try_charge(more) {
            connection.memory += more;
        } else {
            part = before.parked;
        }
        entry.holding = Holding {
            held,
            parked: part,
            overhead: held.saturating_sub(entry.buffered()),
        };
        connection.holding -= before;
        connection.holding += entry.holding;
        connection.announce(floor);
        if let Some((place, rest)) = told {
            connection.control.hold(place.stream, rest);
        }
        let tiny = entry.holds_tiny_pieces() && connection.hoards();
        let heedless = entry.told_to_rest.is_some_and(|most| came > most);
        if tiny || (heedless && connection.is_taken_up()) {
            self.cut_off(now, key);
        }
        if let Some((place, _)) = told {
            self.want_transmit(place.handle);
        }
    }

    /// The peer makes us hold more than its credit accounts for, in pieces that cost more than they carry.
    fn cut_off(&mut self, now: Instant, key: usize) {
        let Some((entry, connection)) = self.entry_and_connection(key) else {
            return;
        };
        let Some(place) = entry.place else { return };
        let mut stream = QuicStream {
            quic: &mut connection.quic,
            id: place.stream,
        };
        match &mut entry.phase {
            Phase::Bridged { flow, .. } => {
                flow.abandon(&mut stream, FlowCode::Limit);
                self.settle_flow(now, key);
            }
            Phase::Reading(_) | Phase::Dialing(_) => self.refuse_flow(now, key, FlowCode::Limit),
            Phase::Waiting(_) => {}
        }
    }

    /// Flows that a peer may open at first.
    pub(crate) fn first_flows(&self) -> u32 {
        let room = self.lease.free() / (FLOW_COST * FLOWS_PART);
        let room = u32::try_from(room).unwrap_or(u32::MAX).max(FLOWS_MIN);
        FLOWS_INITIAL.min(room).min(self.transport.max_flows)
    }

    /// Charges data that is kept for sending, and connections that wait for their handshakes.
    pub(crate) fn charge_kept(&mut self) {
        let waiting = match &self.role {
            Role::Server(server) => server.kept(),
            Role::Client(_) => 0,
        };
        let kept = self.read_buffer.kept() + self.response_bytes;
        self.lease.adjust(&mut self.kept, kept as u64 + waiting);
    }

    /// Limits how much the next flow of a connection may read from its application, in bytes, by the memory that is free.
    /// `None`: nothing until the peer has acknowledged what was sent before.
    ///
    /// Once half of the budget is taken, nothing is read that the peer gives no credit for. While only the reserve is left,
    /// a connection without data in flight still reads [`READ_LITTLE`], so that every connection makes progress.
    pub(crate) fn reading_room(&mut self, handle: usize) -> Option<usize> {
        self.charge_kept();
        if !self.lease.is_half_full() {
            self.read_buffer.set_max(None);
            return Some(usize::MAX);
        }
        if self.lease.free() > self.lease.reserve() / 4 * 3 + TURN_COST {
            let max = if self.lease.is_scarce() {
                READ_SCARCE
            } else {
                READ_LARGE
            };
            self.read_buffer.set_max(Some(max));
            return Some(usize::MAX);
        }
        let connection = self.connections.get(handle)?.as_ref()?;
        self.read_buffer.set_max(Some(READ_LITTLE));
        let idle = connection.unsent == 0 && connection.gauge.in_flight() == 0;
        let room = self.lease.reserve() / 8 + 2 * READ_LITTLE as u64;
        let room = self.lease.free() > room;
        (idle && room).then_some(READ_LITTLE)
    }
}

impl<S: Socket> FlowEntry<S> {
    /// Whether what it holds waits for its application. A target that is being dialled reads nothing either.
    fn is_parked(&self) -> bool {
        matches!(self.phase, Phase::Dialing(_)) || self.flow().is_some_and(Flow::is_parked)
    }

    /// Whether the peer should send no more for now, as the application does not read. `share` is what the flow may hold
    /// besides its connection's window, bytes; `urgent`: nothing is left of that window.
    fn should_rest(&mut self, now: Instant, rtt: Duration, share: usize, urgent: bool) -> bool {
        let held = self.held();
        let taken = self.flow().map_or(0, Flow::bytes_to_app);
        let pace = self.pace.update(now, rtt, taken);
        // One that reads steadily, however slowly, needs more of it: what comes in the round trip after GO is late.
        let hold_at = (share / 2).max(HOLD_MIN).max(pace.saturating_mul(4));
        let go_at = (hold_at / 4).max(pace.saturating_mul(2));
        // What came at once behind a gap is a lot for a moment, and says nothing of the application.
        self.over_since = (held >= hold_at).then(|| self.over_since.unwrap_or(now));
        let lasts = |since: Instant| now.saturating_duration_since(since) >= rtt.max(PACE_MIN);
        if self.told_to_rest.is_some() {
            held > go_at
        } else {
            self.is_parked() && self.over_since.is_some_and(|since| urgent || lasts(since))
        }
    }

    /// Whether what it holds is more cost than bytes, and not next to nothing.
    fn holds_tiny_pieces(&self) -> bool {
        let Holding { held, overhead, .. } = self.holding;
        overhead > (held / 2).max(OVERHEAD_MIN)
    }
}
