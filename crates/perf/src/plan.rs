//! The plan of a measurement. The client builds a [`Plan`] and sends it to the server before the first byte.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Maximum number of flows over all connections: each TCP flow has a thread at both ends.
pub const FLOWS_MAX: u32 = 1024;

/// Longest request, response or datagram pattern in bytes. Far less is held in memory at once.
pub const MESSAGE_MAX: u64 = 1 << 30;

/// Longest measurement: the series of intervals is kept in memory.
pub const DURATION_MAX: Duration = Duration::from_hours(1);

/// The plan of one measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Protocol that carries the bytes.
    pub transport: Transport,
    /// Traffic pattern of every flow.
    pub mode: Mode,
    /// Number of bytes or transactions, or duration.
    pub amount: Amount,
    /// Time from the first byte on that is not counted. Has an effect only if the amount is a time.
    pub warm_up: Duration,
    /// Bytes of each request.
    pub request: u64,
    /// Bytes of each answer.
    pub response: u64,
    /// Requests per second over all flows (open loop), or bit/s of a UDP stream.
    pub rate: Option<u64>,
    /// Number of flows on each connection; TCP has one connection for each flow.
    pub flows: u32,
    /// Number of connections that the client makes.
    pub connections: u32,
    /// True if streams go from the server to the client.
    pub reverse: bool,
    /// Congestion controller of the senders; `None` selects the default.
    pub congestion: Option<String>,
    /// Longest packet in bytes, IP header included; `None` selects the path's maximum.
    pub mtu: Option<u32>,
    /// Way in which the QUIC loop waits.
    pub event_loop: EventLoop,
    /// True to use UDP segmentation offload for sending.
    pub gso: bool,
    /// True to use UDP receive offload.
    pub gro: bool,
    /// Number of QUIC packets after which an acknowledgement is requested.
    pub ack_every: u32,
}

/// The protocol that carries the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Transport {
    /// Plain TCP, without encryption.
    Tcp,
    /// TLS 1.3 over TCP, with the cipher suite that QUIC uses here.
    Tls,
    /// QUIC with the ALPN protocol `perf`.
    Quic,
    /// Plain UDP datagrams, without encryption.
    Udp,
}

/// The traffic pattern of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// One direction, as many bytes as possible.
    Stream,
    /// A request, its answer, then the next request, on one connection.
    Rr,
    /// A request and its answer, each on a new connection.
    Crr,
}

/// The amount after which a measurement ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Amount {
    /// A duration, without the warm-up.
    Time(Duration),
    /// A number of bytes of a stream, over all flows.
    Bytes(u64),
    /// A number of transactions, over all flows.
    Count(u64),
}

/// The way in which the loop around the QUIC engine waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EventLoop {
    /// Sleeps until the engine's next deadline, and only then reads the socket. The published mistake.
    SleepTimeout,
    /// Always sleeps for 100 us, then reads the socket. The published repair.
    Poll100us,
    /// Waits for the socket or the next deadline, whichever comes first.
    Event,
    /// Waits as `Event` does. Segmentation and receive offload are then on by default.
    EventGso,
}

/// The reason for which a plan is not possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// The plan has too many flows, or none.
    #[error("flows times connections must be 1 to {FLOWS_MAX}: change --flows or --connections")]
    Flows,
    /// A time exceeds the length of the series that is kept.
    #[error("--duration and --warm-up take at most {} s each", DURATION_MAX.as_secs())]
    Duration,
    /// A message is too long, or has no bytes.
    #[error("--rr takes sizes of 1 byte to {MESSAGE_MAX} bytes")]
    Message,
    /// Byte amounts need a stream, and transaction counts need requests.
    #[error("--bytes goes with --mode stream, --count with --mode rr and crr")]
    Amount,
    /// The plan would never send any data.
    #[error("--rate, --bytes and --count must be at least 1")]
    Nothing,
    /// A rate was set for a TCP stream, which paces itself.
    #[error("--rate goes with --mode rr and crr, and with --transport udp --mode stream")]
    Rate,
    /// A stream of datagrams has no back-pressure, so it needs a rate.
    #[error("--transport udp --mode stream needs a --rate, as in --rate 100mbit")]
    NoRate,
    /// Datagrams have no connections and no flows.
    #[error("--transport udp supports neither --mode crr nor several flows or connections")]
    UdpShape,
    /// Only streams can be reversed.
    #[error("--reverse goes with --mode stream")]
    Reverse,
    /// IP or QUIC does not allow packets of this size.
    #[error("--mtu must be 576 to 65535, for QUIC at least 1280")]
    Mtu,
    /// The value would never trigger an acknowledgement, or is out of range.
    #[error("--ack-every must be 1 to 1000")]
    AckEvery,
}

