//! A wireless network: the medium is someone else's for a while, and then all that is due goes at once.

use std::sync::Arc;
use std::time::Duration;

use super::mbit;
use super::random::{Grants, Stream};
use crate::config::{LinkConfig, Queue, sent_in};
use crate::draw::Purpose;

/// At the mean rate.
pub(super) const QUEUE: Duration = Duration::from_millis(100);

const MEAN: u64 = mbit(80);

/// The mean of the modulations, each as often as it is here.
const RATES: [u64; 10] = [
    mbit(20),
    mbit(50),
    mbit(50),
    mbit(80),
    mbit(80),
    mbit(80),
    mbit(80),
    mbit(110),
    mbit(110),
    mbit(140),
];

/// How long a modulation is kept, milliseconds.
const KEPT_MS: [u64; 2] = [500, 1500];

/// From one access to the medium to the next, milliseconds.
const APART_MS: [u64; 2] = [2, 20];

const DELAY: Duration = Duration::from_millis(5);

/// The loss that the medium's own repetitions leave.
const LOSS: f64 = 0.001;

/// Time after which the trace begins again.
const PERIOD_MS: u32 = 60_000;

/// Up, then down: each has accesses of its own.
pub(super) fn ways(seed: u64) -> [LinkConfig; 2] {
    [Purpose::NamedUp, Purpose::NamedDown].map(|purpose| way(Stream::new(seed, purpose)))
}

fn way(mut stream: Stream) -> LinkConfig {
    let mut grants = Grants::default();
    let (mut rate, mut rate_until) = (MEAN, 0);
    let mut access = apart(&mut stream);
    for ms in 0..u64::from(PERIOD_MS) {
        if ms >= rate_until {
            rate = stream.one_of(&RATES);
            rate_until = ms + stream.between(KEPT_MS[0], KEPT_MS[1]);
        }
        grants.earn(rate);
        if ms + 1 >= access {
            grants.grant(u32::try_from(ms + 1).unwrap_or(PERIOD_MS));
            access += apart(&mut stream);
        }
    }
    LinkConfig {
        trace: Some(Arc::new(grants.trace(PERIOD_MS))),
        delay: DELAY,
        loss: LOSS,
        queue: Queue::Bytes(sent_in(MEAN, QUEUE)),
        ..LinkConfig::default()
    }
}

/// The least of three, so that long waits are rare: 6 ms on average.
fn apart(stream: &mut Stream) -> u64 {
    let mut draw = || stream.between(APART_MS[0], APART_MS[1]);
    draw().min(draw()).min(draw())
}
