//! Out: from applications into streams, from streams into batches of datagrams.
//!
//! Data is held back before it becomes packets: a flow is asked for bytes only while the congestion
//! window and the pacer have room. Acknowledgements, probes and MTU discovery then pass the library
//! freely. Only what was lost and must be sent again is in the library already; until that is done,
//! whole batches wait for the window as well.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use quictun_flow::{Pumped, Socket};

use crate::connection::Connection;
use crate::engine::{Engine, RESPONSES_MAX, Role};
use crate::quic_stream::QuicStream;
use crate::report::{Limit, Protocol};

/// Largest UDP payload of one send call; segmentation offload counts the whole of it.
const BATCH_MAX: usize = 65_000;

/// Bytes of a full packet that are not a stream's: a header of 11 or 12, a tag of 16 and 7 of the frame's, for
/// offsets up to 1 GiB; and the room that the library keeps for the length of a frame that ends a packet early.
const OVERHEAD: usize = 36;
const LENGTH: usize = 8;

/// Where there is no memory for more to send, it is looked for again after so long.
const NO_MEMORY_PAUSE: Duration = Duration::from_millis(10);

/// Most one flow sends before the next has its turn.
const TURN: usize = 64 * 1024;

/// One send call: `size` bytes of the buffer, cut into segments of `segment_size`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagrams {
    /// Where to.
    pub destination: SocketAddr,
    /// From which local address, where it matters.
    pub source: Option<IpAddr>,
    /// The two ECN bits.
    pub ecn: Option<u8>,
    /// Bytes in the buffer.
    pub size: usize,
    /// Length of every datagram but the last; `None`: there is one.
    pub segment_size: Option<usize>,
}

impl Datagrams {
    /// How many datagrams these are.
    pub fn count(&self) -> usize {
        self.segment_size
            .map_or(1, |segment| self.size.div_ceil(segment.max(1)))
    }

    fn from_quinn(transmit: &quinn_proto::Transmit) -> Self {
        Self {
            destination: transmit.destination,
            source: transmit.src_ip,
            ecn: transmit.ecn.map(|ecn| ecn as u8),
            size: transmit.size,
            segment_size: transmit.segment_size,
        }
    }
}

impl<S: Socket> Engine<S> {
    /// Gives the next batch to send, its bytes in `buffer` (cleared first).
    pub fn poll_transmit(&mut self, now: Instant, buffer: &mut Vec<u8>) -> Option<Datagrams> {
        buffer.clear();
        if let Some((datagrams, bytes)) = self.responses.pop_front() {
            self.response_bytes -= bytes.capacity();
            *buffer = bytes;
            self.count_batch(&datagrams);
            return Some(datagrams);
        }
        while let Some(&handle) = self.sending.front() {
            if let Some(datagrams) = self.poll_connection(now, handle, buffer) {
                // The next connection has its turn.
                self.sending.rotate_left(1);
                self.count_batch(&datagrams);
                return Some(datagrams);
            }
            self.sending.pop_front();
            self.rest(handle);
            self.forget_stranger(now, handle);
        }
        None
    }

    /// Puts a connection among those that may have something to send.
    pub(crate) fn want_transmit(&mut self, handle: usize) {
        if let Some(Some(connection)) = self.connections.get_mut(handle)
            && !connection.sending
        {
            connection.sending = true;
            self.sending.push_back(handle);
        }
    }

    /// A stateless answer; dropped in a flood.
    pub(crate) fn respond(&mut self, transmit: &quinn_proto::Transmit, mut bytes: Vec<u8>) {
        if self.responses.len() < RESPONSES_MAX {
            bytes.truncate(transmit.size);
            self.response_bytes += bytes.capacity();
            self.responses
                .push_back((Datagrams::from_quinn(transmit), bytes));
        }
    }

    fn count_batch(&mut self, datagrams: &Datagrams) {
        self.totals.batches_sent += 1;
        self.totals.datagrams_sent += datagrams.count() as u64;
    }

    /// The connection has nothing to send: enter its deadline.
    fn rest(&mut self, handle: usize) {
        if let Some(Some(connection)) = self.connections.get_mut(handle) {
            connection.sending = false;
            let next = connection.next_timeout();
            let mut set = connection.deadline;
            self.timers.set(handle, &mut set, next);
            connection.deadline = set;
        }
    }

