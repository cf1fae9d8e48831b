//! Datagram flows: the table of flows whose applications exchange datagrams (PROTOCOL section 5.11).
//!
//! Such a flow is a flow like others: its stream carries the request, the answer and the end. The table beside
//! [`Flows`](quictun_flow::Flows) has what only datagrams need: those that wait to be sent, fragments of those that have
//! arrived in part, and the time of the last one. An entry stays while the flow moves from connection to connection.

mod reassembly;

use std::collections::{BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use bytes::Bytes;
use fxhash::FxHashMap;
use quictun_flow::{ConnectionKey, FlowKey};
use quictun_wire::datagram::Fragment;

use reassembly::Reassembly;

/// Bytes that wait to be sent, for each flow. Chosen for a burst of fifty full packets.
const QUEUE_MAX: usize = 64 * 1024;

/// Datagrams that wait before the target is connected, or before its first answer. The server must not send more than a
/// handshake to a target that has not asked for it.
const UNANSWERED_MAX: usize = 8;

/// Bytes that wait for the target of a client that is not known yet: one full packet.
const STRANGER_MAX: usize = 2048;

/// Time after which a target that has not answered may get one datagram more. Probes of a target that comes up late, and
/// protocols without answers, continue at this rate.
const UNANSWERED_EVERY: Duration = Duration::from_secs(1);

/// Age at which a datagram that waits is dropped. Later it would harm more than help: voice and games are past it, and
/// protocols with retransmissions have sent it again.
const AGE_MAX: Duration = Duration::from_millis(100);

/// Longest time without a datagram after which a flow to a name server ends: that may take a few seconds for each of several
/// attempts. Other flows have the time of the settings.
const IDLE_DNS: Duration = Duration::from_secs(17);

/// The same time for NTP and STUN once the target has answered: they ask and are answered once.
const IDLE_ANSWERED: Duration = Duration::from_secs(10);

/// Time without a datagram after which a flow may end early, so that another one can begin. A resolver that asks as fast
/// as it can then gets its 1024 flows ten times a second.
const SPARED: Duration = Duration::from_millis(100);

/// Memory of an entry in the table, without payloads, bytes.
const ENTRY_COST: usize = 512;

/// Memory of a datagram that waits, beside its bytes.
const DATAGRAM_COST: usize = 64;

/// The datagram flows of an engine.
#[derive(Debug)]
pub(crate) struct DatagramFlows {
    /// Time without a datagram after which a flow ends. RFC 4787 and RFC 9298 ask for two minutes.
    idle: Duration,
    table: FxHashMap<FlowKey, DatagramFlow>,
    /// The time at which to look at each flow again. It is not later than the end of its idle time.
    deadlines: BTreeSet<(Instant, FlowKey)>,
    /// Frames that have arrived on the connection whose events are being handled.
    pub(crate) arrived: Vec<Bytes>,
    /// Memory of all entries, bytes.
    held: usize,
}

/// The datagrams of one flow.
#[derive(Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent marks: the stream, the socket, and who has sent"
)]
pub(crate) struct DatagramFlow {
    /// The idle time of the settings.
    idle: Duration,
    /// The target's port, if known. It decides when the flow is idle.
    port: Option<u16>,
    /// Datagrams from the application, oldest first, each with the time at which it arrived.
    outbound: VecDeque<(Instant, Bytes)>,
    /// Datagrams from the peer that wait for the target to be connected.
    early: Vec<Bytes>,
    /// Bytes in `outbound` and `early`, with the cost of each datagram.
    queued: usize,
    /// The connection in whose queue of datagram flows this one is.
    pub(crate) queued_on: Option<ConnectionKey>,
    /// Number of datagrams that were fragmented.
    fragmented: u64,
    reassembly: Reassembly,
    active: Instant,
    deadline: Instant,
    /// The flow has, or has had, a stream.
    begun: bool,
    /// The request of this side on the flow's stream has not left yet. The peer drops datagrams that arrive before it.
    pub(crate) requested: bool,
    /// The application's socket may have more datagrams.
    pub(crate) readable: bool,
    /// Number of datagrams that the application on this side has sent: at a server, the target has answered.
    sent: u64,
    /// Server: the application on this side is a source at a listener, which may have a false address.
    pub(crate) is_source: bool,
    /// The application on the peer's side has sent a datagram.
    received: bool,
    unanswered: Unanswered,
    pub(crate) counters: DatagramCounters,
    /// Memory of the entry as counted in [`DatagramFlows::held`].
    counted: usize,
}

