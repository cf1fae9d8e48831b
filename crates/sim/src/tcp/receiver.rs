//! The receiving end of a TCP connection.

use std::time::{Duration, Instant};

use super::ranges::Ranges;
use super::segment::{SACK_MAX, SegmentKind, TcpSegment};

/// Maximum delay of an acknowledgement, as in Linux.
const DELAY: Duration = Duration::from_millis(40);

/// Number of segments after which an acknowledgement is sent at once (RFC 5681 section 4.2).
const EVERY: u32 = 2;

#[derive(Debug)]
pub(crate) struct TcpReceiver {
    /// The connection's number on this host and on the other host.
    ends: (u32, u32),
    /// Everything below this sequence number has arrived.
    below: u64,
    beyond: Ranges,
    /// One sequence number within each range of `beyond` that was extended recently, the latest first.
    recent: Vec<u64>,
    /// Segments received since the last acknowledgement.
    pending: u32,
    acknowledge_at: Option<Instant>,
    out: Vec<TcpSegment>,
    scratch: Vec<(u64, u64)>,
}

impl TcpReceiver {
    pub(crate) fn new(ends: (u32, u32)) -> Self {
        Self {
            ends,
            below: 0,
            beyond: Ranges::default(),
            recent: Vec::new(),
            pending: 0,
            acknowledge_at: None,
            out: Vec::new(),
            scratch: Vec::new(),
        }
    }

    pub(crate) fn received(&self) -> u64 {
        self.below
    }

    pub(crate) fn handle_syn(&mut self) {
        self.out.push(TcpSegment {
            from: self.ends.0,
            connection: self.ends.1,
            kind: SegmentKind::SynAck,
        });
    }

    pub(crate) fn handle_data(&mut self, now: Instant, sequence: u64, length: u32) {
        let until = sequence + u64::from(length);
        if sequence == self.below && self.beyond.is_empty() {
            self.below = until;
            self.pending += 1;
            if self.pending >= EVERY {
                self.acknowledge();
            } else {
                self.acknowledge_at.get_or_insert(now + DELAY);
            }
            return;
        }
        // The segment is out of order, fills a gap, or is a duplicate: RFC 5681 section 4.2 asks for an immediate
        // acknowledgement.
        self.scratch.clear();
        self.beyond
            .insert(sequence.max(self.below), until, &mut self.scratch);
        self.below = self.beyond.take_from(self.below);
        if let Some(range) = self.beyond.range_of(sequence) {
            self.recent
                .retain(|&number| number < range.0 || number >= range.1);
            self.recent.insert(0, sequence);
            self.recent.truncate(SACK_MAX);
        }
        self.acknowledge();
    }

    fn acknowledge(&mut self) {
        let mut sack = [(0, 0); SACK_MAX];
        if !self.recent.is_empty() {
            let (beyond, below) = (&self.beyond, self.below);
            self.recent
                .retain(|&number| number >= below && beyond.range_of(number).is_some());
            for (block, &number) in sack.iter_mut().zip(&self.recent) {
                *block = beyond.range_of(number).unwrap_or_default();
            }
        }
        self.out.push(TcpSegment {
            from: self.ends.0,
            connection: self.ends.1,
            kind: SegmentKind::Ack {
                below: self.below,
                sack,
            },
        });
        self.pending = 0;
        self.acknowledge_at = None;
    }

    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.acknowledge_at
    }

    pub(crate) fn run(&mut self, now: Instant, mut out: impl FnMut(TcpSegment)) {
        if self.acknowledge_at.is_some_and(|at| at <= now) {
            self.acknowledge();
        }
        for segment in self.out.drain(..) {
            out(segment);
        }
    }
}
