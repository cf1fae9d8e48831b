//! A wireless network: other stations hold the medium for a while, then all bytes that are due go at once.

use std::sync::Arc;
use std::time::Duration;

use super::mbit;
use super::random::{Grants, RandomStream};
use crate::config::{LinkConfig, Queue, sent_in};
use crate::draw::Purpose;

/// Time that a full queue takes to empty at the mean rate.
pub(super) const QUEUE: Duration = Duration::from_millis(100);

const MEAN: u64 = mbit(80);

/// The rates of the modulations. Each is listed as often as its weight; their mean is [`MEAN`].
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

/// Shortest and longest time for which a modulation is kept, in milliseconds.
const KEPT_MS: [u64; 2] = [500, 1500];

/// Shortest and longest time from one access to the medium to the next, in milliseconds.
const APART_MS: [u64; 2] = [2, 20];

const DELAY: Duration = Duration::from_millis(5);

/// Share of packets still lost after the medium's own retransmissions.
const LOSS: f64 = 0.001;

/// Time after which the trace repeats.
const PERIOD_MS: u32 = 60_000;

/// Returns the link that `seed` draws: up, then down. Each direction has its own accesses to the medium.
pub(super) fn directions(seed: u64) -> [LinkConfig; 2] {
    [Purpose::NamedUp, Purpose::NamedDown]
        .map(|purpose| direction(RandomStream::new(seed, purpose)))
}

fn direction(mut stream: RandomStream) -> LinkConfig {
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

/// Draws the time to the next access as the minimum of three draws, so that long waits are rare: 6 ms on average.
fn apart(stream: &mut RandomStream) -> u64 {
    let mut draw = || stream.between(APART_MS[0], APART_MS[1]);
    draw().min(draw()).min(draw())
}
