//! The schedule of departures: which segments leave, and when.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;
use std::rc::Rc;
use std::time::{Duration, Instant};

use quictun_link::{Fate, Link, Packet};

use crate::frame::Frame;

#[derive(Debug)]
pub(crate) struct Schedule {
    pub(crate) link: Link,
    /// Decides on the loss of whole frames, if the loss unit is the frame.
    whole: Option<Link>,
    /// Segments that arrive within this time of each other may leave as one frame.
    window: Duration,
    departures: BinaryHeap<Reverse<Departure>>,
    /// Number of the next departure. Departures due at the same time leave in the order of their numbers.
    next: u64,
    /// Bytes on the wire of all scheduled departures.
    bytes: usize,
    /// Packets in flight, copies included.
    pub(crate) segments: usize,
}

#[derive(Clone, Debug)]
pub(crate) struct Departure {
    pub(crate) due: Instant,
    pub(crate) frame: Rc<Frame>,
    pub(crate) run: Range<usize>,
    /// True if the segments leave with CE.
    pub(crate) marked: bool,
    /// True if these segments are a copy of others that leave at another time.
    pub(crate) is_copy: bool,
    pub(crate) bytes: usize,
    number: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OverLimit;

struct PendingRun {
    run: Range<usize>,
    first: Instant,
    last: Instant,
    marked: bool,
    bytes: usize,
}

impl Schedule {
    pub(crate) fn new(link: Link, whole: Option<Link>, window: Duration) -> Self {
        Self {
            link,
            whole,
            window,
            departures: BinaryHeap::new(),
            next: 0,
            bytes: 0,
            segments: 0,
        }
    }

    /// Schedules the segments of a frame that arrives at `now`. Times must not go back.
    pub(crate) fn enter(&mut self, now: Instant, frame: Frame) -> Result<(), OverLimit> {
        if self.bytes >= BYTES_MAX || self.departures.len() >= DEPARTURES_MAX {
            return Err(OverLimit);
        }
        if let Some(whole) = &mut self.whole
            && matches!(whole.send(now, frame.wire_length(0)), Fate::Dropped(_))
        {
            return Ok(());
        }
        let frame = Rc::new(frame);
        let most = frame.segments_max();
        let mut growing: Option<PendingRun> = None;
        for index in 0..frame.segments() {
            let bytes = frame.wire_length(index);
            let packet = Packet {
                length: bytes,
                ecn_capable: frame.shape.ecn_capable,
            };
            let Fate::Delivered { at, copy, marked } = self.link.send(now, packet) else {
                continue;
            };
            match &mut growing {
                Some(run) if self.joins(run, index, at, marked, most) => {
                    run.run.end += 1;
                    run.last = at;
                    run.bytes += bytes;
                }
                other => {
                    let one = PendingRun::new(index, at, marked, bytes);
                    if let Some(complete) = other.replace(one) {
                        self.depart(&frame, complete, false);
                    }
                }
            }
            if let Some(at) = copy {
                self.depart(&frame, PendingRun::new(index, at, marked, bytes), true);
            }
        }
        if let Some(complete) = growing {
            self.depart(&frame, complete, false);
        }
        Ok(())
    }

    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.departures.peek().map(|Reverse(next)| next.due)
    }

    pub(crate) fn poll_departure(&mut self, now: Instant) -> Option<Departure> {
        if self.next_due()? > now {
            return None;
        }
        let Reverse(departure) = self.departures.pop()?;
        self.bytes -= departure.bytes;
        self.segments -= departure.run.len();
        Some(departure)
    }

    fn joins(
        &self,
        run: &PendingRun,
        index: usize,
        at: Instant,
        marked: bool,
        most: usize,
    ) -> bool {
        // A late segment is overtaken, and an early one overtakes: neither is part of a run.
        let in_window = at >= run.last && at - run.first <= self.window;
        let is_next = run.run.end == index && run.run.len() < most;
        // All segments of a frame must carry the same mark.
        in_window && is_next && run.marked == marked
    }

    /// Schedules a run. It leaves when its last segment has arrived.
    fn depart(&mut self, frame: &Rc<Frame>, run: PendingRun, is_copy: bool) {
        self.bytes += run.bytes;
        self.segments += run.run.len();
        self.departures.push(Reverse(Departure {
            due: run.last,
            frame: Rc::clone(frame),
            run: run.run,
            marked: run.marked,
            is_copy,
            bytes: run.bytes,
            number: self.next,
        }));
        self.next += 1;
    }
}

impl PendingRun {
    fn new(index: usize, at: Instant, marked: bool, bytes: usize) -> Self {
        Self {
            run: index..index + 1,
            first: at,
            last: at,
            marked,
            bytes,
        }
    }
}

impl Ord for Departure {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.due, self.number).cmp(&(other.due, other.number))
    }
}

impl PartialOrd for Departure {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Departure {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Departure {}

/// Limit on the bytes in flight; above it no frame is accepted. A second of 4 Gbit/s.
pub(crate) const BYTES_MAX: usize = 512 << 20;

/// Limit on the departures in flight; above it no frame is accepted. A second of a million small packets, in 200 MB.
pub(crate) const DEPARTURES_MAX: usize = 1 << 20;

#[cfg(test)]
mod tests;
