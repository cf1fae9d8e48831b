//! Sending: which batches of a connection leave, and when.
//!
//! Data is held back before it becomes packets: the connection takes bytes from flows only while the congestion window
//! and the pacer have room. Acknowledgements, probes and MTU discovery then pass the library freely. Only
//! retransmissions are in the library already. Until they are done, whole batches wait for the window as well.

use std::time::{Duration, Instant};

use quictun_congestion::{Gauge, HandshakeCopies, Pacer, TailRepeat};

use super::datagrams::from_library;
use crate::carrier::interface::BatchContext;
use crate::datagrams::Datagrams;
use crate::report::SendLimit;

/// Largest UDP payload of one send call. With segmentation offload, the limit applies to all segments together.
pub(crate) const BATCH_MAX: usize = 65_000;

/// Bytes of a full packet that are not stream data: a header of 11 or 12, a tag of 16, and a frame header of 7 for
/// offsets up to 1 GiB. `LENGTH` is the room that the library keeps for the length of a frame that ends a packet early.
const OVERHEAD: usize = 36;
const LENGTH: usize = 8;

/// Pause before the next attempt to send, if there is no memory for more data.
const NO_MEMORY_PAUSE: Duration = Duration::from_millis(10);

#[derive(Debug)]
pub(crate) struct Sending {
    pub(crate) gauge: Gauge,
    pacer: Pacer,
    repeat: TailRepeat<Datagrams>,
    /// Client: datagrams to be sent twice until the handshake has completed.
    copies: HandshakeCopies<Datagrams>,
    /// Bytes written to streams and not yet in packets, approximately.
    unsent: usize,
    /// Lost bytes that have been taken into account. While `resending` is set, packets wait for the window, too.
    lost_seen: u64,
    resending: bool,
    /// Number of packets that hold what was lost since the previous batch. They leave in a batch of their own.
    resent_alone: usize,
    /// Number of batches that may pass although the window is full, for acknowledgements and probes.
    grace: u8,
    /// The factor that limited sending last.
    pub(crate) limit: SendLimit,
    /// Send time of the latest batch, as the controller knows it.
    batch_at: Instant,
    pace_at: Option<Instant>,
    pub(super) counters: SendCounters,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SendCounters {
    pub(super) batches: u64,
    pub(super) datagrams: u64,
    /// Number of datagrams that were sent a second time.
    pub(super) repeated: u64,
}

impl Sending {
    pub(super) fn new(now: Instant, gauge: Gauge) -> Self {
        Self {
            gauge,
            pacer: Pacer::new(now),
            repeat: TailRepeat::default(),
            copies: HandshakeCopies::default(),
            unsent: 0,
            lost_seen: 0,
            resending: false,
            resent_alone: 0,
            grace: 0,
            limit: SendLimit::default(),
            batch_at: now,
            pace_at: None,
            counters: SendCounters::default(),
        }
    }

    pub(crate) fn note_written(&mut self, bytes: usize) {
        self.unsent += bytes;
    }

    pub(crate) fn has_unsent(&self) -> bool {
        self.unsent > 0
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.unsent == 0 && self.gauge.in_flight() == 0
    }

    /// Lets at least this many batches pass although the window is full.
    pub(super) fn allow(&mut self, batches: u8) {
        self.grace = self.grace.max(batches);
    }

    pub(super) fn handle_timeout(&mut self, now: Instant) {
        self.pace_at = self.pace_at.filter(|&at| at > now);
    }

    pub(super) fn next_timeout(&self) -> Option<Instant> {
        let repeats = [self.repeat.next_timeout(), self.copies.next_timeout()];
        repeats.into_iter().chain([self.pace_at]).flatten().min()
    }

    pub(super) fn end_handshake(&mut self) {
        self.copies.end();
    }

    /// Updates the repetition of the last datagram from the state of the data in flight.
    pub(super) fn watch_flight(&mut self, now: Instant, quic: &quinn_proto::Connection) {
        if self.gauge.latest_arrived() {
            self.repeat.handle_arrived(now, quic.min_rtt());
        } else if self.gauge.in_flight() == 0 || quic.is_closed() {
            self.repeat.forget();
        }
    }

    pub(super) fn forget_flight(&mut self) {
        self.repeat.forget();
    }

    /// Begins a batch. Returns the number of bytes that flows may hand over now, or `None` if no flow is `waiting` or
    /// nothing may be sent.
    ///
    /// `sleeps` is the delay of this call that the caller's sleep may cause.
    pub(super) fn begin_filling(
        &mut self,
        now: Instant,
        sleeps: Duration,
        waiting: bool,
        mtu: u16,
    ) -> Option<usize> {
        self.pace_at = None;
        self.gauge.set_sleeps(sleeps);
        if !waiting {
            if self.limit != SendLimit::ReceiveWindow {
                self.limit = SendLimit::Application;
            }
            // Retransmissions wait for the window, too, even if no flow has new data.
            self.gauge.set_limited(self.resending);
            return None;
        }
        let room = self.allowance(now, mtu);
        if room.is_none() {
            self.gauge.set_limited(true);
            self.limit = SendLimit::Congestion;
        } else {
            self.limit = SendLimit::Application;
        }
        room
    }

