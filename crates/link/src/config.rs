//! What a link is like.

pub(crate) mod error;
mod show;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use crate::bursts::GilbertElliott;
use crate::trace::Trace;

/// One direction of a link. The default is a perfect wire.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkConfig {
    /// Bytes per second, `overhead` included; `None` sends in no time.
    pub rate: Option<u64>,
    /// In place of a rate: when how much is sent.
    pub trace: Option<Arc<Trace>>,
    /// Bytes that every packet takes on the link beyond its own length; see [`crate::overhead`].
    pub overhead: usize,
    /// Propagation delay.
    pub delay: Duration,
    /// Extra delay, even between nothing and this, that keeps packets in order.
    ///
    /// A packet waits for the one ahead, so where many come within this time most are late by nearly all
    /// of it: sparse packets see the jitter, dense ones see more delay.
    pub jitter: Duration,
    /// Pauses of the medium, behind the transmitter.
    pub stall: Option<Stall>,
    /// Share of packets lost independently of each other, 0 to 1.
    pub loss: f64,
    /// Loss in bursts, besides `loss`.
    pub bursts: Option<GilbertElliott>,
    /// Where `loss` and `bursts` strike.
    pub loss_at: LossAt,
    /// Packets that come late.
    pub reorder: Reorder,
    /// Share of packets that come out twice, 0 to 1.
    pub duplicate: f64,
    /// What may wait for transmission; a packet that does not fit is dropped.
    pub queue: Queue,
    /// Keeps the queue short.
    pub codel: Option<Codel>,
    /// Marks packets that are ECN-capable and waited longer than this.
    pub mark_above: Option<Duration>,
    /// Drops what comes faster, before the queue.
    pub policer: Option<Policer>,
    /// Longest packet that passes, without `overhead`.
    pub mtu: usize,
    /// Times during which nothing passes.
    pub outages: Vec<Outage>,
    /// Changes to come, earliest first.
    pub changes: Vec<Change>,
}

/// Where packets are lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LossAt {
    /// Before the queue: a lost packet takes none of the rate.
    Entry,
    /// Behind the transmitter: a lost packet took its share of queue and rate.
    #[default]
    Exit,
}

/// What may wait for transmission. An empty queue takes any packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queue {
    /// So many bytes, `overhead` included, of which each makes room once it is sent.
    Bytes(usize),
    /// So many packets, of which each makes room once its last bit is sent.
    Packets(usize),
}

/// Room for everything, as far as the crate's limit allows.
impl Default for Queue {
    fn default() -> Self {
        Self::Bytes(usize::MAX)
    }
}

/// Controlled delay, RFC 8289. The default is the RFC's, without marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Codel {
    /// The wait that is no standing queue yet.
    pub target: Duration,
    /// How long packets may wait longer than that.
    pub interval: Duration,
    /// Marks packets that are ECN-capable instead of dropping them.
    pub ecn: bool,
}

impl Default for Codel {
    fn default() -> Self {
        Self {
            target: Duration::from_millis(5),
            interval: Duration::from_millis(100),
            ecn: false,
        }
    }
}

/// A token bucket that drops what it has no tokens for, and delays nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policer {
    /// Bytes per second, `overhead` included.
    pub rate: u64,
    /// Bytes that may come at once.
    pub burst: u64,
}

/// A medium that pauses and then delivers at once what has come due meanwhile, as Wi-Fi and busy hosts do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stall {
    /// Length of a pause.
    pub lasts: Duration,
    /// From the beginning of one pause to that of the next; the first begins with the link.
    pub every: Duration,
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

/// Something that becomes different while the link is in use.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change {
    /// When, counted from the link's start.
    pub at: Duration,
    /// What.
    pub to: Setting,
}

/// What can change at a time set beforehand.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Setting {
    /// [`LinkConfig::rate`]; what is being sent at the moment is finished at the new rate.
    Rate(Option<u64>),
    /// [`LinkConfig::delay`] of packets that leave the transmitter from then on.
    Delay(Duration),
    /// [`LinkConfig::loss`] of packets that pass the place of loss from then on.
    Loss(f64),
}

impl Default for LinkConfig {
    fn default() -> Self {
        Self {
            rate: None,
            trace: None,
            overhead: 0,
            delay: Duration::ZERO,
            jitter: Duration::ZERO,
            stall: None,
            loss: 0.0,
            bursts: None,
            loss_at: LossAt::default(),
            reorder: Reorder::default(),
            duplicate: 0.0,
            queue: Queue::default(),
            codel: None,
            mark_above: None,
            policer: None,
            mtu: usize::MAX,
            outages: Vec::new(),
            changes: Vec::new(),
        }
    }
}

impl LinkConfig {
    /// Bytes under way on a full link over one round trip: the rate, or the mean of the trace, times `round_trip`.
    pub fn bandwidth_delay(&self, round_trip: Duration) -> usize {
        let mean = || self.trace.as_ref().map(|trace| trace.mean_rate());
        let rate = self.rate.or_else(mean);
        rate.map_or(usize::MAX, |rate| sent_in(rate, round_trip))
    }
}

/// Bytes that `rate`, in bytes per second, sends in `time`.
pub(crate) fn sent_in(rate: u64, time: Duration) -> usize {
    let bytes = u128::from(rate) * time.as_nanos() / 1_000_000_000;
    usize::try_from(bytes).unwrap_or(usize::MAX)
}
