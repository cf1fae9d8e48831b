//! A link that is checked, and what crosses it.

use std::fmt;
use std::time::Duration;

use quictun_link::units::{Delay, Rate, Share};
use quictun_link::{LinkConfig, Queue, overhead};

/// Packets and streams as the links of all cells carry them.
const MTU: usize = 1500;

/// Bytes that may wait at the least: a batch of segmentation offload.
const QUEUE_MIN: usize = 64 << 10;

/// Round trips that do not count, for whoever needs them to find the rate, and the least time.
const WARM_UP_ROUND_TRIPS: u32 = 30;
const WARM_UP: Duration = Duration::from_secs(1);

/// A link to check.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CheckCell {
    /// Bytes per second.
    pub rate: u64,
    /// Out and back.
    pub round_trip: Duration,
    /// Share of packets.
    pub loss: f64,
}

/// What crosses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// A flow through the tunnel.
    Tunnel,
    /// A TCP connection with CUBIC.
    Cubic,
}

/// What is checked where nothing else is asked for: Mbit/s, milliseconds, thousandths lost.
const TEN: [(u64, u64, u32); 10] = [
    (20, 20, 0),
    (100, 1, 0),
    (100, 20, 0),
    (100, 20, 1),
    (100, 20, 10),
    (100, 100, 0),
    (300, 20, 0),
    (600, 1, 0),
    (600, 20, 0),
    (600, 20, 10),
];

/// The ten cells of the help text.
pub fn ten() -> Vec<CheckCell> {
    let cell = |(mbit, milliseconds, thousandths): (u64, u64, u32)| CheckCell {
        rate: mbit * 125_000,
        round_trip: Duration::from_millis(milliseconds),
        loss: f64::from(thousandths) / 1000.0,
    };
    TEN.map(cell).to_vec()
}

impl CheckCell {
    /// Either direction of the link: a queue of one bandwidth-delay product, packets as on Ethernet.
    #[must_use]
    pub fn way(self) -> LinkConfig {
        let way = LinkConfig {
            rate: Some(self.rate),
            overhead: overhead::ETHERNET,
            delay: self.round_trip / 2,
            loss: self.loss,
            mtu: MTU,
            ..LinkConfig::default()
        };
        let queue = way.bandwidth_delay(self.round_trip).max(QUEUE_MIN);
        LinkConfig {
            queue: Queue::Bytes(queue),
            ..way
        }
    }

    pub(super) fn warm_up(self) -> Duration {
        (self.round_trip * WARM_UP_ROUND_TRIPS).max(WARM_UP)
    }
}

impl fmt::Display for CheckCell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (rate, delay, loss) = (Rate(self.rate), Delay(self.round_trip), Share(self.loss));
        write!(f, "{rate}:{delay}:{loss}")
    }
}

impl Load {
    /// The word for it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Tunnel => "tunnel",
            Self::Cubic => "cubic",
        }
    }
}
