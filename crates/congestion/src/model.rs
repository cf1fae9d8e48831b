//! What a controller is told, and what it answers.

use std::fmt;
use std::time::{Duration, Instant};

use crate::{Resume, bytes};

/// A congestion controller, whatever library carries the packets.
///
/// Told in this order, for every acknowledgement: [`Model::on_acked`] for each packet it settles, then
/// [`Model::on_ack_end`]; [`Model::on_lost`] for what is given up, before the next of these. Times never
/// go back, and no two calls of [`Model::on_sent`] have the same: `sent` names a batch.
pub trait Model: fmt::Debug + Send + Sync {
    /// A batch of `bytes` of data left. `limited`: more would have left if it had been allowed to.
    fn on_sent(&mut self, now: Instant, bytes: u64, limited: bool);

    /// A packet of `bytes` of the batch that left at `sent` arrived.
    fn on_acked(&mut self, now: Instant, sent: Instant, bytes: u64);

    /// All packets of one acknowledgement were named; `in_flight` bytes are left.
    fn on_ack_end(&mut self, now: Instant, in_flight: u64);

    /// `bytes` were given up as lost, the latest of which left at `sent`.
    fn on_lost(&mut self, now: Instant, sent: Instant, loss: Loss);

    /// A packet may have `mtu` bytes from now on.
    fn on_mtu(&mut self, mtu: u16);

    /// Tells that both ends sleep for this long between turns. Packets and acknowledgements may be that late although there
    /// is no queue.
    fn set_sleeps(&mut self, sleeps: Duration);

    /// What may be sent.
    fn limits(&self) -> Limits;

    /// How things stand, for people.
    fn view(&self) -> View;

    /// What to remember of the path; nothing before it has been filled.
    fn resume_point(&self) -> Option<Resume> {
        None
    }

    /// The same controller again.
    fn clone_box(&self) -> Box<dyn Model>;
}

/// Packets that were given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loss {
    /// Their bytes; 0 where none was lost and the network marked one instead (RFC 9002 section 7.1).
    pub bytes: u64,
    /// Nothing of what was sent for long enough arrived (RFC 9002 section 7.6).
    pub persistent: bool,
}

/// What may be sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// Bytes in flight.
    pub window: u64,
    /// Bytes per second; `None`: as the window allows.
    pub rate: Option<f64>,
    /// Bytes that may leave at once.
    pub quantum: u64,
}

/// How a controller stands.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct View {
    /// Which controller it is.
    pub mode: &'static str,
    /// The name of what it does at the moment.
    pub phase: &'static str,
    /// The controller is in slow start or its like: it sends ever more to find the path's bandwidth, and a delay may end
    /// that early.
    pub starting: bool,
    /// Packets are to leave one by one: others keep the queue full, and a full queue drops most of what comes at once.
    pub even: bool,
    /// Bytes per second that the path is thought to deliver; 0: unknown.
    pub bandwidth: f64,
    /// Round-trip time without queues; `None`: unknown.
    pub min_rtt: Option<Duration>,
    /// Share of packets that is lost whatever is sent, 0 to 1.
    pub loss_floor: f64,
    /// How far that share is believed to be no sign of congestion, 0 to 1.
    pub trust: f64,
}

impl View {
    /// The bandwidth in whole bytes per second, where it is known.
    pub fn bandwidth_known(&self) -> Option<u64> {
        (self.bandwidth > 0.0).then(|| bytes::whole(self.bandwidth))
    }
}
