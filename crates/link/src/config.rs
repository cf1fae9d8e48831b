//! What a link is like.

use std::time::Duration;

/// One direction of a link. The default is a perfect wire.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkConfig {
    /// Bytes per second, `overhead` included; `None` sends in no time.
    pub rate: Option<u64>,
    /// Bytes that every packet takes on the link beyond its own length.
    pub overhead: usize,
    /// Propagation delay.
    pub delay: Duration,
    /// Extra delay, even between nothing and this, that keeps packets in order.
    pub jitter: Duration,
    /// Share of packets lost independently of each other, 0 to 1.
    pub loss: f64,
    /// Packets that come late.
    pub reorder: Reorder,
    /// Share of packets that come out twice, 0 to 1.
    pub duplicate: f64,
    /// What may wait for transmission; a packet that does not fit is dropped.
    pub queue: Queue,
    /// Longest packet that passes, without `overhead`.
    pub mtu: usize,
    /// Times during which nothing passes.
    pub outages: Vec<Outage>,
}

/// What may wait for transmission, a packet that is being transmitted included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queue {
    /// So many bytes, `overhead` included.
    Bytes(usize),
}

/// Room for everything.
impl Default for Queue {
    fn default() -> Self {
        Self::Bytes(usize::MAX)
    }
}

/// Packets that come late, so that later ones overtake them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Reorder {
    /// Share of packets, 0 to 1.
    pub share: f64,
    /// How much later they come.
    pub extra: Duration,
}

/// A time, counted from the link's start, during which nothing passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outage {
    /// The first moment at which packets are lost.
    pub from: Duration,
    /// The first moment at which they pass again.
    pub until: Duration,
}

impl Default for LinkConfig {
    fn default() -> Self {
        Self {
            rate: None,
            overhead: 0,
            delay: Duration::ZERO,
            jitter: Duration::ZERO,
            loss: 0.0,
            reorder: Reorder::default(),
            duplicate: 0.0,
            queue: Queue::default(),
            mtu: usize::MAX,
            outages: Vec::new(),
        }
    }
}

impl LinkConfig {
    /// Bytes under way on a full link over one round trip: rate times `round_trip`.
    pub fn bandwidth_delay(&self, round_trip: Duration) -> usize {
        let bytes = self
            .rate
            .map(|rate| u128::from(rate) * round_trip.as_nanos() / 1_000_000_000);
        bytes.map_or(usize::MAX, |bytes| {
            usize::try_from(bytes).unwrap_or(usize::MAX)
        })
    }
}
