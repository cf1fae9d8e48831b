//! The interface of a congestion controller: its input, its limits and its state.

use std::fmt;
use std::time::{Duration, Instant};

use crate::{Resume, bytes};

/// A congestion controller that does not depend on the library that carries the packets.
///
/// For every acknowledgement the caller calls [`Model::on_acked`] once for each packet that it settles, and then
/// [`Model::on_ack_end`]. The caller reports packets declared lost with [`Model::on_lost`], before the next
/// acknowledgement. Times never go back. No two calls of [`Model::on_sent`] have the same time, so that `sent`
/// identifies a batch.
pub trait Model: fmt::Debug + Send + Sync {
    /// Records that a batch of `bytes` of data was sent. `limited` is true if the sender had more data than the
    /// limits allowed.
    fn on_sent(&mut self, now: Instant, bytes: u64, limited: bool);

    /// Records that a packet of `bytes` arrived, which belonged to the batch sent at `sent`.
    fn on_acked(&mut self, now: Instant, sent: Instant, bytes: u64);

    /// Ends an acknowledgement, all of whose packets have been reported. `in_flight` is the number of bytes still in
    /// flight.
    fn on_ack_end(&mut self, now: Instant, in_flight: u64);

    /// Records a loss. `sent` is the send time of the latest packet that was declared lost.
    fn on_lost(&mut self, now: Instant, sent: Instant, loss: Loss);

    /// Sets the maximum packet size to `mtu` bytes from now on.
    fn on_mtu(&mut self, mtu: u16);

    /// Sets how long both ends sleep between turns. Packets and acknowledgements may be late by that much even
    /// without a queue.
    fn set_sleeps(&mut self, sleeps: Duration);

    /// Returns the current limits on sending.
    fn limits(&self) -> Limits;

    /// Returns the controller's state, for display and logs.
    fn view(&self) -> ControllerView;

    /// Returns what to remember about the path, or `None` before the path has been filled.
    fn resume_point(&self) -> Option<Resume> {
        None
    }

    /// Returns a boxed clone of this controller.
    fn clone_box(&self) -> Box<dyn Model>;
}

/// A report of packets that were declared lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loss {
    /// Number of bytes lost. 0 means that no packet was lost, and that the network marked one instead (RFC 9002
    /// section 7.1).
    pub bytes: u64,
    /// True if persistent congestion was detected: nothing sent over a long enough period arrived (RFC 9002 section
    /// 7.6).
    pub persistent: bool,
}

/// Limits on what a sender may send.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// Maximum number of bytes in flight.
    pub window: u64,
    /// Pacing rate in bytes per second. `None` means that only the window limits sending.
    pub rate: Option<f64>,
    /// Maximum number of bytes that may leave at once.
    pub quantum: u64,
}

/// State of a controller.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ControllerView {
    /// Name of the controller.
    pub mode: &'static str,
    /// Name of the controller's current phase.
    pub phase: &'static str,
    /// True if the controller is in slow start or a similar phase. It then sends more and more to find the path's
    /// bandwidth, and a delay may end that phase too early.
    pub starting: bool,
    /// True if packets should leave one by one. Other flows keep the queue full then, or seem to, and a full queue drops
    /// most packets of a burst.
    pub even: bool,
    /// Estimated bandwidth of the path in bytes per second; 0 if unknown.
    pub bandwidth: f64,
    /// Round-trip time without queues; `None` if unknown.
    pub min_rtt: Option<Duration>,
    /// Share of packets that is lost regardless of the sending rate, from 0 to 1.
    pub loss_floor: f64,
    /// Confidence that this share is not a sign of congestion, from 0 to 1.
    pub trust: f64,
}

impl ControllerView {
    /// Returns the bandwidth in whole bytes per second, if it is known.
    pub fn bandwidth_known(&self) -> Option<u64> {
        (self.bandwidth > 0.0).then(|| bytes::whole(self.bandwidth))
    }
}
