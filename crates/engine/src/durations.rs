//! Histograms of durations: round trips, first bytes, lives and moves of flows.

use std::time::Duration;

use crate::histogram::Histogram;

/// Bounds for round-trip times: from a local network (below 1 ms) to geostationary satellites (600 ms) and unbounded
/// queues. Steps of 1, 2 and 5. Finer from 20 ms to 1 s, where most long paths are and where people begin to notice.
static RTT: [Duration; 17] = [
    us(500),
    ms(1),
    ms(2),
    ms(5),
    ms(10),
    ms(20),
    ms(30),
    ms(50),
    ms(75),
    ms(100),
    ms(150),
    ms(200),
    ms(300),
    ms(500),
    ms(750),
    ms(1000),
    ms(2000),
];

/// Bounds for the time to the first byte: a round trip and the time that the target takes, up to twice the timeout of a
/// dial.
static FIRST_BYTE: [Duration; 14] = [
    ms(1),
    ms(2),
    ms(5),
    ms(10),
    ms(20),
    ms(50),
    ms(100),
    ms(200),
    ms(500),
    s(1),
    s(2),
    s(5),
    s(10),
    s(20),
];

/// Bounds for lifetimes of flows: from one request to a connection that is kept for days. A third of a decade is
/// precise enough.
static LIFE: [Duration; 14] = [
    ms(10),
    ms(50),
    ms(100),
    ms(500),
    s(1),
    s(5),
    s(10),
    s(30),
    s(60),
    s(300),
    s(1800),
    s(3600),
    s(21_600),
    s(86_400),
];

/// Bounds for the time that a move takes: from one round trip, if a connection is replaced, to a laptop that sleeps
/// overnight. Finer from 200 ms to 2 s, where a dead path is noticed.
static MOVE: [Duration; 14] = [
    ms(20),
    ms(50),
    ms(100),
    ms(200),
    ms(500),
    ms(750),
    s(1),
    ms(1500),
    s(2),
    s(5),
    s(30),
    s(120),
    s(600),
    s(1800),
];

/// Histograms of durations since the engine's creation.
#[derive(Clone, Copy, Debug)]
pub struct DurationHistograms {
    /// Smoothed round-trip times of connections. Each connection is sampled at most once a second, and only after it
    /// has received something.
    pub rtt: Histogram,
    /// Time from the start of a flow to the first byte that its target sends back. Client: until the application has
    /// the byte. Server: until the byte is on its way to the client.
    pub first_byte: Histogram,
    /// Lifetimes of flows that both sides had agreed on.
    pub life: Histogram,
    /// Time without progress of flows that have moved to another connection.
    pub moves: Histogram,
}

impl Default for DurationHistograms {
    fn default() -> Self {
        Self {
            rtt: Histogram::new(&RTT),
            first_byte: Histogram::new(&FIRST_BYTE),
            life: Histogram::new(&LIFE),
            moves: Histogram::new(&MOVE),
        }
    }
}

const fn us(microseconds: u64) -> Duration {
    Duration::from_micros(microseconds)
}

const fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_ascend() {
        for bounds in [&RTT[..], &FIRST_BYTE, &LIFE, &MOVE] {
            assert!(bounds.is_sorted_by(|a, b| a < b), "{bounds:?}");
        }
    }
}
