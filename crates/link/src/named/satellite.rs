//! Satellites in low Earth orbit: every 15 s another satellite takes over, with another distance and another rate.

use std::time::Duration;

use super::mbit;
use super::random::RandomStream;
use crate::config::{Change, LinkConfig, Queue, Setting, Stall, sent_in};
use crate::draw::Purpose;

/// Time that a full queue takes to empty at the mean rate.
pub(super) const QUEUE: Duration = Duration::from_millis(100);

const UP: u64 = mbit(15);
const DOWN: u64 = mbit(100);

/// Lowest and highest rate, as a percentage of the mean.
const RATE_PERCENT: [u64; 2] = [60, 140];

/// Lowest and highest one-way delay, in microseconds: round trips of 25 to 55 ms.
const DELAY_US: [u64; 2] = [12_500, 27_500];

const JITTER: Duration = Duration::from_millis(4);

/// Time from the start of one handover to the start of the next.
const PERIOD: Duration = Duration::from_secs(15);

/// Number of planned handovers: those of eight hours, which fit the limit on a link's changes.
const HANDOVERS: u32 = 8 * 240;

const STANDSTILL: Duration = Duration::from_millis(100);

/// Time for which a handover loses packets.
const ROUGH: Duration = Duration::from_millis(400);

const LOSS_IN_HANDOVER: f64 = 0.15;
const LOSS: f64 = 0.001;

/// Returns the link that `seed` draws: up, then down. The delay is the same in both directions.
pub(super) fn directions(seed: u64) -> [LinkConfig; 2] {
    let purposes = [Purpose::NamedUp, Purpose::NamedDown];
    let mut rates = purposes.map(|purpose| RandomStream::new(seed, purpose));
    let mut delays = RandomStream::new(seed, Purpose::NamedBoth);
    let mut directions = [UP, DOWN].map(|mean| LinkConfig {
        jitter: JITTER,
        stall: Some(Stall {
            lasts: STANDSTILL,
            every: PERIOD,
        }),
        loss: LOSS_IN_HANDOVER,
        queue: Queue::Bytes(sent_in(mean, QUEUE)),
        ..LinkConfig::default()
    });
    for handover in 0..HANDOVERS {
        let at = PERIOD * handover;
        let delay = Duration::from_micros(delays.between(DELAY_US[0], DELAY_US[1]));
        for ((direction, mean), rate) in directions.iter_mut().zip([UP, DOWN]).zip(&mut rates) {
            let rate = mean * rate.between(RATE_PERCENT[0], RATE_PERCENT[1]) / 100;
            hand_over(direction, at, rate, delay);
        }
    }
    directions
}

fn hand_over(direction: &mut LinkConfig, at: Duration, rate: u64, delay: Duration) {
    let mut change = |at, to| direction.changes.push(Change { at, to });
    if at.is_zero() {
        change(ROUGH, Setting::Loss(LOSS));
        direction.rate = Some(rate);
        direction.delay = delay;
        return;
    }
    change(at, Setting::Rate(Some(rate)));
    change(at, Setting::Delay(delay));
    change(at, Setting::Loss(LOSS_IN_HANDOVER));
    change(at + ROUGH, Setting::Loss(LOSS));
}