impl Plan {
    /// Creates a plan with the defaults: five seconds after one second of warm-up, on one flow, with messages of one
    /// byte.
    pub fn new(transport: Transport, mode: Mode) -> Self {
        Self {
            transport,
            mode,
            amount: Amount::Time(Duration::from_secs(5)),
            warm_up: Duration::from_secs(1),
            request: 1,
            response: 1,
            rate: None,
            flows: 1,
            connections: 1,
            reverse: false,
            congestion: None,
            mtu: None,
            event_loop: EventLoop::EventGso,
            gso: true,
            gro: true,
            ack_every: 10,
        }
    }

    /// Returns the number of flows over all connections.
    pub fn total_flows(&self) -> u32 {
        self.flows.saturating_mul(self.connections)
    }

    /// Returns the duration that is counted, or `None` if bytes or transactions limit the measurement.
    pub fn span(&self) -> Option<Duration> {
        match self.amount {
            Amount::Time(span) => Some(span),
            Amount::Bytes(_) | Amount::Count(_) => None,
        }
    }

    /// Returns the time that is not counted: the warm-up, or zero if bytes or transactions limit the measurement.
    pub fn lead(&self) -> Duration {
        self.span().map_or(Duration::ZERO, |_| self.warm_up)
    }

    /// Returns flow `index`'s share of the amount, or `None` if time limits the measurement.
    pub fn share(&self, index: u32) -> Option<u64> {
        match self.amount {
            Amount::Time(_) => None,
            Amount::Bytes(all) | Amount::Count(all) => {
                let flows = u64::from(self.total_flows().max(1));
                Some(all / flows + u64::from(u64::from(index) < all % flows))
            }
        }
    }

    /// Checks that the plan is possible.
    ///
    /// # Errors
    ///
    /// Returns the first setting found to be invalid.
    pub fn check(&self) -> Result<(), PlanError> {
        let stream = self.mode == Mode::Stream;
        let udp = self.transport == Transport::Udp;
        if self.flows == 0 || !(1..=FLOWS_MAX).contains(&self.total_flows()) {
            return Err(PlanError::Flows);
        }
        if self.warm_up > DURATION_MAX || self.span().is_some_and(|span| span > DURATION_MAX) {
            return Err(PlanError::Duration);
        }
        let sizes = 1..=MESSAGE_MAX;
        if !sizes.contains(&self.request) || !sizes.contains(&self.response) {
            return Err(PlanError::Message);
        }
        match self.amount {
            Amount::Bytes(_) if !stream => return Err(PlanError::Amount),
            Amount::Count(_) if stream => return Err(PlanError::Amount),
            Amount::Bytes(0) | Amount::Count(0) => return Err(PlanError::Nothing),
            Amount::Time(span) if span.is_zero() => return Err(PlanError::Nothing),
            Amount::Time(_) | Amount::Bytes(_) | Amount::Count(_) => {}
        }
        match self.rate {
            Some(0) => return Err(PlanError::Nothing),
            Some(_) if stream && !udp => return Err(PlanError::Rate),
            None if stream && udp => return Err(PlanError::NoRate),
            Some(_) | None => {}
        }
        if udp && (self.mode == Mode::Crr || self.total_flows() != 1) {
            return Err(PlanError::UdpShape);
        }
        if self.reverse && !stream {
            return Err(PlanError::Reverse);
        }
        let least = if self.transport == Transport::Quic {
            1280
        } else {
            576
        };
        if self.mtu.is_some_and(|mtu| !(least..=65_535).contains(&mtu)) {
            return Err(PlanError::Mtu);
        }
        if !(1..=1000).contains(&self.ack_every) {
            return Err(PlanError::AckEvery);
        }
        Ok(())
    }
}

