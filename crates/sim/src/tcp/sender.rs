//! The sending end of a TCP connection.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Instant;

use super::ranges::Ranges;
use super::rtt::RttEstimator;
use super::segment::{SACK_MAX, SEGMENT, SegmentKind, TcpSegment};
use super::window::{AckProgress, CongestionWindow};

/// A transmission counts as lost once a transmission this many later has arrived (RFC 6675's `DupThresh`).
const REORDERING: u64 = 3;

/// Divisor of the minimum round-trip time: a packet may be late by that share of it (RFC 8985 section 6.2).
const REORDERING_TIME: u32 = 4;

/// Maximum bytes in flight. Linux's largest window is smaller, but this limit must not restrain a reference.
const WINDOW_MAX: u64 = 64 << 20;

/// The sending end of a connection. Internally, sequence numbers count segments.
#[derive(Debug)]
pub(crate) struct TcpSender {
    /// Segments that the application sends; `None` means as many as the connection accepts.
    total: Option<u64>,
    /// The connection's number on this host and on the other host.
    ends: (u32, u32),
    state: State,
    /// Everything below this segment number has arrived.
    acked: u64,
    /// The segments from `acked` on that were sent.
    slots: VecDeque<SentSegment>,
    sacked: Ranges,
    /// Segment and transmission numbers in the order of sending. Outdated entries stay until they reach the front.
    order: VecDeque<(u64, u64)>,
    transmissions: u64,
    /// The latest transmission that has arrived, and the time at which it was sent.
    newest: Option<(u64, Instant)>,
    /// Segments to retransmit; some of them may have arrived meanwhile.
    lost: BinaryHeap<Reverse<u64>>,
    in_flight: u64,
    /// End of the recovery period: the window was already reduced for losses below this segment number.
    recovery: Option<u64>,
    window: CongestionWindow,
    rtt: RttEstimator,
    timeout_at: Option<Instant>,
    backoff: u32,
    report: TrafficReport,
    scratch: Vec<(u64, u64)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The connection waits for the answer to its SYN, or has not sent the SYN yet.
    Opening {
        sent: Option<Instant>,
    },
    Open,
}

#[derive(Clone, Copy, Debug)]
struct SentSegment {
    sent: Instant,
    transmission: u64,
    flying: bool,
    arrived: bool,
    again: bool,
}

/// The results of cross traffic so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrafficReport {
    /// Bytes of payload that arrived; for TCP, those that arrived in order.
    pub received: u64,
    /// TCP: number of retransmitted segments.
    pub retransmitted: u64,
    /// TCP: number of retransmission timeouts.
    pub timeouts: u64,
    /// TCP: time at which the last byte of a transfer of limited size was acknowledged.
    pub finished: Option<Instant>,
}

impl TcpSender {
    pub(crate) fn new(bytes: Option<u64>, ends: (u32, u32)) -> Self {
        Self {
            total: bytes.map(|bytes| bytes.div_ceil(SEGMENT.into())),
            ends,
            state: State::Opening { sent: None },
            acked: 0,
            slots: VecDeque::new(),
            sacked: Ranges::default(),
            order: VecDeque::new(),
            transmissions: 0,
            newest: None,
            lost: BinaryHeap::new(),
            in_flight: 0,
            recovery: None,
            window: CongestionWindow::default(),
            rtt: RttEstimator::default(),
            timeout_at: None,
            backoff: 0,
            report: TrafficReport::default(),
            scratch: Vec::new(),
        }
    }

    /// Returns the sender's counts. The receiving end adds `received`.
    pub(crate) fn report(&self) -> TrafficReport {
        self.report
    }

    /// Handles the SYN-ACK: the connection is open.
    pub(crate) fn handle_syn_ack(&mut self, now: Instant) {
        if let State::Opening { sent: Some(sent) } = self.state {
            if self.backoff == 0 {
                self.rtt.sample(now - sent);
            }
            self.state = State::Open;
            (self.timeout_at, self.backoff) = (None, 0);
        }
    }

