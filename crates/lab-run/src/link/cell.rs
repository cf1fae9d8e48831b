//! A link to check, and the load on it.

use std::fmt;
use std::time::Duration;

use quictun_link::units::{Delay, Rate, Share};
use quictun_link::{LinkConfig, Queue, overhead};

/// The packet size of all checked links, in bytes.
const MTU: usize = 1500;

/// Minimum size of the queue, in bytes: one batch of segmentation offload.
const QUEUE_MIN: usize = 64 << 10;

/// The warm-up, in round trips, in which congestion control finds the rate, and its minimum. It is not counted.
const WARM_UP_ROUND_TRIPS: u32 = 30;
const WARM_UP: Duration = Duration::from_secs(1);

/// The parameters of a link to check.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CheckCell {
    /// The rate, in bytes per second.
    pub rate: u64,
    /// The round-trip time without queueing.
    pub round_trip: Duration,
    /// The share of packets that the link loses.
    pub loss: f64,
}

/// The kind of traffic on the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// A flow through the tunnel.
    Tunnel,
    /// A TCP connection with CUBIC.
    Cubic,
}

/// The default cells: Mbit/s, round-trip time in milliseconds, and loss in thousandths.
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

/// Returns the ten default cells, which the help text lists.
pub fn ten() -> Vec<CheckCell> {
    let cell = |(mbit, milliseconds, thousandths): (u64, u64, u32)| CheckCell {
        rate: mbit * 125_000,
        round_trip: Duration::from_millis(milliseconds),
        loss: f64::from(thousandths) / 1000.0,
    };
    TEN.map(cell).to_vec()
}

impl CheckCell {
    /// Returns the configuration of each direction: a queue of one bandwidth-delay product, and packets as on Ethernet.
    #[must_use]
    pub fn link_config(self) -> LinkConfig {
        let link_config = LinkConfig {
            rate: Some(self.rate),
            overhead: overhead::ETHERNET,
            delay: self.round_trip / 2,
            loss: self.loss,
            mtu: MTU,
            ..LinkConfig::default()
        };
        let queue = link_config.bandwidth_delay(self.round_trip).max(QUEUE_MIN);
        LinkConfig {
            queue: Queue::Bytes(queue),
            ..link_config
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
    /// Returns the load's name on the command line and in reports.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Tunnel => "tunnel",
            Self::Cubic => "cubic",
        }
    }
}