impl Transport {
    /// Returns the name used in flags and JSON.
    pub fn word(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Tls => "tls",
            Self::Quic => "quic",
            Self::Udp => "udp",
        }
    }
}

impl Mode {
    /// Returns the name used in flags and JSON.
    pub fn word(self) -> &'static str {
        match self {
            Self::Stream => "stream",
            Self::Rr => "rr",
            Self::Crr => "crr",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type PlanChange = fn(&mut Plan);

    #[test]
    fn an_impossible_plan_is_refused_before_it_starts() {
        let refusal = |transport, mode, change: PlanChange| {
            let mut plan = Plan::new(transport, mode);
            change(&mut plan);
            plan.check().err()
        };
        let changes: [(PlanChange, Option<PlanError>); 12] = [
            (|_| {}, None),
            (|plan| plan.flows = 0, Some(PlanError::Flows)),
            (|plan| plan.flows = FLOWS_MAX, None),
            (|plan| plan.flows = FLOWS_MAX + 1, Some(PlanError::Flows)),
            (
                |plan| (plan.flows, plan.connections) = (2, u32::MAX),
                Some(PlanError::Flows),
            ),
            (
                |plan| plan.warm_up = DURATION_MAX * 2,
                Some(PlanError::Duration),
            ),
            (
                |plan| plan.amount = Amount::Count(1),
                Some(PlanError::Amount),
            ),
            (
                |plan| plan.amount = Amount::Time(Duration::ZERO),
                Some(PlanError::Nothing),
            ),
            (|plan| plan.rate = Some(1), Some(PlanError::Rate)),
            (|plan| plan.mtu = Some(575), Some(PlanError::Mtu)),
            (|plan| plan.mtu = Some(65_536), Some(PlanError::Mtu)),
            (|plan| plan.ack_every = 0, Some(PlanError::AckEvery)),
        ];
        for (number, (change, expected)) in changes.into_iter().enumerate() {
            assert_eq!(
                refusal(Transport::Tcp, Mode::Stream, change),
                expected,
                "{number}"
            );
        }
        let changes: [(PlanChange, PlanError); 5] = [
            (|plan| plan.request = 0, PlanError::Message),
            (|plan| plan.response = MESSAGE_MAX + 1, PlanError::Message),
            (|plan| plan.amount = Amount::Bytes(1), PlanError::Amount),
            (|plan| plan.amount = Amount::Count(0), PlanError::Nothing),
            (|plan| plan.reverse = true, PlanError::Reverse),
        ];
        for (number, (change, expected)) in changes.into_iter().enumerate() {
            assert_eq!(
                refusal(Transport::Tcp, Mode::Rr, change),
                Some(expected),
                "{number}"
            );
        }
        let udp = |change| refusal(Transport::Udp, Mode::Stream, change);
        assert_eq!(udp(|_| {}), Some(PlanError::NoRate));
        assert_eq!(udp(|plan| plan.rate = Some(1)), None);
        let two = udp(|plan| (plan.rate, plan.flows) = (Some(1), 2));
        assert_eq!(two, Some(PlanError::UdpShape));
    }

    #[test]
    fn shares_add_up_to_the_amount() {
        let plan = Plan {
            amount: Amount::Bytes(1003),
            flows: 2,
            connections: 5,
            ..Plan::new(Transport::Tcp, Mode::Stream)
        };
        let shares: Vec<u64> = (0..10).filter_map(|index| plan.share(index)).collect();
        assert_eq!(shares.iter().sum::<u64>(), 1003);
        assert_eq!((shares[0], shares[9]), (101, 100));
    }
}
