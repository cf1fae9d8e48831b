//! A host without a tunnel: the ends of TCP connections and of constant streams.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::constant::{Constant, Source};
use crate::packet::{Body, CE, Departure, ECT_0};
use crate::tcp::{Kind, Receiver, Segment, Sender, Tcp};

/// A host that sends and receives cross traffic.
#[derive(Debug)]
pub(crate) struct Plain {
    name: String,
    address: SocketAddr,
    senders: Vec<(SocketAddr, Sender)>,
    receivers: Vec<(SocketAddr, Receiver)>,
    sources: Vec<(SocketAddr, u32, Source)>,
    /// Packets and bytes of payload received from each source.
    sinks: Vec<(u64, u64)>,
    /// As of the last round of work.
    timer: Option<Instant>,
}

/// What shares a link with a tunnel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Traffic {
    /// A TCP connection.
    Tcp(Tcp),
    /// Packets at a constant rate.
    Constant(Constant),
}

/// What became of cross traffic so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrafficReport {
    /// Bytes of payload that arrived; of TCP, in order.
    pub received: u64,
    /// Packets sent, retransmissions among them.
    pub packets: u64,
    /// TCP: segments sent again.
    pub retransmitted: u64,
    /// TCP: how often the window was reduced after a loss or a mark.
    pub reductions: u64,
    /// TCP: how often nothing was heard for too long.
    pub timeouts: u64,
    /// TCP: the smoothed round-trip time.
    pub rtt: Duration,
    /// TCP: the congestion window in bytes.
    pub window: u64,
    /// TCP: when the last byte of a transfer of given size was acknowledged.
    pub finished: Option<Instant>,
}

/// Which end of which cross traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Tcp { sender: usize, receiver: usize },
    Constant { source: usize, sink: usize },
}

impl Plain {
    pub(crate) fn new(name: &str, address: SocketAddr) -> Self {
        Self {
            name: name.to_owned(),
            address,
            senders: Vec::new(),
            receivers: Vec::new(),
            sources: Vec::new(),
            sinks: Vec::new(),
            timer: None,
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Makes the sending end; `base` is the network's start.
    pub(crate) fn send(
        &mut self,
        traffic: &Traffic,
        to: &Self,
        base: Instant,
        now: Instant,
    ) -> Side {
        match traffic {
            Traffic::Tcp(tcp) => {
                let sides = Side::Tcp {
                    sender: self.senders.len(),
                    receiver: to.receivers.len(),
                };
                let ends = (number(self.senders.len()), number(to.receivers.len()));
                let sender = Sender::new(tcp.clone(), ends, base, now);
                self.senders.push((to.address, sender));
                sides
            }
            Traffic::Constant(constant) => {
                let sides = Side::Constant {
                    source: self.sources.len(),
                    sink: to.sinks.len(),
                };
                let source = Source::new(constant.clone(), base, now);
                let sink = number(to.sinks.len());
                self.sources.push((to.address, sink, source));
                sides
            }
        }
    }

    /// Makes the receiving end.
    pub(crate) fn receive(&mut self, side: Side, from: SocketAddr) {
        match side {
            Side::Tcp { sender, receiver } => {
                let ends = (number(receiver), number(sender));
                self.receivers.push((from, Receiver::new(ends)));
            }
            Side::Constant { .. } => self.sinks.push((0, 0)),
        }
    }

    /// What became of traffic whose sending end is here and whose other end is at `to`.
    pub(crate) fn report(&self, side: Side, to: &Self) -> TrafficReport {
        match side {
            Side::Tcp { sender, receiver } => {
                let sender = &self.senders[sender].1;
                let tally = sender.tally();
                TrafficReport {
                    received: to.receivers[receiver].1.received(),
                    packets: tally.segments,
                    retransmitted: tally.retransmitted,
                    reductions: tally.reductions,
                    timeouts: tally.timeouts,
                    rtt: sender.rtt(),
                    window: sender.window() * u64::from(sender.options().segment),
                    finished: tally.finished,
                }
            }
            Side::Constant { source, sink } => TrafficReport {
                received: to.sinks[sink].1,
                packets: self.sources[source].2.sent(),
                ..TrafficReport::default()
            },
        }
    }

    pub(crate) fn handle_packet(&mut self, now: Instant, ecn: u8, body: &Body) {
        match *body {
            Body::Udp(_) => {}
            Body::Filler { sink, length } => {
                if let Some(sink) = self.sinks.get_mut(sink as usize) {
                    sink.0 += 1;
                    sink.1 += length as u64;
                }
            }
            Body::Tcp(segment) => self.handle_segment(now, ecn, segment),
        }
    }

    fn handle_segment(&mut self, now: Instant, ecn: u8, segment: Segment) {
        let index = segment.connection as usize;
        let receiver = self.receivers.get_mut(index).map(|(_, receiver)| receiver);
        let sender = self.senders.get_mut(index).map(|(_, sender)| sender);
        match (segment.kind, receiver, sender) {
            (Kind::Syn, Some(receiver), _) => receiver.handle_syn(),
            (Kind::Data { sequence, length }, Some(receiver), _) => {
                receiver.handle_data(now, sequence, length, ecn == CE);
            }
            (Kind::SynAck, _, Some(sender)) => sender.handle_syn_ack(now),
            (
                Kind::Ack {
                    below,
                    sack,
                    congestion,
                },
                _,
                Some(sender),
            ) => sender.handle_ack(now, below, &sack, congestion),
            _ => {}
        }
    }

    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.timer
    }

    /// Does all there is to do at `now`.
    pub(crate) fn run(&mut self, now: Instant, out: &mut Vec<Departure>) {
        let mut timer: Option<Instant> = None;
        let mut wait = |at: Option<Instant>| timer = [timer, at].into_iter().flatten().min();
        for (to, receiver) in &mut self.receivers {
            receiver.run(now, |segment| out.push(departure(*to, 0, segment)));
            wait(receiver.next_timeout());
        }
        for (to, sender) in &mut self.senders {
            let ecn = if sender.options().ecn { ECT_0 } else { 0 };
            while let Some(segment) = sender.poll_segment(now) {
                out.push(departure(*to, ecn, segment));
            }
            wait(sender.next_timeout(now));
        }
        for (to, sink, source) in &mut self.sources {
            while source.poll(now) {
                out.push(Departure {
                    to: *to,
                    ecn: 0,
                    body: Body::Filler {
                        sink: *sink,
                        length: source.payload(),
                    },
                });
            }
            wait(source.next_timeout());
        }
        self.timer = timer;
    }
}

fn departure(to: SocketAddr, ecn: u8, segment: Segment) -> Departure {
    Departure {
        to,
        ecn,
        body: Body::Tcp(segment),
    }
}

fn number(index: usize) -> u32 {
    u32::try_from(index).expect("invariant: memory holds fewer connections")
}