/// The rest of what a server may send to a target that has not answered.
#[derive(Debug)]
struct Unanswered {
    datagrams: usize,
    bytes: usize,
    since: Instant,
}

/// Counts of a flow's datagrams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DatagramCounters {
    /// Bytes of datagrams that were given to connections, and to the application.
    pub(crate) to_tunnel: u64,
    pub(crate) to_app: u64,
    /// Number of datagrams that were dropped on this side.
    pub(crate) dropped: u64,
}

impl DatagramFlows {
    pub(crate) fn new(idle: Duration) -> Self {
        Self {
            idle,
            table: FxHashMap::default(),
            deadlines: BTreeSet::new(),
            arrived: Vec::new(),
            held: 0,
        }
    }

    /// Sets the time without a datagram after which a flow ends, for all flows.
    pub(crate) fn set_idle(&mut self, idle: Duration) {
        if std::mem::replace(&mut self.idle, idle) == idle {
            return;
        }
        for (_, key) in std::mem::take(&mut self.deadlines) {
            let Some(flow) = self.table.get_mut(&key) else {
                continue;
            };
            flow.idle = idle;
            flow.deadline = flow.due();
            self.deadlines.insert((flow.deadline, key));
        }
    }

    pub(crate) fn contains(&self, key: FlowKey) -> bool {
        self.table.contains_key(&key)
    }

    /// Returns the counters of a flow: 0 if it is not in the table.
    pub(crate) fn counters(&self, key: FlowKey) -> DatagramCounters {
        let flow = self.table.get(&key);
        flow.map_or_else(DatagramCounters::default, |flow| flow.counters)
    }

    /// Returns whether the application of a flow at this server has shown that its address is true, and whether the one at
    /// the client has sent a datagram.
    pub(crate) fn heard(&self, key: FlowKey) -> (bool, bool) {
        let flow = self.table.get(&key);
        flow.map_or((false, false), |flow| (flow.has_answered(), flow.received))
    }

    pub(crate) fn get_mut(&mut self, key: FlowKey) -> Option<&mut DatagramFlow> {
        self.table.get_mut(&key)
    }

    /// Returns the memory of the table and of all datagrams in it, bytes.
    pub(crate) fn held(&self) -> u64 {
        self.held as u64
    }

    /// Returns the entry of a flow, which is made if there is none. `token` is the flow's target.
    pub(crate) fn enter(&mut self, now: Instant, key: FlowKey, token: &str) -> &mut DatagramFlow {
        let port = token.rsplit(':').next().and_then(|port| port.parse().ok());
        let (held, deadlines, idle) = (&mut self.held, &mut self.deadlines, self.idle);
        let flow = self.table.entry(key).or_insert_with(|| {
            let flow = DatagramFlow::new(now, idle, port);
            *held += flow.counted;
            deadlines.insert((flow.deadline, key));
            flow
        });
        // A client learns the target of a server's flow after the first datagram, perhaps.
        flow.port = port;
        flow
    }

    /// Removes the entry of a flow that has ended, and returns its counters.
    pub(crate) fn remove(&mut self, key: FlowKey) -> Option<DatagramCounters> {
        let flow = self.table.remove(&key)?;
        self.held -= flow.counted;
        self.deadlines.remove(&(flow.deadline, key));
        Some(flow.counters)
    }

