//! UDP datagrams: a paced stream that counts missing datagrams, or one request and its answer at a time.
//!
//! Every datagram begins with the measurement's cookie and its own number; the rest is the payload for that number. In
//! a stream, the side with the bytes sends. A client asks first, so that also a tunnel carries its stream, which lets few
//! datagrams pass to a target that has not answered. A client that wants to receive repeats its request until the stream
//! arrives. A stream limited by time continues until its receiver, whose time began later, has seen enough: a server
//! reports this with datagrams of its own, a client by ending the measurement.

use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use quictun_engine::Datagrams;
use quictun_io::udp_port::{self, SendOutcome, UdpPort};
use rustix::event::PollFlags;

use crate::error::PerfError;
use crate::latency::LatencyRecorder;
use crate::meter::{Measurement, Meter, micros_since};
use crate::pace::TransactionSchedule;
use crate::path::{Path, headers, ratio};
use crate::pattern::Pattern;
use crate::plan::{Amount, Mode};
use crate::ports::{client_socket, port};
use crate::stop::WakeReason;
use crate::threads::Job;

/// Bytes of the cookie and the number at the start of every datagram.
const HEAD: usize = 16;

/// Limits on one send call, in bytes and in datagrams: those of the kernel.
const BATCH_MAX: usize = 65_000;
const SEGMENTS_MAX: usize = 64;

/// Limit on a sender's lag behind its rate. Beyond it, the sender drops the lost time instead of making up for it.
const BEHIND_MAX: Duration = Duration::from_millis(10);

/// Time between two attempts if no datagram has come back.
const AGAIN: Duration = Duration::from_millis(200);

/// The number of the datagram by which a client asks, and how often it does. A server of an earlier version does not answer.
const ASK: u64 = u64::MAX;
const ASKS: usize = 5;

/// Silence after which a stream of a fixed number of bytes is over: the missing datagrams are lost.
const SILENCE: Duration = Duration::from_secs(1);

/// Time for which a sender continues after its own end if the receiver does not report that it has enough.
const ENOUGH_TIMEOUT: Duration = Duration::from_secs(5);

struct ArrivedDatagram {
    from: SocketAddr,
    number: u64,
    length: usize,
}

struct UdpChannel<'a> {
    job: Job<'a>,
    udp: UdpPort,
    pattern: Pattern,
    arrived: Vec<ArrivedDatagram>,
    corrupt: Option<u64>,
}

pub(crate) fn ask(job: Job<'_>, server: SocketAddr) -> Result<Measurement, PerfError> {
    let mut wire = UdpChannel::new(job, client_socket(server)?)?;
    match (job.plan.mode, job.plan.reverse) {
        (Mode::Stream, false) => {
            wire.ask(server)?;
            wire.send_stream(server)
        }
        (Mode::Stream, true) => wire.receive_stream(Some(server)),
        (Mode::Rr | Mode::Crr, _) => wire.requests(server),
    }
}

/// Runs the server's part. It calls `begin` once the client may begin.
pub(crate) fn answer(
    job: Job<'_>,
    socket: UdpSocket,
    begin: &dyn Fn() -> Result<(), PerfError>,
) -> Result<Measurement, PerfError> {
    let mut wire = UdpChannel::new(job, socket)?;
    begin()?;
    match (job.plan.mode, job.plan.reverse) {
        (Mode::Stream, false) => wire.receive_stream(None),
        (Mode::Stream, true) => match wire.await_first()? {
            Some(client) => wire.send_stream(client),
            None => Ok(Measurement::default()),
        },
        (Mode::Rr | Mode::Crr, _) => wire.answers(),
    }
}

impl<'a> UdpChannel<'a> {
    fn new(job: Job<'a>, socket: UdpSocket) -> Result<Self, PerfError> {
        Ok(Self {
            job,
            udp: port(socket, job.plan)?,
            pattern: Pattern::new(job.seed),
            arrived: Vec::new(),
            corrupt: None,
        })
    }

