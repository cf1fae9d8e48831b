//! Measures the cost of deciding a packet's fate: one thread, no real packets, virtual time.
//!
//! `cargo run --release -p quictun-e2e --example link [ROUNDS]` prints nanoseconds per packet for a few kinds of link.
//! The example prints the fastest round, because other work on the machine disturbed that round least.

use std::hint::black_box;
use std::io::Write as _;
use std::time::{Duration, Instant};

use quictun_link::{
    Codel, GilbertElliott, Link, LinkConfig, Packet, Policer, Queue, Trace, overhead,
};

/// Packets per round: enough for the clock's resolution, few enough to find an undisturbed round.
const PACKETS: u32 = 10_000;

fn main() -> std::io::Result<()> {
    let rounds = std::env::args().nth(1).and_then(|text| text.parse().ok());
    let plain = LinkConfig {
        rate: Some(75_000_000),
        overhead: overhead::ETHERNET,
        delay: Duration::from_millis(10),
        loss: 0.01,
        queue: Queue::Bytes(1_500_000),
        ..LinkConfig::default()
    };
    let managed = LinkConfig {
        codel: Some(Codel::default()),
        policer: Some(Policer {
            rate: 80_000_000,
            burst: 100_000,
        }),
        bursts: Some(GilbertElliott::from_mean(0.01, 3.0)),
        jitter: Duration::from_millis(1),
        duplicate: 0.01,
        ..plain.clone()
    };
    let traced = LinkConfig {
        rate: None,
        trace: Trace::parse("1\n1\n2\n4\n7").ok().map(Into::into),
        ..plain.clone()
    };
    let kinds = [
        ("a perfect wire", LinkConfig::default()),
        ("rate, delay, loss and queue", plain),
        ("these, and everything random or managed", managed),
        ("a trace in place of the rate", traced),
    ];
    for (name, config) in kinds {
        let best = (0..rounds.unwrap_or(500)).map(|_| round(&config)).min();
        let nanos = best.unwrap_or_default().as_secs_f64() * 1e9 / f64::from(PACKETS);
        writeln!(std::io::stdout(), "{nanos:6.1} ns per packet: {name}")?;
    }
    Ok(())
}

/// Sends slightly more than the link can carry, so that its queue is in use.
fn round(config: &LinkConfig) -> Duration {
    let start = Instant::now();
    let mut link = Link::new(config.clone(), 1, start);
    let mut now = start;
    for _ in 0..PACKETS {
        now += Duration::from_micros(20);
        black_box(link.send(black_box(now), Packet::from(1500)));
    }
    start.elapsed()
}
