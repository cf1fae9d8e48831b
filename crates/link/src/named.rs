//! Links with a name: what a kind of access is like, drawn from a seed.
//!
//! [`NamedLink::ways`] gives one [`LinkConfig`] for each direction, to be used or changed like any other; what a user
//! says besides comes on top with [`Overrides`]. The same seed draws the same link on every machine. Rates count IP
//! packets, without overhead of the link.
//!
//! | name | Mbit/s down, up | idle round trip | queue | over time |
//! |---|---|---|---|---|
//! | `lte` | 30 (5 to 60), 10 (2 to 20) | 50 ms | 500 ms | the rate wanders within about 500 ms; grants every 1 ms down, 10 ms up |
//! | `5g` | 300 (50 to 600), 50 (10 to 100) | 25 ms | 200 ms | the rate wanders within about 300 ms; every 5 to 15 s it falls to 5 % for 200 to 500 ms, both ways; grants every 1 ms down, 5 ms up |
//! | `satellite` | 100 (60 to 140), 15 (9 to 21) | 40 ms (25 to 55) and jitter of 4 ms each way | 100 ms | every 15 s a handover: standstill of 100 ms, another rate, another delay; 15 % loss for 400 ms, else 0.1 %, which makes 0.5 % |
//! | `wifi` | 80 (20 to 140) each way | 18 ms | 100 ms | sends every 2 to 20 ms what has become due; another modulation every 0.5 to 1.5 s; 0.1 % loss |
//!
//! The rates are means, with the least and the most in brackets; the mean of what one seed draws is within about
//! 15 % of it. The queue is what it holds at the mean rate.
//!
//! # Where the figures come from
//!
//! The figures are chosen: each is within what people measure, and none is fitted to a recording. The shapes are
//! published. A cellular rate that wanders within hundreds of milliseconds before a deep queue is that of Winstein,
//! Sivaraman and Balakrishnan, "Stochastic Forecasts Achieve High Throughput and Low Delay over Cellular Networks"
//! (NSDI 2013); the period of 15 s is that in which Starlink assigns satellites (Tanveer et al., "Making Sense of
//! Constellations", `CoNEXT` Companion 2023). A recording of one's own goes in as a [`Trace`](crate::Trace).
//!
//! # How they are drawn
//!
//! `lte` and `5g`: the logarithm of the rate is an autoregressive walk of steps of 20 ms, so that rates are
//! log-normal, and stops at the least and the most. `wifi` draws one of five rates, the middle one most often, and
//! each time between two accesses to the medium as the least of three even draws. All three are traces that begin
//! again after 60 s, `5g` after 30 s. `satellite` draws rate and delay evenly for each of its handovers in the first
//! eight hours, and stays as it is from then on. It stands still as it begins, since that is its first handover.

mod cellular;
mod overrides;
mod random;
mod satellite;
#[cfg(test)]
mod tests;
mod wifi;

use std::time::Duration;

pub use overrides::Overrides;

use crate::config::LinkConfig;

/// A kind of access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamedLink {
    /// Cellular, fourth generation.
    Lte,
    /// Cellular, fifth generation, at frequencies that a hand blocks.
    FiveG,
    /// Satellites in low orbit.
    Satellite,
    /// A wireless network at home, with neighbours.
    Wifi,
}

impl NamedLink {
    /// Names for people, with what they stand for.
    pub const ALL: &[(&str, Self)] = &[
        ("lte", Self::Lte),
        ("5g", Self::FiveG),
        ("satellite", Self::Satellite),
        ("wifi", Self::Wifi),
    ];

    /// The link that `seed` draws: up, then down.
    pub fn ways(self, seed: u64) -> [LinkConfig; 2] {
        match self {
            Self::Lte => cellular::LTE.ways(seed),
            Self::FiveG => cellular::FIVE_G.ways(seed),
            Self::Satellite => satellite::ways(seed),
            Self::Wifi => wifi::ways(seed),
        }
    }

    /// How long its queue takes to empty at the mean rate.
    pub fn queue_time(self) -> Duration {
        match self {
            Self::Lte => cellular::LTE.queue,
            Self::FiveG => cellular::FIVE_G.queue,
            Self::Satellite => satellite::QUEUE,
            Self::Wifi => wifi::QUEUE,
        }
    }
}

/// Bytes per second.
const fn mbit(rate: u64) -> u64 {
    rate * 125_000
}