    /// Counts the memory of a flow after a change, and sets the time at which to look at it again.
    pub(crate) fn note_changed(&mut self, key: FlowKey) {
        let Some(flow) = self.table.get_mut(&key) else {
            return;
        };
        let counted = flow.memory();
        self.held = self.held + counted - std::mem::replace(&mut flow.counted, counted);
        // A later time is found out when the deadline has passed.
        let due = flow.due();
        if due < flow.deadline {
            self.deadlines.remove(&(flow.deadline, key));
            flow.deadline = due;
            self.deadlines.insert((due, key));
        }
    }

    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.deadlines.first().map(|&(at, _)| at)
    }

    /// Drops what is too old. Returns the next flow that is idle, which is then given another idle time to end.
    pub(crate) fn pop_idle(&mut self, now: Instant) -> Option<FlowKey> {
        while let Some(&(at, key)) = self.deadlines.first()
            && at <= now
        {
            self.deadlines.pop_first();
            let Some(flow) = self.table.get_mut(&key) else {
                continue;
            };
            flow.reassembly.expire(now);
            let idle = now >= flow.idle_at();
            if idle {
                flow.active = now;
            }
            flow.deadline = flow.due();
            self.deadlines.insert((flow.deadline, key));
            self.note_changed(key);
            if idle {
                return Some(key);
            }
        }
        None
    }

    /// Returns the flow that would be idle next, which is then given another idle time to end. `None`: it has had a
    /// datagram a moment ago.
    pub(crate) fn pop_spare(&mut self, now: Instant) -> Option<FlowKey> {
        while let Some(&(at, key)) = self.deadlines.first() {
            let flow = self.table.get_mut(&key)?;
            let due = flow.due();
            let is_exact = due <= at;
            if is_exact && now < flow.active + SPARED {
                return None;
            }
            if is_exact {
                flow.active = now;
            }
            self.deadlines.pop_first();
            flow.deadline = flow.due();
            self.deadlines.insert((flow.deadline, key));
            if is_exact {
                return Some(key);
            }
        }
        None
    }
}

impl DatagramFlow {
    fn new(now: Instant, idle: Duration, port: Option<u16>) -> Self {
        let mut new = Self {
            idle,
            port,
            outbound: VecDeque::new(),
            early: Vec::new(),
            queued: 0,
            queued_on: None,
            fragmented: 0,
            reassembly: Reassembly::default(),
            active: now,
            deadline: now,
            begun: false,
            requested: false,
            readable: false,
            sent: 0,
            is_source: false,
            received: false,
            unanswered: Unanswered {
                datagrams: UNANSWERED_MAX,
                bytes: QUEUE_MAX,
                since: now,
            },
            counters: DatagramCounters::default(),
            counted: ENTRY_COST,
        };
        new.deadline = new.idle_at();
        new
    }

    fn memory(&self) -> usize {
        ENTRY_COST + self.queued + self.reassembly.held()
    }

    fn idle_at(&self) -> Instant {
        self.active
            + match self.port {
                Some(53) => self.idle.min(IDLE_DNS),
                Some(123 | 3478) if self.sent > 0 && self.received => self.idle.min(IDLE_ANSWERED),
                _ => self.idle,
            }
    }

    /// Returns the time at which something of the flow is too old.
    fn due(&self) -> Instant {
        let fragments = self.reassembly.next_timeout();
        fragments.map_or(self.idle_at(), |at| at.min(self.idle_at()))
    }

    /// Server: returns whether the target has answered. A source at a listener has begun the flow by its first datagram, whose
    /// address may be false: it has answered by the second one.
    fn has_answered(&self) -> bool {
        self.sent > u64::from(self.is_source)
    }

    /// Continues the flow of another process.
    pub(crate) fn take_over(&mut self, answered: bool, asked: bool) {
        self.sent = u64::from(self.is_source) + u64::from(answered);
        self.received = asked;
    }

    /// Drops the datagrams of which a part has arrived: the rest does not arrive on another leg, where their numbers may
    /// occur again.
    pub(crate) fn drop_partial(&mut self) {
        self.counters.dropped += self.reassembly.clear();
    }

    /// Returns whether datagrams wait to be sent.
    pub(crate) fn has_outbound(&self) -> bool {
        !self.outbound.is_empty()
    }

    /// Takes a datagram of the application. The oldest ones that wait give way to it.
    pub(crate) fn push(&mut self, now: Instant, payload: Bytes) {
        self.active = now;
        self.sent += 1;
        let cost = payload.len() + DATAGRAM_COST;
        while self.queued + cost > QUEUE_MAX && self.drop_oldest() {}
        self.queued += cost;
        self.outbound.push_back((now, payload));
    }

