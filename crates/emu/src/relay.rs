//! One direction of an emulated link, in real time.

use std::io;
use std::time::{Duration, Instant};

use quictun_link::{Counters, LogHistogram};
use quictun_sys::{PacketSocket, SchedulingClass};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};

use crate::clocks::Clocks;
use crate::counts::TrafficCounts;
use crate::frame::{Frame, HEADERS_MAX};
use crate::frame_reader::{FrameReader, ReadResult};
use crate::schedule::{Departure, Schedule};
use crate::segments::{Scratch, part};
use crate::stop::Stop;

#[derive(Debug)]
pub(crate) struct Relay<'a> {
    pub(crate) from: &'a PacketSocket,
    pub(crate) to: &'a PacketSocket,
    pub(crate) stop: &'a Stop,
    reader: FrameReader,
    schedule: Schedule,
    scratch: Scratch,
    counts: TrafficCounts,
    lateness: LogHistogram,
    now: Instant,
    /// Set while the relay sleeps, or has slept, until shortly before the next departure.
    is_early: bool,
    arrived: Instant,
}

#[derive(Clone, Debug)]
pub(crate) struct RelayResult {
    pub(crate) counts: TrafficCounts,
    pub(crate) link: Counters,
    pub(crate) waits: LogHistogram,
    pub(crate) lateness: LogHistogram,
    /// Processor time of the thread, including the kernel's work on its behalf.
    pub(crate) busy: Duration,
    pub(crate) elapsed: Duration,
    pub(crate) promptness: SchedulingClass,
}

impl<'a> Relay<'a> {
    pub(crate) fn new(
        [from, to]: [&'a PacketSocket; 2],
        stop: &'a Stop,
        schedule: Schedule,
        now: Instant,
    ) -> Self {
        Self {
            from,
            to,
            stop,
            reader: FrameReader::new(),
            schedule,
            scratch: [0; HEADERS_MAX],
            counts: TrafficCounts::default(),
            lateness: LogHistogram::default(),
            now,
            is_early: false,
            arrived: now,
        }
    }

    pub(crate) fn run(mut self, promptness: SchedulingClass) -> RelayResult {
        let start = Instant::now();
        let mut stopped = false;
        while !stopped {
            self.send_due();
            let more = self.receive();
            stopped = self.wait(more);
        }
        RelayResult {
            counts: TrafficCounts {
                under_way: self.schedule.segments as u64,
                ..self.counts
            },
            link: self.schedule.link.counters(),
            waits: self.schedule.link.waits().clone(),
            lateness: self.lateness,
            busy: Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default(),
            elapsed: start.elapsed(),
            promptness,
        }
    }

    fn send_due(&mut self) {
        for _ in 0..SEND_BATCH {
            self.now = self.now.max(Instant::now());
            let Some(departure) = self.schedule.poll_departure(self.now) else {
                break;
            };
            self.lateness.record(self.now - departure.due);
            self.send(&departure);
        }
    }

    fn send(&mut self, departure: &Departure) {
        let Departure { frame, run, .. } = departure;
        let segments = run.len() as u64;
        let part = part(frame, run.clone(), departure.marked, &mut self.scratch);
        let parts = [part.headers, part.rest];
        for _ in 0..SEND_TRIES {
            match self.to.send(part.header, parts) {
                Ok(()) => {
                    self.counts.frames_out += 1;
                    self.counts.segments_out += segments;
                    self.counts.bytes_out += departure.bytes as u64;
                    self.counts.copies_out += if departure.is_copy { segments } else { 0 };
                    return;
                }
                Err(error) if is_full(&error) => wait_for_room(self.to),
                Err(_) => break,
            }
        }
        self.counts.unintended.not_sent += segments;
    }

    /// Reads up to a batch of arrived frames, and returns whether there may be more.
    fn receive(&mut self) -> bool {
        let clocks = Clocks::read();
        let mut bytes = 0;
        for _ in 0..RECEIVE_BATCH {
            match self.reader.read(self.from) {
                Ok(ReadResult::Frame(header, frame, stamp)) => {
                    self.now = self.now.max(Instant::now());
                    self.arrived = self.arrived.max(clocks.arrival(stamp, self.now));
                    bytes += frame.len();
                    self.counts.frames_in += 1;
                    match Frame::new(header, frame) {
                        Ok(frame) => self.enter(frame),
                        Err(_) => self.counts.unintended.malformed += 1,
                    }
                    if bytes >= RECEIVE_BYTES {
                        return true;
                    }
                }
                Ok(ReadResult::Lost) => self.counts.unintended.not_readable += 1,
                // A device that went down reports an error once, and then reads as silent.
                Ok(ReadResult::Nothing) | Err(_) => return false,
            }
        }
        true
    }

    fn enter(&mut self, frame: Frame) {
        let segments = frame.segments();
        let payload = frame.wire_length(0) * (segments - 1) + frame.wire_length(segments - 1);
        self.counts.segments_in += segments as u64;
        self.counts.bytes_in += payload as u64;
        if self.schedule.enter(self.arrived, frame).is_err() {
            self.counts.unintended.over_limit += segments as u64;
        }
    }

    /// Waits for a frame or for a due time, unless there is `more` to do, and returns whether to stop.
    fn wait(&mut self, more: bool) -> bool {
        let mut left = match self.schedule.next_due() {
            _ if more => Some(Duration::ZERO),
            Some(due) => Some(due.saturating_duration_since(Instant::now())),
            None => None,
        };
        // A processor wakes slowly from a long sleep. So wake it early once, and poll without sleeping until the due
        // time.
        let soon = left.filter(|left| *left <= EARLY && self.is_early);
        self.is_early = left.is_some_and(|left| left >= LONG) || soon.is_some();
        if soon.is_some() {
            left = Some(Duration::ZERO);
        } else if self.is_early {
            left = left.map(|left| left.saturating_sub(EARLY));
        }
        let mut ready = [
            PollFd::new(self.stop, PollFlags::IN),
            PollFd::new(self.from, PollFlags::IN),
        ];
        let timeout = left.and_then(|left| Timespec::try_from(left).ok());
        match poll(&mut ready, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => !ready[0].revents().is_empty(),
            // No further waiting is possible, so stop.
            Err(_) => true,
        }
    }
}

/// Time before the due time at which the relay wakes from a long sleep.
const EARLY: Duration = Duration::from_micros(60);

/// Shortest sleep that counts as long. Early wake-ups then cost at most a sixteenth of a processor.
const LONG: Duration = Duration::from_millis(1);

/// Maximum number of departures between two checks for arrived frames.
const SEND_BATCH: usize = 64;

/// Maximum number of frames read between two checks for due departures: less than a millisecond of work.
const RECEIVE_BATCH: usize = 64;

/// Maximum number of bytes read between two checks for due departures: some 50 microseconds of copying.
const RECEIVE_BYTES: usize = 256 << 10;

/// Number of attempts to send a frame. If the device's queue is full, the relay waits [`ROOM_WAIT`] before the next
/// attempt.
const SEND_TRIES: u32 = 3;

const ROOM_WAIT: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 1_000_000,
};

fn is_full(error: &io::Error) -> bool {
    let code = Errno::from_io_error(error);
    matches!(code, Some(Errno::NOBUFS | Errno::AGAIN))
}

fn wait_for_room(socket: &PacketSocket) {
    let mut ready = [PollFd::new(socket, PollFlags::OUT)];
    // A failed wait is harmless: the caller sends the frame again, and counts it as not sent after the last attempt.
    poll(&mut ready, Some(&ROOM_WAIT)).ok();
}
