//! How a connection sends: which batches leave, and when.
//!
//! Data is held back before it becomes packets: flows are asked for bytes only while the congestion window and the pacer
//! have room. Acknowledgements, probes and MTU discovery then pass the library freely. Only what was lost and must be
//! sent again is in the library already; until that is done, whole batches wait for the window as well.

use std::time::{Duration, Instant};

use quictun_congestion::{Gauge, HandshakeCopies, Pacer, Repeat};

use crate::datagrams::Datagrams;
use crate::report::Limit;

/// Largest UDP payload of one send call; segmentation offload counts the whole of it.
pub(crate) const BATCH_MAX: usize = 65_000;

/// Bytes of a full packet that are not a stream's: a header of 11 or 12, a tag of 16 and 7 of the frame's, for
/// offsets up to 1 GiB; and the room that the library keeps for the length of a frame that ends a packet early.
const OVERHEAD: usize = 36;
const LENGTH: usize = 8;

/// Where there is no memory for more to send, it is looked for again after so long.
const NO_MEMORY_PAUSE: Duration = Duration::from_millis(10);

#[derive(Debug)]
pub(crate) struct Sending {
    pub(super) gauge: Gauge,
    pacer: Pacer,
    repeat: Repeat<Datagrams>,
    /// Client: what is to be sent twice until the handshake is done.
    copies: HandshakeCopies<Datagrams>,
    /// Written to streams and not yet in packets, roughly.
    unsent: usize,
    /// Losses the library has still to send again; until then packets, too, wait for the window.
    lost_seen: u64,
    resending: bool,
    /// Packets that fit what was lost since the batch before: they go alone.
    resent_alone: usize,
    /// Batches that may pass although the window is full: acknowledgements and probes.
    grace: u8,
    /// What limited the latest sending.
    pub(super) limit: Limit,
    /// The time the latest batch has for the controller.
    batch_at: Instant,
    pace_at: Option<Instant>,
    pub(super) sent: Sent,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sent {
    pub(crate) batches: u64,
    pub(crate) datagrams: u64,
    /// The datagrams that were sent a second time.
    pub(crate) repeated: u64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    pub(crate) established: bool,
    pub(crate) last: bool,
}

impl Sending {
    pub(crate) fn new(now: Instant, gauge: Gauge) -> Self {
        Self {
            gauge,
            pacer: Pacer::new(now),
            repeat: Repeat::default(),
            copies: HandshakeCopies::default(),
            unsent: 0,
            lost_seen: 0,
            resending: false,
            resent_alone: 0,
            grace: 0,
            limit: Limit::default(),
            batch_at: now,
            pace_at: None,
            sent: Sent::default(),
        }
    }

    pub(crate) fn note_blocked(&mut self) {
        self.limit = Limit::ReceiveWindow;
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

    /// Lets at least so many batches pass although the window is full.
    pub(crate) fn allow(&mut self, batches: u8) {
        self.grace = self.grace.max(batches);
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        self.pace_at = self.pace_at.filter(|&at| at > now);
    }

    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        let repeats = [self.repeat.next_timeout(), self.copies.next_timeout()];
        repeats.into_iter().chain([self.pace_at]).flatten().min()
    }

    pub(crate) fn end_handshake(&mut self) {
        self.copies.end();
    }

    /// Notes what has become of the end of what was sent.
    pub(crate) fn watch_flight(&mut self, now: Instant, quic: &quinn_proto::Connection) {
        if self.gauge.latest_arrived() {
            self.repeat.handle_arrived(now, quic.min_rtt());
        } else if self.gauge.in_flight() == 0 || quic.is_closed() {
            self.repeat.forget();
        }
    }

    pub(crate) fn forget_flight(&mut self) {
        self.repeat.forget();
    }