    /// Ends a batch for which there was `room`. `more` means that flows still wait, and `restrained` that memory is
    /// short.
    pub(crate) fn end_filling(&mut self, now: Instant, room: usize, more: bool, restrained: bool) {
        self.gauge.set_limited(more || self.resending);
        if more && restrained {
            // By then an acknowledgement, or a release elsewhere, may have freed memory.
            self.pace_at = Some(now + NO_MEMORY_PAUSE);
        }
        if more {
            let ended = room <= BATCH_MAX;
            self.limit = if ended {
                SendLimit::Congestion
            } else {
                SendLimit::Cpu
            };
        }
    }

    fn allowance(&mut self, now: Instant, mtu: u16) -> Option<usize> {
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

    pub(super) fn poll(
        &mut self,
        now: Instant,
        quic: &mut quinn_proto::Connection,
        context: BatchContext,
        max_segments: usize,
        buffer: &mut Vec<u8>,
    ) -> Option<Datagrams> {
        let mtu = quic.current_mtu();
        let most = (BATCH_MAX / usize::from(mtu)).clamp(1, max_segments);
        let Some(segments) = self.segments_now(now, mtu, most, context.established) else {
            return self.repeat_late(now, quic.rtt(), buffer);
        };
        let data = self.unsent > 0 || self.resending;
        self.gauge.set_counting(data);
        // The controller identifies a batch by its send time.
        self.batch_at = now.max(self.batch_at + Duration::from_nanos(1));
        let Some(transmit) = quic.poll_transmit(self.batch_at, segments, buffer) else {
            self.unsent = 0;
            self.resending = false;
            self.lost_seen = self.gauge.lost();
            return self.repeat_late(now, quic.rtt(), buffer);
        };
        self.grace = self.grace.saturating_sub(1);
        self.unsent = self.unsent.saturating_sub(transmit.size);
        let datagrams = from_library(&transmit);
        if data {
            let rate = self.gauge.limits().rate;
            self.pacer.on_sent(transmit.size, rate);
            self.note_flight(context, datagrams, buffer, quic);
        }
        if quic.side().is_client() && !context.established {
            let bytes = &buffer[..datagrams.size];
            self.copies
                .handle_sent(now, datagrams, datagrams.count(), bytes);
        }
        self.count(&datagrams);
        Some(datagrams)
    }

    /// Records that a batch of data leaves. If it is the last one, its acknowledgement is watched for.
    fn note_flight(
        &mut self,
        context: BatchContext,
        batch: Datagrams,
        bytes: &[u8],
        quic: &quinn_proto::Connection,
    ) {
        if context.last && self.unsent == 0 && context.established {
            let (last, bytes) = batch.last(bytes);
            let alone = batch.size == bytes.len();
            self.repeat
                .handle_flight(self.batch_at, last, bytes, alone, quic.rtt());
        } else {
            self.repeat.forget();
        }
    }

    /// Returns a datagram to send a second time: a copy of the handshake, or the last datagram if its acknowledgement
    /// is late.
    fn repeat_late(
        &mut self,
        now: Instant,
        rtt: Duration,
        buffer: &mut Vec<u8>,
    ) -> Option<Datagrams> {
        let copy = self.copies.poll(now, buffer);
        let datagrams = copy.or_else(|| self.repeat.poll(now, rtt, buffer))?;
        self.pacer.on_sent(datagrams.size, self.gauge.limits().rate);
        self.count(&datagrams);
        self.counters.repeated += datagrams.count() as u64;
        Some(datagrams)
    }

    fn count(&mut self, datagrams: &Datagrams) {
        self.counters.batches += 1;
        self.counters.datagrams += datagrams.count() as u64;
    }

    /// Returns how many datagrams the library may make now: `most`, unless it retransmits losses.
    fn segments_now(
        &mut self,
        now: Instant,
        mtu: u16,
        most: usize,
        established: bool,
    ) -> Option<usize> {
        let lost = self.gauge.lost().saturating_sub(self.lost_seen);
        if lost > 0 {
            self.lost_seen += lost;
            self.resending = true;
            self.resent_alone = packets(lost, mtu);
        }
        if !self.resending || !established {
            return Some(most);
        }
        match self.pacer.allowance(now, &self.gauge, mtu) {
            // All datagrams of a batch have the length of the first. A retransmitted one is a few bytes shorter than
            // others. If many of those left together, the library would conclude that longer datagrams no longer
            // arrive.
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

/// Returns how much stream data fits into whole packets of `bytes` in total. With more data, a batch would end in a
/// packet of a few bytes. If a batch is one packet, that would be every other packet.
fn payload(bytes: usize, mtu: usize) -> usize {
    match bytes / mtu {
        0 => bytes,
        packets => (packets * mtu.saturating_sub(OVERHEAD)).saturating_sub(LENGTH),
    }
}

fn packets(bytes: u64, mtu: u16) -> usize {
    usize::try_from(bytes.div_ceil(u64::from(mtu))).unwrap_or(usize::MAX)
}