    /// Returns the number of bytes to take from the application until others have been sent, or now because they have
    /// `arrived`.
    pub(crate) fn room(&self, arrived: bool) -> usize {
        // New datagrams displace those that wait. Without new ones, the socket keeps the rest.
        let taken = if arrived { 0 } else { self.queued };
        (QUEUE_MAX / 2).saturating_sub(taken)
    }

    /// Drops the datagrams that have waited for too long, if the flow has had a stream.
    pub(crate) fn drop_aged(&mut self, now: Instant) {
        while self.begun
            && let Some((at, _)) = self.outbound.front()
            && now >= *at + AGE_MAX
        {
            self.drop_oldest();
        }
    }

    /// Returns the length of the next datagram to send.
    pub(crate) fn next_len(&mut self, now: Instant) -> Option<usize> {
        self.drop_aged(now);
        self.outbound.front().map(|(_, payload)| payload.len())
    }

    /// Returns the next datagram to send.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<Bytes> {
        self.drop_aged(now);
        let (_, payload) = self.outbound.pop_front()?;
        self.queued -= payload.len() + DATAGRAM_COST;
        Some(payload)
    }

    /// Notes that the flow has its first stream. The datagrams that have waited for it count as new.
    pub(crate) fn begin(&mut self, now: Instant) {
        self.begun = true;
        for (at, _) in &mut self.outbound {
            *at = now;
        }
    }

    fn drop_oldest(&mut self) -> bool {
        let oldest = self.outbound.pop_front();
        if let Some((_, payload)) = &oldest {
            self.queued -= payload.len() + DATAGRAM_COST;
            self.counters.dropped += 1;
        }
        oldest.is_some()
    }

    /// Returns the number of the next datagram that is fragmented.
    pub(crate) fn next_fragmented(&mut self) -> u64 {
        self.fragmented += 1;
        self.fragmented - 1
    }

    /// Takes what a frame has brought. Returns a whole datagram, if it is one or completes one.
    pub(crate) fn take(
        &mut self,
        now: Instant,
        fragment: Option<Fragment>,
        payload: Bytes,
    ) -> Option<Bytes> {
        self.active = now;
        self.received = true;
        let Some(fragment) = fragment else {
            return Some(payload);
        };
        let taken = self.reassembly.take(now, fragment, &payload);
        self.counters.dropped += std::mem::take(&mut self.reassembly.dropped);
        taken
    }

    /// Keeps a datagram until the target is connected, if it is one of the first. `admitted` says whether the client is
    /// known.
    pub(crate) fn keep_early(&mut self, payload: &Bytes, admitted: bool) {
        let cost = payload.len() + DATAGRAM_COST;
        let (datagrams, bytes) = if admitted {
            (UNANSWERED_MAX, QUEUE_MAX)
        } else {
            (1, STRANGER_MAX)
        };
        if self.early.len() < datagrams && self.queued + cost <= bytes {
            self.queued += cost;
            // The frame is a slice of a batch, which this must not keep.
            self.early.push(Bytes::copy_from_slice(payload));
        } else {
            self.counters.dropped += 1;
        }
    }

    /// Returns the datagrams that have waited for the target.
    pub(crate) fn take_early(&mut self) -> Vec<Bytes> {
        let early = std::mem::take(&mut self.early);
        let cost = |payload: &Bytes| payload.len() + DATAGRAM_COST;
        self.queued -= early.iter().map(cost).sum::<usize>();
        early
    }

    /// Server: returns whether the application may get a datagram of `len` bytes. A target that has not answered gets a
    /// few.
    pub(crate) fn may_deliver(&mut self, now: Instant, len: usize) -> bool {
        if self.has_answered() {
            return true;
        }
        let left = &mut self.unanswered;
        if now >= left.since + UNANSWERED_EVERY {
            left.since = now;
            left.datagrams = left.datagrams.max(1);
            left.bytes = left.bytes.max(len);
        }
        let may = left.datagrams > 0 && left.bytes >= len;
        if may {
            left.datagrams -= 1;
            left.bytes -= len;
        }
        may
    }
}

#[cfg(test)]
mod tests;