    /// Opens the connection without a SYN, as the end that has answered one.
    pub(crate) fn skip_handshake(&mut self) {
        self.state = State::Open;
    }

    /// Returns whether another segment may be added, which would leave at once.
    pub(crate) fn has_room(&self) -> bool {
        self.state == State::Open
            && !self.has_data()
            && self.in_flight < self.window.segments().max(1)
    }

    /// Adds a segment to those that the application sends.
    pub(crate) fn add_segment(&mut self) {
        self.total = self.total.map(|total| total + 1);
    }

    /// Returns the number of segments that have arrived in order.
    pub(crate) fn acked(&self) -> u64 {
        self.acked
    }

    pub(crate) fn handle_ack(&mut self, now: Instant, below: u64, sack: &[(u64, u64); SACK_MAX]) {
        let segment = u64::from(SEGMENT);
        let sent = self.acked + self.slots.len() as u64;
        let below = (below / segment).min(sent);
        let used = self.in_flight + REORDERING >= self.window.segments()
            || (self.window.is_slow_start() && self.in_flight * 2 >= self.window.segments());
        let mut delivered = 0;
        let mut sample = None;
        if below > self.acked {
            for number in self.acked..below {
                delivered += u64::from(self.deliver(number, &mut sample));
            }
            let count = usize::try_from(below - self.acked).unwrap_or(usize::MAX);
            self.slots.drain(..count);
            self.acked = below;
            self.sacked.remove_below(below);
            self.backoff = 0;
            let outstanding = !self.slots.is_empty();
            self.timeout_at = outstanding.then(|| now + self.rtt.timeout(0));
        }
        for &(from, until) in sack {
            delivered += self.handle_sack(from / segment, (until / segment).min(sent), &mut sample);
        }
        let sample = sample.map(|at| now - at);
        if let Some(rtt) = sample {
            self.rtt.sample(rtt);
        }
        if self.recovery.is_some_and(|until| self.acked >= until) {
            self.recovery = None;
        }
        self.find_losses(now);
        if self.recovery.is_none() && used && delivered > 0 {
            #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
            let progress = AckProgress {
                delivered: delivered as f64,
                acked: self.acked,
                sent,
                sample,
                smoothed: self.rtt.smoothed(),
            };
            self.window.grow(now, progress);
        }
        if self.total.is_some_and(|total| self.acked >= total) {
            self.report.finished.get_or_insert(now);
        }
    }

    /// Marks a range as arrived. Returns the number of segments that were not known to have arrived.
    fn handle_sack(&mut self, from: u64, until: u64, sample: &mut Option<Instant>) -> u64 {
        let mut added = std::mem::take(&mut self.scratch);
        added.clear();
        self.sacked.insert(from.max(self.acked), until, &mut added);
        let mut delivered = 0;
        for &(from, until) in &added {
            for number in from..until {
                delivered += u64::from(self.deliver(number, sample));
            }
        }
        self.scratch = added;
        delivered
    }

    /// Marks a segment as arrived and returns true if that was not known. If the segment was sent only once, its send
    /// time goes to `sample`.
    fn deliver(&mut self, number: u64, sample: &mut Option<Instant>) -> bool {
        let index = usize::try_from(number - self.acked).unwrap_or(usize::MAX);
        let Some(slot) = self.slots.get_mut(index) else {
            return false;
        };
        if std::mem::replace(&mut slot.arrived, true) {
            return false;
        }
        if std::mem::take(&mut slot.flying) {
            self.in_flight -= 1;
        }
        if self
            .newest
            .is_none_or(|newest| newest.0 < slot.transmission)
        {
            self.newest = Some((slot.transmission, slot.sent));
        }
        if !slot.again {
            *sample = Some(sample.map_or(slot.sent, |sent| sent.max(slot.sent)));
        }
        true
    }

