//! A controller on a link of 20 Mbit/s, 40 ms and 1 % loss, in virtual time. Prints the rate and the bytes in flight.
//!
//! ```sh
//! cargo run -p quictun-congestion --example on_a_link
//! ```

#![expect(clippy::print_stdout, reason = "the example prints what happens")]

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use quictun_congestion::{Auto, Loss, Model};
use quictun_link::{Fate, Link, LinkConfig, Queue};

const SIZE: u64 = 1200;
const BYTES: f64 = 1200.0;
const LOSS: Loss = Loss {
    bytes: SIZE,
    persistent: false,
};
/// Time after which the sender notices a loss: later packets have been acknowledged by then.
const NOTICE: Duration = Duration::from_millis(50);

fn main() {
    let start = Instant::now();
    let config = LinkConfig {
        rate: Some(2_500_000),
        // An acknowledgement arrives at once.
        delay: Duration::from_millis(40),
        loss: 0.01,
        queue: Queue::Bytes(100_000),
        ..LinkConfig::default()
    };
    let mut link = Link::new(config, 1, start);
    let mut auto = Auto::new(start, 1200);
    // Future news for the sender, by arrival time of the news and send time of the packet; true if the packet arrived.
    let mut news: BTreeMap<(Instant, Instant), bool> = BTreeMap::new();
    let (mut now, mut in_flight, mut tokens, mut arrived) = (start, 0, 0.0, 0.0);
    let mut report = start + Duration::from_millis(500);
    while now < start + Duration::from_secs(5) {
        now += Duration::from_micros(100);
        let limits = auto.limits();
        let rate = limits.rate.unwrap_or(f64::INFINITY);
        tokens = (tokens + rate * 1e-4).min(3.0 * BYTES);
        // No two packets have the same send time, so that the time identifies a packet.
        let mut sent = now;
        while tokens >= BYTES && in_flight + SIZE <= limits.window {
            tokens -= BYTES;
            in_flight += SIZE;
            auto.on_sent(sent, SIZE, true);
            match link.send(now, 1200) {
                Fate::Delivered { at, .. } => news.insert((at, sent), true),
                Fate::Dropped(_) => news.insert((now + NOTICE, sent), false),
            };
            sent += Duration::from_nanos(1);
        }
        while let Some(entry) = news.first_entry().filter(|entry| entry.key().0 <= now) {
            let ((_, sent), has_arrived) = entry.remove_entry();
            in_flight -= SIZE;
            if has_arrived {
                arrived += BYTES;
                auto.on_acked(now, sent, SIZE);
                auto.on_ack_end(now, in_flight);
            } else {
                auto.on_lost(now, sent, LOSS);
            }
        }
        if now >= report {
            let mbit = arrived * 8.0 / 0.5 / 1e6;
            let (phase, time) = (auto.view().phase, now - start);
            println!("{time:?}: {mbit:.1} Mbit/s, {in_flight} bytes in flight, {phase}");
            arrived = 0.0;
            report += Duration::from_millis(500);
        }
    }
    println!("{}", link.counters());
    // The link can carry 10 400 packets in this time.
    assert!(link.counters().delivered > 8000, "the rate is too low");
}
