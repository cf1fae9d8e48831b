//! Results as text for people, and the notes of a server.

use std::fmt::Write as _;

use quictun_perf::report::ThreadCpu;
use quictun_perf::server::FinishedMeasurement;
use quictun_perf::{Mode, Plan, Report};
use serde_json::{Value, json};

use crate::ask::plain;

pub(super) fn report(plan: &Plan, report: &Report) -> String {
    let mut text = heading(plan, report);
    let mut line = |name: &str, value: String| {
        // A write to a `String` cannot fail.
        if writeln!(text, "  {name:<12} {value}").is_err() {}
    };
    for (name, tally) in [("received", &report.receiver), ("sent", &report.sender)] {
        if let Some(tally) = tally {
            let rate = bits(tally.bit_per_s);
            line(
                name,
                format!("{rate}, {} bytes in {:.3} s", tally.bytes, tally.seconds),
            );
        }
    }
    if let (Some(count), Some(per_s)) = (report.transactions, report.transactions_per_s) {
        line("transactions", format!("{count}, {per_s:.0} per second"));
    }
    if let Some(latency) = &report.latency_us {
        let p99_9 = latency
            .p99_9
            .map_or_else(String::new, |us| format!("  p99.9 {us:.1}"));
        line(
            "latency us",
            format!(
                "min {:.1}  mean {:.1}  p50 {:.1}  p90 {:.1}  p99 {:.1}{p99_9}  max {:.1}  variance {:.1}",
                latency.min,
                latency.mean,
                latency.p50,
                latency.p90,
                latency.p99,
                latency.max,
                latency.variance
            ),
        );
    }
    if let Some(left) = report.unanswered.filter(|left| left.count > 0) {
        line(
            "unanswered",
            format!(
                "{} that were due, the oldest for {} us; the latencies above do not include them",
                left.count, left.longest_us
            ),
        );
    }
    if let Some(first) = report.first_us {
        line("first", format!("after {first} us, including the connect"));
    }
    if let Some(total) = report.total_us {
        line("total", format!("{total} us"));
    }
    let (client, server) = (cpu(&report.cpu.client), cpu(&report.cpu.server));
    line("cpu", format!("client {client:.3} s, server {server:.3} s"));
    if let Some(path) = &report.path {
        let rtt = path
            .rtt_us
            .map_or_else(String::new, |us| format!(", round trip {us} us"));
        let batch = path
            .gso_segments_per_send
            .map_or_else(String::new, |count| {
                format!(", {count:.1} datagrams per call")
            });
        line(
            "path",
            format!(
                "{} of {} packets lost, MTU {}{rtt}{batch}",
                path.lost_packets, path.sent_packets, path.mtu
            ),
        );
    }
    text
}

fn heading(plan: &Plan, report: &Report) -> String {
    let flows = plan.total_flows();
    let flows = if flows == 1 {
        String::new()
    } else {
        format!(", {flows} flows")
    };
    let congestion = report.congestion.as_deref();
    // The name may be the server's.
    let congestion = congestion.map_or_else(String::new, |name| format!(", {}", plain(name)));
    let way = if plan.reverse {
        ", server to client"
    } else {
        ""
    };
    let so_far = if report.interrupted {
        "interrupted; until then "
    } else {
        ""
    };
    format!(
        "{} {}{flows}{congestion}{way}: {so_far}every byte was compared\n",
        report.transport, report.mode
    )
}

/// Returns the rate of a progress line.
pub(super) fn rate(mode: Mode, moved: u64, seconds: f64) -> String {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        clippy::cast_sign_loss,
        reason = "the rate is only shown"
    )]
    let per_second = |amount: u64| (amount as f64 / seconds.max(1e-9)) as u64;
    match mode {
        Mode::Stream => bits(per_second(moved.saturating_mul(8))),
        Mode::Rr | Mode::Crr => format!("{} per second", per_second(moved)),
    }
}

/// Returns the line that a server prints for a measurement.
pub(super) fn served(served: &FinishedMeasurement) -> String {
    let (transport, mode) = (served.plan.transport.word(), served.plan.mode.word());
    let outcome = match &served.outcome {
        Ok(tally) if served.plan.mode == Mode::Stream => bits(tally.bit_per_s),
        Ok(tally) => format!("{} answered", tally.bytes),
        Err(why) => why.clone(),
    };
    format!("{}: {transport} {mode}: {outcome}", served.peer)
}

/// Returns the JSON object that a server notes for a measurement.
pub(super) fn note(served: &FinishedMeasurement) -> Value {
    let (transport, mode) = (served.plan.transport.word(), served.plan.mode.word());
    let mut note = json!({
        "version": quictun_perf::report::VERSION,
        "peer": served.peer.to_string(),
        "transport": transport,
        "mode": mode,
    });
    match &served.outcome {
        Ok(tally) if served.plan.mode == Mode::Stream => note["stream"] = json!(tally),
        Ok(tally) => note["transactions"] = json!(tally.bytes),
        Err(why) => note["error"] = json!(why),
    }
    note
}

fn bits(per_second: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "the rate is only shown")]
    let rate = per_second as f64;
    match per_second {
        1_000_000_000.. => format!("{:.2} Gbit/s", rate / 1e9),
        1_000_000.. => format!("{:.1} Mbit/s", rate / 1e6),
        _ => format!("{:.1} kbit/s", rate / 1e3),
    }
}

#[expect(clippy::cast_precision_loss, reason = "the time is only shown")]
fn cpu(threads: &[ThreadCpu]) -> f64 {
    threads.iter().map(|thread| thread.ns).sum::<u64>() as f64 / 1e9
}