    /// Returns the bytes of a datagram on the path to `remote`, without IP and UDP headers.
    fn payload(&self, remote: SocketAddr) -> u16 {
        let most = self.job.plan.mtu.unwrap_or(u32::MAX) - headers(remote);
        let most = u16::try_from(most).unwrap_or(u16::MAX);
        udp_port::path_mtu(Some(most))(remote)
    }

    fn path(&self, remote: SocketAddr, sent: u64, calls: u64) -> Path {
        Path {
            rtt_us: None,
            lost_packets: 0,
            sent_packets: sent,
            mtu: u32::from(self.payload(remote)) + headers(remote),
            gso_segments_per_send: ratio(sent, calls),
        }
    }

    /// Receives all waiting datagrams. Returns an error if a payload was corrupt.
    fn receive(&mut self) -> Result<(), PerfError> {
        let (cookie, arrived) = (self.job.seed, &mut self.arrived);
        let (pattern, corrupt) = (&self.pattern, &mut self.corrupt);
        loop {
            let received = self.udp.receive(&mut |datagram| {
                let Some((named, rest)) = datagram.data.split_first_chunk() else {
                    return;
                };
                let Some((number, payload)) = rest.split_first_chunk() else {
                    return;
                };
                if u64::from_be_bytes(*named) != cookie {
                    return;
                }
                let number = u64::from_be_bytes(*number);
                let offset = number.wrapping_mul(payload.len() as u64) & OFFSETS;
                if let Some(at) = pattern.differs(offset, payload) {
                    corrupt.get_or_insert(at);
                }
                arrived.push(ArrivedDatagram {
                    from: datagram.remote,
                    number,
                    length: datagram.data.len(),
                });
            });
            match received {
                Ok(true) => {}
                // Errors here are echoes of earlier sends (ICMP). If the server is gone, the TCP control connection
                // reports it.
                Ok(false) | Err(_) => break,
            }
        }
        match self.corrupt {
            Some(offset) => Err(PerfError::Corrupt(offset)),
            None => Ok(()),
        }
    }

    fn wait(&self, until: Option<Instant>) -> Result<WakeReason, PerfError> {
        let woken = self.job.stop.wait_for(&self.udp, PollFlags::IN, until);
        woken.map_err(PerfError::io("cannot wait"))
    }

    fn write(&mut self, number: u64, length: usize, into: &mut Vec<u8>) {
        let end = into.len() + length;
        into.extend_from_slice(&self.job.seed.to_be_bytes());
        into.extend_from_slice(&number.to_be_bytes());
        let mut offset = number.wrapping_mul((length - HEAD) as u64) & OFFSETS;
        while into.len() < end {
            let part = self.pattern.at(offset, end - into.len());
            offset += part.len() as u64;
            into.extend_from_slice(part);
        }
    }

