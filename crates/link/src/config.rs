//! The configuration of a link.

pub(crate) mod error;
mod show;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use crate::bursts::GilbertElliott;
use crate::trace::Trace;

/// Describes one direction of a link. The default is a perfect wire.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkConfig {
    /// Rate in bytes per second, `overhead` included. `None` means that transmission takes no time.
    pub rate: Option<u64>,
    /// Times at which bytes are sent, in place of a rate.
    pub trace: Option<Arc<Trace>>,
    /// Bytes that every packet takes on the link in addition to its own length; see [`crate::overhead`].
    pub overhead: usize,
    /// Propagation delay in this direction.
    pub delay: Duration,
    /// Maximum extra delay. Each packet draws one evenly between zero and this; the order of packets is kept.
    ///
    /// A packet waits for the one ahead. If many packets arrive within this time, most are late by nearly all of it:
    /// sparse packets see the jitter, dense ones see more delay.
    pub jitter: Duration,
    /// Pauses of the medium, applied after the transmitter.
    pub stall: Option<Stall>,
    /// Share of packets lost independently of each other, 0 to 1.
    pub loss: f64,
    /// Loss in bursts, in addition to `loss`.
    pub bursts: Option<GilbertElliott>,
    /// Place at which `loss` and `bursts` apply.
    pub loss_at: LossAt,
    /// Packets that arrive late, after packets sent later.
    pub reorder: Reorder,
    /// Share of packets that come out twice, 0 to 1.
    pub duplicate: f64,
    /// Capacity of the transmission queue. A packet that does not fit is dropped.
    pub queue: Queue,
    /// Queue management that keeps the queue short.
    pub codel: Option<Codel>,
    /// Marks ECN-capable packets that waited longer than this.
    pub mark_above: Option<Duration>,
    /// Drops packets that exceed its rate, before the queue.
    pub policer: Option<Policer>,
    /// Longest packet that passes, in bytes without `overhead`. Longer packets are dropped.
    pub mtu: usize,
    /// Times during which no packet passes.
    pub outages: Vec<Outage>,
    /// Scheduled changes, earliest first.
    pub changes: Vec<Change>,
}

/// The place at which packets are lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LossAt {
    /// Before the queue: a lost packet uses none of the rate.
    Entry,
    /// After the transmitter: a lost packet has used its share of queue and rate.
    #[default]
    Exit,
}

/// The capacity of the transmission queue. An empty queue takes any packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queue {
    /// A number of bytes, `overhead` included. Each byte frees its space as soon as it is sent.
    Bytes(usize),
    /// A number of packets. Each packet frees its place once its last bit is sent.
    Packets(usize),
}

/// Unlimited, up to the crate's own limit on waiting packets.
impl Default for Queue {
    fn default() -> Self {
        Self::Bytes(usize::MAX)
    }
}

/// Parameters of Controlled Delay (RFC 8289). The default is the RFC's, without marking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Codel {
    /// Longest wait that does not yet count as a standing queue.
    pub target: Duration,
    /// Time for which waits may stay above the target before `CoDel` drops.
    pub interval: Duration,
    /// Marks ECN-capable packets instead of dropping them.
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

/// A token bucket that drops packets for which it has no tokens, and delays none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policer {
    /// Bytes per second, `overhead` included.
    pub rate: u64,
    /// Bytes that may pass at once.
    pub burst: u64,
}

/// A medium that pauses and then delivers at once all packets that came due meanwhile, as Wi-Fi and busy hosts do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stall {
    /// Length of each pause.
    pub lasts: Duration,
    /// Time from the start of one pause to the start of the next. The first pause starts with the link.
    pub every: Duration,
}

/// Packets that come late, so that later packets overtake them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Reorder {
    /// Share of packets that come late, 0 to 1.
    pub share: f64,
    /// Additional delay of these packets.
    pub extra: Duration,
}

/// An interval during which no packet passes. Times count from the link's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outage {
    /// Start of the outage: packets sent from this moment on are lost.
    pub from: Duration,
    /// End of the outage: packets sent from this moment on pass again.
    pub until: Duration,
}

/// A change of one setting at a scheduled time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change {
    /// Time of the change, counted from the link's start.
    pub at: Duration,
    /// The setting to change, with its new value.
    pub to: Setting,
}

/// A setting that can change at a scheduled time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Setting {
    /// Changes [`LinkConfig::rate`]. A packet in transmission at that moment is finished at the new rate.
    Rate(Option<u64>),
    /// Changes [`LinkConfig::delay`] for packets that leave the transmitter from then on.
    Delay(Duration),
    /// Changes [`LinkConfig::loss`] for packets that reach the place of loss from then on.
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
    /// Returns the bandwidth-delay product in bytes: the rate, or the mean rate of the trace, times `round_trip`.
    /// Returns `usize::MAX` if the link has neither a rate nor a trace.
    pub fn bandwidth_delay(&self, round_trip: Duration) -> usize {
        let mean = || self.trace.as_ref().map(|trace| trace.mean_rate());
        let rate = self.rate.or_else(mean);
        rate.map_or(usize::MAX, |rate| sent_in(rate, round_trip))
    }
}

/// Returns the bytes that `rate`, in bytes per second, sends in `time`.
pub(crate) fn sent_in(rate: u64, time: Duration) -> usize {
    let bytes = u128::from(rate) * time.as_nanos() / 1_000_000_000;
    usize::try_from(bytes).unwrap_or(usize::MAX)
}