    /// Finds the segments that are lost because a segment sent well after them has arrived.
    fn find_losses(&mut self, now: Instant) {
        let Some((newest, newest_sent)) = self.newest else {
            return;
        };
        let late = self.rtt.min() / REORDERING_TIME;
        let mut found = false;
        while let Some(&(number, transmission)) = self.order.front() {
            let index = number.checked_sub(self.acked);
            let index = index.and_then(|index| usize::try_from(index).ok());
            if let Some(slot) = index.and_then(|index| self.slots.get_mut(index))
                && slot.transmission == transmission
                && slot.flying
            {
                let behind = newest >= transmission + REORDERING
                    || (newest > transmission && newest_sent > slot.sent + late);
                if !behind {
                    break;
                }
                slot.flying = false;
                self.in_flight -= 1;
                self.lost.push(Reverse(number));
                found = true;
            }
            self.order.pop_front();
        }
        if found && self.recovery.is_none() {
            self.window.reduce();
            self.recovery = Some(self.acked + self.slots.len() as u64);
            self.timeout_at = self.timeout_at.map(|_| now + self.rtt.timeout(0));
        }
    }

    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.timeout_at
    }

    fn has_data(&self) -> bool {
        let sent = self.acked + self.slots.len() as u64;
        let room = (self.slots.len() as u64 + 1) * u64::from(SEGMENT) <= WINDOW_MAX;
        room && self.total.is_none_or(|total| sent < total)
    }

    pub(crate) fn poll_segment(&mut self, now: Instant) -> Option<TcpSegment> {
        if self.timeout_at.is_some_and(|at| at <= now) {
            self.handle_retransmission_timeout();
        }
        let kind = match self.state {
            State::Opening { sent } => {
                if sent.is_some() && self.timeout_at.is_some() {
                    return None;
                }
                self.state = State::Opening { sent: Some(now) };
                self.timeout_at = Some(now + self.rtt.timeout(self.backoff));
                SegmentKind::Syn
            }
            State::Open => self.poll_data(now)?,
        };
        Some(TcpSegment {
            from: self.ends.0,
            connection: self.ends.1,
            kind,
        })
    }

    fn poll_data(&mut self, now: Instant) -> Option<SegmentKind> {
        if self.in_flight >= self.window.segments().max(1) {
            return None;
        }
        let number = match self.next_lost() {
            Some(number) => number,
            None if self.has_data() => {
                self.slots.push_back(SentSegment {
                    sent: now,
                    transmission: 0,
                    flying: false,
                    arrived: false,
                    again: false,
                });
                self.acked + self.slots.len() as u64 - 1
            }
            None => return None,
        };
        self.transmissions += 1;
        let slot = &mut self.slots[usize::try_from(number - self.acked).ok()?];
        slot.again = slot.transmission != 0;
        self.report.retransmitted += u64::from(slot.again);
        (slot.sent, slot.transmission, slot.flying) = (now, self.transmissions, true);
        self.order.push_back((number, self.transmissions));
        self.in_flight += 1;
        if self.timeout_at.is_none() || number == self.acked {
            self.timeout_at = Some(now + self.rtt.timeout(self.backoff));
        }
        Some(SegmentKind::Data {
            sequence: number * u64::from(SEGMENT),
            length: SEGMENT,
        })
    }

    /// Returns the first lost segment that has not arrived meanwhile.
    fn next_lost(&mut self) -> Option<u64> {
        while let Some(Reverse(number)) = self.lost.pop() {
            let index = number.checked_sub(self.acked);
            let slot = index.and_then(|index| self.slots.get(usize::try_from(index).ok()?));
            if slot.is_some_and(|slot| !slot.arrived && !slot.flying) {
                return Some(number);
            }
        }
        None
    }

    /// Handles the retransmission timeout: everything that has not arrived counts as lost (RFC 6298 section 5).
    fn handle_retransmission_timeout(&mut self) {
        self.timeout_at = None;
        self.backoff += 1;
        if self.state != State::Open {
            return;
        }
        self.report.timeouts += 1;
        self.order.clear();
        self.lost.clear();
        for (number, slot) in (self.acked..).zip(&mut self.slots) {
            slot.flying = false;
            if !slot.arrived {
                self.lost.push(Reverse(number));
            }
        }
        self.in_flight = 0;
        self.window.restart();
        self.recovery = None;
    }
}
