//! What is to be measured. The client makes a [`Plan`], and the server is told it before the first byte.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Most flows and connections together: each TCP flow has a thread at both ends.
pub const FLOWS_MAX: u32 = 1024;

/// Longest request, response or datagram pattern: what is held in memory at once is far less.
pub const MESSAGE_MAX: u64 = 1 << 30;

/// Longest measurement: the series of intervals is kept in memory.
pub const DURATION_MAX: Duration = Duration::from_hours(1);

/// One measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// What carries the bytes.
    pub transport: Transport,
    /// Which bytes.
    pub mode: Mode,
    /// How many, or for how long.
    pub amount: Amount,
    /// Time from the first byte on that is not counted; only where the amount is a time.
    pub warm_up: Duration,
    /// Bytes of each request.
    pub request: u64,
    /// Bytes of each answer.
    pub response: u64,
    /// Requests per second over all flows (open loop); bit/s of a UDP stream.
    pub rate: Option<u64>,
    /// Flows on each connection; TCP has one connection for each flow.
    pub flows: u32,
    /// Connections.
    pub connections: u32,
    /// Streams go from the server to the client.
    pub reverse: bool,
    /// Congestion controller of the senders; `None`: the default.
    pub congestion: Option<String>,
    /// Longest packet, IP header included; `None`: what the path takes.
    pub mtu: Option<u32>,
    /// How the QUIC loop waits.
    pub event_loop: Loop,
    /// UDP segmentation offload for sending.
    pub gso: bool,
    /// UDP offload for receiving.
    pub gro: bool,
    /// QUIC packets after which an acknowledgement is asked for.
    pub ack_every: u32,
}

/// What carries the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Transport {
    /// TCP alone.
    Tcp,
    /// TLS 1.3 over TCP, with the cipher suite of QUIC here.
    Tls,
    /// QUIC, ALPN `perf`.
    Quic,
    /// Datagrams, nothing else.
    Udp,
}

/// Which bytes are carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// As many as pass, one way.
    Stream,
    /// A request, its answer, the next request.
    Rr,
    /// Requests and answers, each on a connection of its own.
    Crr,
}

/// When enough has been carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Amount {
    /// After this time, the warm-up not included.
    Time(Duration),
    /// After this many bytes of a stream, over all flows.
    Bytes(u64),
    /// After this many transactions, over all flows.
    Count(u64),
}

/// How the loop around the QUIC engine waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Loop {
    /// Until the engine's next deadline; only then it looks at the socket. The published mistake.
    SleepTimeout,
    /// Always 100 us, then it looks at the socket. The published repair.
    Poll100us,
    /// For the socket or the next deadline, whichever comes first.
    Event,
    /// As `Event`; where nothing else is said, with segmentation and receive offload.
    EventGso,
}

/// What a plan asks for cannot be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// Too many threads, or none.
    #[error("flows times connections is 1 to {FLOWS_MAX}: change --flows or --connections")]
    Flows,
    /// Longer than the series that is kept.
    #[error("--duration and --warm-up take at most {} s each", DURATION_MAX.as_secs())]
    Duration,
    /// Larger than is sensible, or nothing at all.
    #[error("--rr takes sizes of 1 byte to {MESSAGE_MAX} bytes")]
    Message,
    /// Bytes belong to streams, counts to requests.
    #[error("--bytes goes with --mode stream, --count with --mode rr and crr")]
    Amount,
    /// Nothing would ever be sent.
    #[error("--rate, --bytes and --count are at least 1")]
    Nothing,
    /// TCP paces itself.
    #[error("--rate goes with --mode rr and crr, and with --transport udp --mode stream")]
    Rate,
    /// A stream of datagrams knows no back-pressure.
    #[error("--transport udp --mode stream needs a --rate, as in --rate 100mbit")]
    NoRate,
    /// Datagrams have no connections.
    #[error("--transport udp has neither --mode crr nor several flows or connections")]
    UdpShape,
    /// A request is not turned around.
    #[error("--reverse goes with --mode stream")]
    Reverse,
    /// No packet of this size, or none that IP allows.
    #[error("--mtu is 576 to 65535; for QUIC at least 1280")]
    Mtu,
    /// None would ever come.
    #[error("--ack-every is 1 to 1000")]
    AckEvery,
}

impl Plan {
    /// A stream over TCP for five seconds after one of warm-up.
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
            event_loop: Loop::EventGso,
            gso: true,
            gro: true,
            ack_every: 10,
        }
    }

    /// Flows over all connections.
    pub fn total_flows(&self) -> u32 {
        self.flows.saturating_mul(self.connections)
    }

    /// Time that is counted; `None` where bytes or transactions are.
    pub fn span(&self) -> Option<Duration> {
        match self.amount {
            Amount::Time(span) => Some(span),
            Amount::Bytes(_) | Amount::Count(_) => None,
        }
    }

    /// Time that is not counted: none where everything is.
    pub fn lead(&self) -> Duration {
        self.span().map_or(Duration::ZERO, |_| self.warm_up)
    }

    /// The part of the amount that falls to flow `index`; `None` where time decides.
    pub fn share(&self, index: u32) -> Option<u64> {
        match self.amount {
            Amount::Time(_) => None,
            Amount::Bytes(all) | Amount::Count(all) => {
                let flows = u64::from(self.total_flows().max(1));
                Some(all / flows + u64::from(u64::from(index) < all % flows))
            }
        }
    }

    /// Says what of it cannot be done.
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
    /// As in flags and JSON.
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
    /// As in flags and JSON.
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

    type Change = fn(&mut Plan);

    #[test]
    fn what_cannot_be_done_is_said_before_it_is_tried() {
        let refusal = |transport, mode, change: Change| {
            let mut plan = Plan::new(transport, mode);
            change(&mut plan);
            plan.check().err()
        };
        let changes: [(Change, Option<PlanError>); 12] = [
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
        let changes: [(Change, PlanError); 5] = [
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
