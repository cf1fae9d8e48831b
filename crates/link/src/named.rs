//! Named links: typical kinds of access, drawn from a seed.
//!
//! [`NamedLink::directions`] returns one [`LinkConfig`] per direction, to be used or changed like any other.
//! [`Overrides`] applies the user's own settings on top. The same seed draws the same link on every machine. Rates
//! count IP packets, without link-layer overhead.
//!
//! | name | Mbit/s down, up | idle round trip | queue | over time |
//! |---|---|---|---|---|
//! | `lte` | 30 (5 to 60), 10 (2 to 20) | 50 ms | 500 ms | the rate varies within about 500 ms; grants every 1 ms down, 10 ms up |
//! | `5g` | 300 (50 to 600), 50 (10 to 100) | 25 ms | 200 ms | the rate varies within about 300 ms; every 5 to 15 s it falls to 5 % for 200 to 500 ms, both ways; grants every 1 ms down, 5 ms up |
//! | `satellite` | 100 (60 to 140), 15 (9 to 21) | 40 ms (25 to 55) and jitter of 4 ms each way | 100 ms | every 15 s a handover: a standstill of 100 ms, another rate, another delay; 15 % loss for 400 ms, else 0.1 %, which makes 0.5 % |
//! | `wifi` | 80 (20 to 140) each way | 18 ms | 100 ms | sends all bytes that are due every 2 to 20 ms; another modulation every 0.5 to 1.5 s; 0.1 % loss |
//!
//! The rates are means, with the minimum and the maximum in brackets. The mean of the rates that one seed draws is
//! within about 15 % of it. The queue column gives the time that a full queue takes to empty at the mean rate.
//!
//! # Source of the figures
//!
//! The figures are chosen: each is within published measurements, and none is fitted to a recording. The shapes are
//! published. The cellular rate varies within hundreds of milliseconds in front of a deep queue, as measured by
//! Winstein, Sivaraman and Balakrishnan, "Stochastic Forecasts Achieve High Throughput and Low Delay over Cellular
//! Networks" (NSDI 2013). The period of 15 s is the one in which Starlink assigns satellites (Tanveer et al., "Making
//! Sense of Constellations", `CoNEXT` Companion 2023). To use a recording of your own, set a [`Trace`](crate::Trace).
//!
//! # How they are drawn
//!
//! `lte` and `5g`: the logarithm of the rate is an autoregressive walk in steps of 20 ms, so rates are log-normal,
//! clamped to the minimum and the maximum. `wifi` draws one of five rates, the middle one most often, and each time
//! between two accesses to the medium as the minimum of three uniform draws. All three are traces that repeat after 60
//! s, `5g` after 30 s. `satellite` draws rate and delay uniformly for each of its handovers in the first eight hours,
//! and keeps the last values from then on. It starts with a standstill, because its start is its first handover.

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

/// A kind of access link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamedLink {
    /// Access over a fourth-generation cellular network.
    Lte,
    /// Fifth-generation cellular access, at frequencies that a hand can block.
    FiveG,
    /// Satellites in low Earth orbit.
    Satellite,
    /// A wireless network at home that shares the medium with neighbours.
    Wifi,
}

impl NamedLink {
    /// All named links, with the name that users write for each.
    pub const ALL: &[(&str, Self)] = &[
        ("lte", Self::Lte),
        ("5g", Self::FiveG),
        ("satellite", Self::Satellite),
        ("wifi", Self::Wifi),
    ];

    /// Returns the link that `seed` draws: up, then down.
    pub fn directions(self, seed: u64) -> [LinkConfig; 2] {
        match self {
            Self::Lte => cellular::LTE.directions(seed),
            Self::FiveG => cellular::FIVE_G.directions(seed),
            Self::Satellite => satellite::directions(seed),
            Self::Wifi => wifi::directions(seed),
        }
    }

    /// Returns the time that a full queue takes to empty at the mean rate.
    pub fn queue_time(self) -> Duration {
        match self {
            Self::Lte => cellular::LTE.queue,
            Self::FiveG => cellular::FIVE_G.queue,
            Self::Satellite => satellite::QUEUE,
            Self::Wifi => wifi::QUEUE,
        }
    }
}

/// Converts Mbit/s to bytes per second.
const fn mbit(rate: u64) -> u64 {
    rate * 125_000
}
