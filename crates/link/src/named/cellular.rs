//! Cellular links: a rate that varies, sent in grants, in front of a deep queue.

use std::sync::Arc;
use std::time::Duration;

use super::mbit;
use super::random::{Grants, RandomStream, RateWalk};
use crate::config::{LinkConfig, Queue, sent_in};
use crate::draw::Purpose;

/// The parameters of both directions of a cellular link.
#[derive(Debug)]
pub(super) struct Cellular {
    up: CellularDirection,
    down: CellularDirection,
    /// Time constant of the random walk: the time in which a deviation shrinks to 37 %.
    time_constant_ms: f64,
    /// Time that a full queue takes to empty at the mean rate.
    pub(super) queue: Duration,
    /// Time after which the trace repeats.
    period_ms: u32,
    /// Times during which little of the rate is left.
    blockages: Option<Blockages>,
}

#[derive(Debug)]
struct CellularDirection {
    /// Mean rate that follows from the median, the spread and the limits.
    mean: u64,
    median: u64,
    /// Lowest and highest rate.
    limits: [u64; 2],
    /// Standard deviation of the rate's logarithm.
    spread: f64,
    /// Milliseconds between two grants. Each grant sends all bytes that are due.
    grant_ms: u32,
    delay: Duration,
}

#[derive(Debug)]
struct Blockages {
    /// Shortest and longest time from the end of one blockage to the next, in milliseconds.
    apart_ms: [u64; 2],
    lasts_ms: [u64; 2],
    /// Percentage of the rate that is left during a blockage.
    left: u64,
}

/// On an idle link a packet waits half a grant on average: 5 ms up and 0.5 ms down. With these waits the round trip is
/// 50 ms.
pub(super) static LTE: Cellular = Cellular {
    up: CellularDirection {
        mean: mbit(10),
        median: mbit(9),
        limits: [mbit(2), mbit(20)],
        spread: 0.5,
        grant_ms: 10,
        delay: Duration::from_micros(22_250),
    },
    down: CellularDirection {
        mean: mbit(30),
        median: mbit(27),
        limits: [mbit(5), mbit(60)],
        spread: 0.5,
        grant_ms: 1,
        delay: Duration::from_micros(22_250),
    },
    time_constant_ms: 500.0,
    queue: Duration::from_millis(500),
    period_ms: 60_000,
    blockages: None,
};

/// The period is half that of `lte`; with the same period the trace would exceed the crate's limit on lines.
pub(super) static FIVE_G: Cellular = Cellular {
    up: CellularDirection {
        mean: mbit(50),
        median: mbit(48),
        limits: [mbit(10), mbit(100)],
        spread: 0.4,
        grant_ms: 5,
        delay: Duration::from_millis(11),
    },
    down: CellularDirection {
        mean: mbit(300),
        median: mbit(285),
        limits: [mbit(50), mbit(600)],
        spread: 0.4,
        grant_ms: 1,
        delay: Duration::from_millis(11),
    },
    time_constant_ms: 300.0,
    queue: Duration::from_millis(200),
    period_ms: 30_000,
    blockages: Some(Blockages {
        apart_ms: [5000, 15_000],
        lasts_ms: [200, 500],
        left: 5,
    }),
};

/// Milliseconds between two rates: short compared with the time in which rates change, long compared with a grant.
const STEP_MS: u32 = 20;

impl Cellular {
    /// Returns the link that `seed` draws: up, then down. Both directions share their blockages.
    pub(super) fn directions(&self, seed: u64) -> [LinkConfig; 2] {
        let blocked = self.blocked(&mut RandomStream::new(seed, Purpose::NamedBoth));
        [
            self.direction(
                &self.up,
                RandomStream::new(seed, Purpose::NamedUp),
                &blocked,
            ),
            self.direction(
                &self.down,
                RandomStream::new(seed, Purpose::NamedDown),
                &blocked,
            ),
        ]
    }

    fn direction(
        &self,
        direction: &CellularDirection,
        mut stream: RandomStream,
        blocked: &[[u64; 2]],
    ) -> LinkConfig {
        let keeps = 1.0 - f64::from(STEP_MS) / self.time_constant_ms;
        let mut walk = RateWalk::new(direction.median, direction.spread, keeps, &mut stream);
        let [least, most] = direction.limits;
        let left = self.blockages.as_ref().map_or(100, |some| some.left);
        let mut rate = direction.median;
        let mut grants = Grants::default();
        for ms in 0..self.period_ms {
            if ms.is_multiple_of(STEP_MS) {
                rate = walk.step(&mut stream).clamp(least, most);
            }
            let is_blocked = within(blocked, u64::from(ms));
            grants.earn(if is_blocked { rate * left / 100 } else { rate });
            if (ms + 1).is_multiple_of(direction.grant_ms) {
                grants.grant(ms + 1);
            }
        }
        LinkConfig {
            trace: Some(Arc::new(grants.trace(self.period_ms))),
            delay: direction.delay,
            queue: Queue::Bytes(sent_in(direction.mean, self.queue)),
            ..LinkConfig::default()
        }
    }

    /// Draws the starts and ends of the blockages of one period.
    fn blocked(&self, stream: &mut RandomStream) -> Vec<[u64; 2]> {
        let mut blocked = Vec::new();
        let Some(blockages) = &self.blockages else {
            return blocked;
        };
        let [soon, late] = blockages.apart_ms;
        let [short, long] = blockages.lasts_ms;
        let mut from = stream.between(soon, late);
        while from < u64::from(self.period_ms) {
            let until = from + stream.between(short, long);
            blocked.push([from, until]);
            from = until + stream.between(soon, late);
        }
        blocked
    }
}

fn within(windows: &[[u64; 2]], time: u64) -> bool {
    windows
        .iter()
        .any(|&[from, until]| (from..until).contains(&time))
}
