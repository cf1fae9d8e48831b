//! The result of a measurement, as written in JSON. Times are in microseconds unless a name says otherwise.

use serde::Serialize;

use crate::latency::Latency;
use crate::meter::{INTERVAL, Measurement};
use crate::pace::UnansweredTransactions;
use crate::path::Path;
use crate::plan::{Mode, Plan, Transport};

/// Version of the report. It increases when a key changes its meaning.
pub const VERSION: u32 = 1;

/// The report of one measurement. A value without a meaning in the plan's mode is `None`.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Version of the report: [`VERSION`].
    pub version: u32,
    /// Transport: `tcp`, `tls`, `quic` or `udp`.
    pub transport: &'static str,
    /// Mode: `stream`, `rr` or `crr`.
    pub mode: &'static str,
    /// The senders' congestion controller, if it is known.
    pub congestion: Option<String>,
    /// True if every byte equals the byte sent, and no other error occurred.
    pub verified: bool,
    /// True if the measurement was ended early. The report then contains the results up to then.
    pub interrupted: bool,
    /// The part of a stream that arrived.
    pub receiver: Option<EndReport>,
    /// The part of a stream that the sender's socket accepted.
    pub sender: Option<EndReport>,
    /// Rate of arrival in each tenth of a second, from the first byte on, including the warm-up.
    pub intervals: Option<Vec<Interval>>,
    /// Number of requests answered, without those of the warm-up.
    pub transactions: Option<u64>,
    /// Number of requests answered per second.
    pub transactions_per_s: Option<f64>,
    /// Time from before the connection was made to the first answer, or to a stream's first byte at the client.
    pub first_us: Option<u64>,
    /// Time from before the connection was made to the last answer or byte. `None` if the amount is a time.
    pub total_us: Option<u64>,
    /// Summary of the latencies of transactions.
    pub latency_us: Option<Latency>,
    /// Transactions that an open loop should have begun and that were not done when its time was over. The latencies
    /// above do not include them.
    pub unanswered: Option<UnansweredTransactions>,
    /// Processor time used while the measurement counted.
    pub cpu: CpuReport,
    /// The path as seen by the sender of a stream, or by the client.
    pub path: Option<Path>,
}

/// The traffic that passed one end.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct EndReport {
    /// Number of bytes that passed.
    pub bytes: u64,
    /// Time that they took, in seconds.
    pub seconds: f64,
    /// Rate in bits per second.
    pub bit_per_s: u64,
}

/// One interval of a series.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Interval {
    /// End of the interval, in seconds.
    pub at_s: f64,
    /// Rate in the interval, in bits per second.
    pub bit_per_s: u64,
}

/// Processor time of the threads that moved the bytes, at both ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CpuReport {
    /// Threads of the client.
    pub client: Vec<ThreadCpu>,
    /// Threads of the server.
    pub server: Vec<ThreadCpu>,
}

/// Processor time of one thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ThreadCpu {
    /// Name of the thread.
    pub thread: &'static str,
    /// Processor time in nanoseconds.
    pub ns: u64,
}

impl EndReport {
    pub(crate) fn new(bytes: u64, seconds: f64) -> Self {
        Self {
            bytes,
            seconds,
            bit_per_s: bit_per_s(bytes, seconds),
        }
    }
}

pub(crate) fn report(
    plan: &Plan,
    congestion: Option<String>,
    client: Measurement,
    server: Measurement,
    total_us: u64,
) -> Report {
    let threads = |measured: &Measurement| {
        let thread = |&ns: &u64| ThreadCpu { thread: THREAD, ns };
        measured.cpu_ns.iter().map(thread).collect()
    };
    let cpu = CpuReport {
        client: threads(&client),
        server: threads(&server),
    };
    let timed = plan.span().is_some();
    let first_us = client.first_us;
    let stream = plan.mode == Mode::Stream;
    let (sender, receiver) = if plan.reverse {
        (server, client)
    } else {
        (client, server)
    };
    let tally = |measured: &Measurement| EndReport::new(measured.bytes, measured.seconds);
    // In the other modes the client sends the requests, and its meter counts them.
    let transactions = (!stream).then_some(sender.bytes);
    Report {
        version: VERSION,
        transport: plan.transport.word(),
        mode: plan.mode.word(),
        congestion,
        verified: true,
        interrupted: false,
        receiver: stream.then(|| tally(&receiver)),
        sender: stream.then(|| tally(&sender)),
        intervals: stream.then(|| intervals(&receiver.intervals)),
        transactions,
        transactions_per_s: transactions.map(|count| per_second(count, sender.seconds)),
        first_us,
        total_us: (!timed).then_some(total_us),
        latency_us: sender.times.summary(),
        unanswered: sender.unanswered,
        cpu,
        path: path(plan, sender.path, sender.datagrams, receiver.datagrams),
    }
}

fn path(plan: &Plan, told: Option<Path>, sent: u64, received: u64) -> Option<Path> {
    let told = told?;
    if plan.transport != Transport::Udp || plan.mode != Mode::Stream {
        return Some(told);
    }
    Some(Path {
        sent_packets: sent,
        lost_packets: sent.saturating_sub(received),
        ..told
    })
}

pub(crate) const THREAD: &str = "perf";

/// The reciprocal of [`INTERVAL`], exact in a float.
const INTERVALS_PER_S: f64 = 10.0;

fn intervals(bytes: &[u64]) -> Vec<Interval> {
    let length = INTERVAL.as_secs_f64();
    let ends = (1_u32..).map(|number| f64::from(number) / INTERVALS_PER_S);
    ends.zip(bytes)
        .map(|(at_s, &bytes)| Interval {
            at_s,
            bit_per_s: bit_per_s(bytes, length),
        })
        .collect()
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a rate, rounded"
)]
fn bit_per_s(bytes: u64, seconds: f64) -> u64 {
    per_second(bytes.saturating_mul(8), seconds).round() as u64
}

#[expect(clippy::cast_precision_loss, reason = "a rate")]
fn per_second(count: u64, seconds: f64) -> f64 {
    if seconds > 0.0 {
        count as f64 / seconds
    } else {
        0.0
    }
}
