//! A lossy pipe in memory: messages enter at one end and leave at the other end, late or never.
//!
//! ```sh
//! cargo run -p quictun-link --example lossy_pipe
//! ```

#![expect(clippy::print_stdout, reason = "the example prints what happens")]

use std::collections::BTreeMap;
use std::error::Error;
use std::time::{Duration, Instant};

use quictun_link::units::Rate;
use quictun_link::{Fate, Link, LinkConfig};

/// A pipe that keeps messages until the link delivers them.
struct Pipe {
    link: Link,
    /// Messages under way, by arrival time and number.
    under_way: BTreeMap<(Instant, usize), String>,
    sent: usize,
}

impl Pipe {
    fn send(&mut self, now: Instant, message: String) {
        self.sent += 1;
        match self.link.send(now, message.len()) {
            Fate::Delivered { at, copy, .. } => {
                if let Some(at) = copy {
                    self.under_way.insert((at, self.sent), message.clone());
                }
                self.under_way.insert((at, self.sent), message);
            }
            Fate::Dropped(reason) => println!("  dropped: {message} ({reason:?})"),
        }
    }

    /// Returns the next message and its arrival time.
    fn receive(&mut self) -> Option<(Instant, String)> {
        let ((at, _), message) = self.under_way.pop_first()?;
        Some((at, message))
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let config = LinkConfig {
        rate: Some("1mbit".parse::<Rate>()?.0),
        delay: Duration::from_millis(20),
        jitter: Duration::from_millis(5),
        loss: 0.25,
        ..LinkConfig::default()
    };
    config.check()?;
    let start = Instant::now();
    // The same seed loses the same messages in every run.
    let link = Link::new(config, 7, start);
    let mut pipe = Pipe {
        link,
        under_way: BTreeMap::new(),
        sent: 0,
    };
    for number in 1..=8_u32 {
        let now = start + Duration::from_millis(5) * number;
        pipe.send(now, format!("message {number}"));
    }
    let mut received = 0;
    while let Some((at, message)) = pipe.receive() {
        received += 1;
        println!("{:>6.1} ms: {message}", (at - start).as_secs_f64() * 1e3);
    }
    let counters = pipe.link.counters();
    println!("{counters}");
    assert_eq!(received, counters.delivered + counters.duplicated);
    Ok(())
}