    fn poll_connection(
        &mut self,
        now: Instant,
        handle: usize,
        buffer: &mut Vec<u8>,
    ) -> Option<Datagrams> {
        self.flush_control(now, handle);
        self.fill(now, handle);
        let client = matches!(self.role, Role::Client(_));
        let connection = self.connections.get_mut(handle)?.as_mut()?;
        let mtu = connection.quic.current_mtu();
        let most = (BATCH_MAX / usize::from(mtu)).clamp(1, self.transport.max_segments);
        let Some(segments) = connection.segments_now(now, most) else {
            return connection.repeat_late(now, buffer);
        };
        let data = connection.unsent > 0 || connection.resending;
        connection.gauge.set_counting(data);
        // The controller knows a batch by its time.
        connection.batch_at = now.max(connection.batch_at + Duration::from_nanos(1));
        let at = connection.batch_at;
        let Some(transmit) = connection.quic.poll_transmit(at, segments, buffer) else {
            connection.unsent = 0;
            connection.resending = false;
            connection.lost_seen = connection.gauge.lost();
            return connection.repeat_late(now, buffer);
        };
        connection.grace = connection.grace.saturating_sub(1);
        connection.unsent = connection.unsent.saturating_sub(transmit.size);
        if data {
            let rate = connection.gauge.limits().rate;
            connection.pacer.on_sent(transmit.size, rate);
        }
        let datagrams = Datagrams::from_quinn(&transmit);
        if data {
            connection.note_flight(&datagrams, buffer);
        }
        if client && connection.protocol.is_none() {
            let copies = &mut connection.handshake_copies;
            copies.handle_sent(now, datagrams, &buffer[..datagrams.size]);
        }
        connection.batches_sent += 1;
        connection.datagrams_sent += datagrams.count() as u64;
        Some(datagrams)
    }

    /// Asks flows for about one batch of bytes, as far as window and pacer allow.
    fn fill(&mut self, now: Instant, handle: usize) {
        let Some(Some(connection)) = self.connections.get_mut(handle) else {
            return;
        };
        connection.pace_at = None;
        // What is being sent again waits for the window, too, even if no flow has anything new.
        let resending = connection.resending;
        if connection.outbound.is_empty() || connection.quic.is_closed() {
            if connection.limit != Limit::ReceiveWindow {
                connection.limit = Limit::Application;
            }
            connection.gauge.set_limited(resending);
            return;
        }
        let Some(room) = connection.allowance(now) else {
            connection.gauge.set_limited(true);
            connection.limit = Limit::Congestion;
            return;
        };
        let mut allowance = room.min(BATCH_MAX);
        let compat = connection.protocol == Some(Protocol::Compat);
        let mut turns = connection.outbound.len();
        connection.limit = Limit::Application;
        while allowance > 0 && turns > 0 {
            turns -= 1;
            let Some(most) = self.reading_room(handle) else {
                break;
            };
            match self.fill_from_next(now, handle, &mut allowance, most, compat) {
                Turn::Next => {}
                Turn::Flush => break,
            }
        }
        let held_back = self.read_buffer.is_restrained();
        if let Some(Some(connection)) = self.connections.get_mut(handle) {
            let more = !connection.outbound.is_empty();
            connection.gauge.set_limited(more || resending);
            if more && held_back {
                // Until something is acknowledged, or given back elsewhere.
                connection.pace_at = Some(now + NO_MEMORY_PAUSE);
            }
            if more {
                let ended = room <= BATCH_MAX;
                connection.limit = if ended { Limit::Congestion } else { Limit::Cpu };
            }
        }
    }