    /// Begins a batch: bytes that flows may hand over now, if any wait to.
    ///
    /// `sleeps`: how late this may come because the caller sleeps.
    pub(crate) fn begin_filling(
        &mut self,
        now: Instant,
        sleeps: Duration,
        waiting: bool,
        mtu: u16,
    ) -> Option<usize> {
        self.pace_at = None;
        self.gauge.set_sleeps(sleeps);
        if !waiting {
            if self.limit != Limit::ReceiveWindow {
                self.limit = Limit::Application;
            }
            // What is being sent again waits for the window, too, even if no flow has anything new.
            self.gauge.set_limited(self.resending);
            return None;
        }
        let room = self.allowance(now, mtu);
        if room.is_none() {
            self.gauge.set_limited(true);
            self.limit = Limit::Congestion;
        } else {
            self.limit = Limit::Application;
        }
        room
    }

    /// Ends a batch for which there was `room`. `more`: flows still wait. `restrained`: for memory.
    pub(crate) fn end_filling(&mut self, now: Instant, room: usize, more: bool, restrained: bool) {
        self.gauge.set_limited(more || self.resending);
        if more && restrained {
            // Until something is acknowledged, or given back elsewhere.
            self.pace_at = Some(now + NO_MEMORY_PAUSE);
        }
        if more {
            let ended = room <= BATCH_MAX;
            self.limit = if ended { Limit::Congestion } else { Limit::Cpu };
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

    pub(crate) fn poll(
        &mut self,
        now: Instant,
        quic: &mut quinn_proto::Connection,
        moment: Moment,
        max_segments: usize,
        buffer: &mut Vec<u8>,
    ) -> Option<Datagrams> {
        let mtu = quic.current_mtu();
        let most = (BATCH_MAX / usize::from(mtu)).clamp(1, max_segments);
        let Some(segments) = self.segments_now(now, mtu, most, moment.established) else {
            return self.repeat_late(now, quic.rtt(), buffer);
        };
        let data = self.unsent > 0 || self.resending;
        self.gauge.set_counting(data);
        // The controller knows a batch by its time.
        self.batch_at = now.max(self.batch_at + Duration::from_nanos(1));
        let Some(transmit) = quic.poll_transmit(self.batch_at, segments, buffer) else {
            self.unsent = 0;
            self.resending = false;
            self.lost_seen = self.gauge.lost();
            return self.repeat_late(now, quic.rtt(), buffer);
        };
        self.grace = self.grace.saturating_sub(1);
        self.unsent = self.unsent.saturating_sub(transmit.size);
        let datagrams = Datagrams::from_quinn(&transmit);
        if data {
            let rate = self.gauge.limits().rate;
            self.pacer.on_sent(transmit.size, rate);
            self.note_flight(moment, datagrams, buffer, quic);
        }
        if quic.side().is_client() && !moment.established {
            let bytes = &buffer[..datagrams.size];
            self.copies
                .handle_sent(now, datagrams, datagrams.count(), bytes);
        }
        self.count(&datagrams);
        Some(datagrams)
    }

    /// A batch of data leaves: where it is the last one, its acknowledgement is watched for.
    fn note_flight(
        &mut self,
        moment: Moment,
        batch: Datagrams,
        bytes: &[u8],
        quic: &quinn_proto::Connection,
    ) {
        if moment.last && self.unsent == 0 && moment.established {
            let (last, bytes) = batch.last(bytes);
            let alone = batch.size == bytes.len();
            self.repeat
                .handle_flight(self.batch_at, last, bytes, alone, quic.rtt());
        } else {
            self.repeat.forget();
        }
    }

    /// Gives what is sent a second time: a copy of the handshake, or the last datagram where its acknowledgement is late.
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
        self.sent.repeated += datagrams.count() as u64;
        Some(datagrams)
    }

    fn count(&mut self, datagrams: &Datagrams) {
        self.sent.batches += 1;
        self.sent.datagrams += datagrams.count() as u64;
    }

    /// How many datagrams the library may make now: `most`, unless losses are being sent again.
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

/// What whole packets of `bytes` carry. A batch that carried more would end in a packet of a few bytes:
/// where a batch is a packet, every other one.
fn payload(bytes: usize, mtu: usize) -> usize {
    match bytes / mtu {
        0 => bytes,
        packets => (packets * mtu.saturating_sub(OVERHEAD)).saturating_sub(LENGTH),
    }
}

fn packets(bytes: u64, mtu: u16) -> usize {
    usize::try_from(bytes.div_ceil(u64::from(mtu))).unwrap_or(usize::MAX)
}