    /// Sends, and waits while the socket is full. Returns `false` if the measurement is to end.
    fn send(
        &mut self,
        destination: SocketAddr,
        bytes: &[u8],
        segment: Option<usize>,
    ) -> Result<bool, PerfError> {
        let datagrams = Datagrams {
            destination,
            source: None,
            ecn: None,
            size: bytes.len(),
            segment_size: segment,
        };
        while self.udp.send(&datagrams, bytes) == SendOutcome::Full {
            let woken = self.job.stop.wait_for(&self.udp, PollFlags::OUT, None);
            if woken.map_err(PerfError::io("cannot wait"))? == WakeReason::Stopped {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Client: waits until the server answers.
    fn ask(&mut self, server: SocketAddr) -> Result<(), PerfError> {
        for _ in 0..ASKS {
            self.send_short(server, ASK)?;
            let again = Instant::now() + AGAIN;
            while Instant::now() < again {
                let woken = self.wait(Some(again))?;
                self.receive()?;
                let is_answered = !std::mem::take(&mut self.arrived).is_empty();
                if is_answered || woken == WakeReason::Stopped {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn send_stream(&mut self, to: SocketAddr) -> Result<Measurement, PerfError> {
        let job = self.job;
        let size = usize::from(self.payload(to));
        let rate = job.plan.rate.unwrap_or(u64::MAX).max(1);
        // Send as many datagrams as belong to a millisecond, at least one.
        let burst = (rate / 8 / 1000 / size as u64).max(1);
        let mut meter = Meter::new(job.clock);
        let mut left = match job.plan.amount {
            Amount::Bytes(all) => all,
            Amount::Time(_) | Amount::Count(_) => u64::MAX,
        };
        let (mut number, mut calls) = (0, 0);
        let mut over_at: Option<Instant> = None;
        let mut due = Instant::now();
        job.clock.begin(due);
        let mut batch = Vec::new();
        while left > 0 && self.await_due(due)? != WakeReason::Stopped {
            batch.clear();
            for _ in 0..burst.min(self.most(size)) {
                if left > 0 {
                    let length = usize::try_from(left).unwrap_or(size).clamp(HEAD + 1, size);
                    self.write(number, length, &mut batch);
                    number += 1;
                    left = left.saturating_sub(length as u64);
                }
            }
            if !self.send(to, &batch, (batch.len() > size).then_some(size))? {
                break;
            }
            calls += 1;
            let now = Instant::now();
            if !meter.add(now, batch.len() as u64) {
                self.receive()?;
                let over = *over_at.get_or_insert_with(|| {
                    // These answer what was asked in the beginning.
                    self.arrived.clear();
                    now
                });
                if !self.arrived.is_empty() || now.duration_since(over) >= ENOUGH_TIMEOUT {
                    break;
                }
            }
            #[expect(clippy::cast_precision_loss, reason = "a time")]
            let time = Duration::from_secs_f64(batch.len() as f64 * 8.0 / rate as f64);
            due = due.max(now.checked_sub(BEHIND_MAX).unwrap_or(now)) + time;
        }
        let mut measured = meter.finish();
        measured.path = Some(self.path(to, number, calls));
        measured.datagrams = number;
        Ok(measured)
    }

    fn most(&self, size: usize) -> u64 {
        if self.udp.segments() {
            (BATCH_MAX / size).clamp(1, SEGMENTS_MAX) as u64
        } else {
            1
        }
    }

    fn await_due(&self, due: Instant) -> Result<WakeReason, PerfError> {
        let stop = self.job.stop;
        while Instant::now() < due {
            let woken = stop.wait(Some(due));
            if woken.map_err(PerfError::io("cannot wait"))? == WakeReason::Stopped {
                return Ok(WakeReason::Stopped);
            }
        }
        Ok(if stop.is_raised() {
            WakeReason::Stopped
        } else {
            WakeReason::Due
        })
    }

    /// Receives until the measurement is to end. A client, which first sends a request to `hello`, stops once it has
    /// everything.
    fn receive_stream(&mut self, hello: Option<SocketAddr>) -> Result<Measurement, PerfError> {
        let Job { plan, began, .. } = self.job;
        let mut meter = Meter::new(self.job.clock);
        let (mut datagrams, mut bytes, mut first_us) = (0, 0, None);
        let (mut over, mut stopped) = (false, false);
        while !stopped && (hello.is_none() || !over) {
            if let Some(server) = hello.filter(|_| datagrams == 0) {
                self.send_begin(server)?;
            }
            let timeout = if datagrams == 0 { AGAIN } else { SILENCE };
            let woken = self.wait(hello.map(|_| Instant::now() + timeout))?;
            stopped = woken == WakeReason::Stopped;
            self.receive()?;
            let now = Instant::now();
            let mut arrived = std::mem::take(&mut self.arrived);
            for asks in arrived.extract_if(.., |it| it.number == ASK) {
                self.send_begin(asks.from)?;
            }
            for each in &arrived {
                first_us.get_or_insert_with(|| micros_since(began, now));
                datagrams += 1;
                bytes += each.length as u64;
                over |= !meter.add(now, each.length as u64);
            }
            if datagrams == 0 {
                continue;
            }
            if let Amount::Bytes(all) = plan.amount {
                over |= bytes >= all || woken == WakeReason::Due;
            } else {
                over |= meter.is_over(now);
            }
            if let Some(last) = arrived.last().filter(|_| over && hello.is_none()) {
                self.send_begin(last.from)?;
            }
        }
        let mut measured = meter.finish();
        (measured.datagrams, measured.first_us) = (datagrams, first_us);
        Ok(measured)
    }

    /// Sends the datagram that means that the other end may begin, or has sent enough. It has no other use.
    fn send_begin(&mut self, to: SocketAddr) -> Result<(), PerfError> {
        self.send_short(to, 0)
    }

    fn send_short(&mut self, to: SocketAddr, number: u64) -> Result<(), PerfError> {
        let mut bytes = Vec::new();
        self.write(number, HEAD + 1, &mut bytes);
        self.send(to, &bytes, None).map(drop)
    }

    /// Server: waits for the client's first datagram and returns its address, or `None` if the measurement is to end.
    fn await_first(&mut self) -> Result<Option<SocketAddr>, PerfError> {
        loop {
            let woken = self.wait(None)?;
            self.receive()?;
            if let Some(first) = self.arrived.pop() {
                return Ok(Some(first.from));
            }
            if woken == WakeReason::Stopped {
                return Ok(None);
            }
        }
    }

    /// Returns the length of a datagram with `payload` bytes of payload.
    fn message(&self, payload: u64, remote: SocketAddr) -> Result<usize, PerfError> {
        let room = u64::from(self.payload(remote)) - HEAD as u64;
        match usize::try_from(payload) {
            Ok(length) if payload <= room => Ok(length + HEAD),
            _ => Err(PerfError::Datagram(payload, room)),
        }
    }

    fn requests(&mut self, server: SocketAddr) -> Result<Measurement, PerfError> {
        let job = self.job;
        let length = self.message(job.plan.request, server)?;
        self.message(job.plan.response, server)?;
        job.clock.begin(job.began);
        let mut meter = Meter::new(job.clock);
        let mut times = LatencyRecorder::default();
        let mut pace = TransactionSchedule::new(job.plan, 0, Instant::now());
        let mut left = job.plan.share(0);
        let (mut number, mut sent, mut first_us) = (0, 0, None);
        let mut under_way = false;
        let mut request = Vec::new();
        'transactions: while left != Some(0) {
            let due = pace.wait(job.stop).map_err(PerfError::io("cannot wait"))?;
            let Some(from) = due else { break };
            under_way = true;
            request.clear();
            self.write(number, length, &mut request);
            let now = 'answer: loop {
                sent += 1;
                if !self.send(server, &request, None)? {
                    break 'transactions;
                }
                let again = Instant::now() + AGAIN;
                while Instant::now() < again {
                    if self.wait(Some(again))? == WakeReason::Stopped {
                        break 'transactions;
                    }
                    self.receive()?;
                    let mut arrived = std::mem::take(&mut self.arrived).into_iter();
                    if arrived.any(|arrived| arrived.number == number) {
                        break 'answer Instant::now();
                    }
                }
                // A lost request is sent again. Its latency includes the lost attempts.
            };
            number += 1;
            first_us.get_or_insert_with(|| micros_since(job.began, now));
            if !meter.add(now, 1) {
                break;
            }
            under_way = false;
            if meter.counts() {
                times.record(now.saturating_duration_since(from));
            }
            left = left.map(|left| left - 1);
        }
        let unanswered = meter.left_over(&pace, under_way);
        let mut measured = meter.finish();
        measured.unanswered = unanswered;
        let mut path = self.path(server, sent, sent);
        path.lost_packets = sent - number.min(sent);
        (measured.path, measured.times, measured.first_us) = (Some(path), times, first_us);
        Ok(measured)
    }

    fn answers(&mut self) -> Result<Measurement, PerfError> {
        let mut meter = Meter::new(self.job.clock);
        let mut answer = Vec::new();
        while self.wait(None)? != WakeReason::Stopped {
            self.receive()?;
            for arrived in std::mem::take(&mut self.arrived) {
                let length = self.message(self.job.plan.response, arrived.from)?;
                answer.clear();
                self.write(arrived.number, length, &mut answer);
                self.send(arrived.from, &answer, None)?;
                meter.add(Instant::now(), 1);
            }
        }
        Ok(meter.finish())
    }
}

/// Mask that keeps offsets into the payload small enough for additions not to overflow, whatever number a datagram
/// carries.
const OFFSETS: u64 = u64::MAX >> 1;