    /// Lets the next flow in turn send.
    fn fill_from_next(
        &mut self,
        now: Instant,
        handle: usize,
        allowance: &mut usize,
        most: usize,
        compat: bool,
    ) -> Turn {
        let Some(Some(connection)) = self.connections.get_mut(handle) else {
            return Turn::Flush;
        };
        let Some(key) = connection.outbound.pop_front() else {
            return Turn::Flush;
        };
        let Some(entry) = self.flows.get_mut(key) else {
            return Turn::Next;
        };
        let Some(place) = entry.place.filter(|place| place.handle == handle) else {
            return Turn::Next;
        };
        entry.queued = false;
        if entry.resting {
            return Turn::Next;
        }
        let early = entry.early_left(compat);
        let Some(flow) = entry.flow_mut() else {
            return Turn::Next;
        };
        // The original reads only the last piece of a token that arrives in several, so with it a
        // token travels in a packet that carries nothing else.
        let alone = compat && flow.prefix_left() > 0;
        if alone && connection.unsent > 0 {
            entry.queued = true;
            connection.outbound.push_front(key);
            return Turn::Flush;
        }
        let turn = if alone {
            flow.prefix_left()
        } else {
            TURN.min(*allowance)
                .min(most)
                .min(early.saturating_add(flow.prefix_left()))
        };
        let mut budget = turn;
        let mut stream = QuicStream {
            quic: &mut connection.quic,
            id: place.stream,
        };
        let pumped = flow.pump_to_tunnel(&mut stream, &mut self.read_buffer, &mut budget);
        let taken = turn - budget;
        connection.unsent += taken;
        *allowance = allowance.saturating_sub(taken);
        match pumped {
            // What is held back until the answer comes is asked for again then.
            Pumped::Budget if entry.early_left(compat) == 0 => {}
            Pumped::Budget => {
                entry.queued = true;
                connection.outbound.push_back(key);
            }
            Pumped::Blocked => connection.limit = Limit::ReceiveWindow,
            Pumped::Starved => {}
            Pumped::Ended => self.settle_flow(now, key),
        }
        if alone { Turn::Flush } else { Turn::Next }
    }
}

/// What whole packets of `bytes` carry. A batch that carried more would end in a packet of a few bytes:
/// where a batch is a packet, every other one.
fn payload(bytes: usize, mtu: usize) -> usize {
    match bytes / mtu {
        0 => bytes,
        packets => (packets * mtu.saturating_sub(OVERHEAD)).saturating_sub(LENGTH),
    }
}

/// Packets that hold so many bytes.
fn packets(bytes: u64, mtu: u16) -> usize {
    usize::try_from(bytes.div_ceil(u64::from(mtu))).unwrap_or(usize::MAX)
}

/// Whether to go on filling.
enum Turn {
    Next,
    Flush,
}

impl Connection {
    /// A batch of data leaves: where it is the last one, its acknowledgement is watched for.
    fn note_flight(&mut self, batch: &Datagrams, bytes: &[u8]) {
        if self.outbound.is_empty() && self.unsent == 0 && self.protocol.is_some() {
            let rtt = self.quic.rtt();
            self.repeat.handle_flight(self.batch_at, *batch, bytes, rtt);
        } else {
            self.repeat.forget();
        }
    }

    /// What is sent a second time: a copy of the handshake, or the last datagram where its acknowledgement is late.
    fn repeat_late(&mut self, now: Instant, buffer: &mut Vec<u8>) -> Option<Datagrams> {
        let rtt = self.quic.rtt();
        let copy = self.handshake_copies.poll(now, buffer);
        let datagrams = copy.or_else(|| self.repeat.poll(now, rtt, buffer))?;
        self.pacer.on_sent(datagrams.size, self.gauge.limits().rate);
        self.batches_sent += 1;
        self.datagrams_sent += datagrams.count() as u64;
        self.datagrams_repeated += datagrams.count() as u64;
        Some(datagrams)
    }

    /// Bytes that flows may hand over now.
    fn allowance(&mut self, now: Instant) -> Option<usize> {
        let mtu = self.quic.current_mtu();
        match self.pacer.allowance(now, &self.gauge, mtu) {
            Ok(bytes) => {
                let bytes = payload(bytes, usize::from(mtu));
                Some(bytes.saturating_sub(self.unsent)).filter(|&bytes| bytes > 0)
            }
            Err(later) => {
                self.pace_at = later;
                None
            }
        }
    }

    /// How many datagrams the library may make now: `most`, unless losses are being sent again.
    fn segments_now(&mut self, now: Instant, most: usize) -> Option<usize> {
        let lost = self.gauge.lost().saturating_sub(self.lost_seen);
        if lost > 0 {
            self.lost_seen += lost;
            self.resending = true;
            self.resent_alone = packets(lost, self.quic.current_mtu());
        }
        if !self.resending || self.protocol.is_none() {
            return Some(most);
        }
        let mtu = self.quic.current_mtu();
        match self.pacer.allowance(now, &self.gauge, mtu) {
            // All datagrams of a batch are as long as its first. One that is sent again is a few bytes shorter than
            // others, and of many such the library would believe that nothing longer arrives any more.
            Ok(bytes) => {
                let alone = std::mem::take(&mut self.resent_alone);
                let most = if alone > 0 { alone.min(most) } else { most };
                Some((bytes / usize::from(mtu)).clamp(1, most))
            }
            Err(_) if self.grace > 0 => Some(1),
            Err(later) => {
                self.pace_at = later;
                None
            }
        }
    }
}
