//! A host without an engine: it sends and receives TCP connections and constant-rate streams.

use std::net::SocketAddr;
use std::time::Instant;

use crate::constant::{self, ConstantSource};
use crate::packet::{OutgoingPacket, PacketBody};
use crate::tcp::{SegmentKind, Tcp, TcpReceiver, TcpSegment, TcpSender, TrafficReport};

#[derive(Debug, Default)]
pub(crate) struct PlainHost {
    senders: Vec<(SocketAddr, TcpSender)>,
    receivers: Vec<(SocketAddr, TcpReceiver)>,
    sources: Vec<(SocketAddr, u32, ConstantSource)>,
    /// Bytes of payload received by each sink, one per source.
    sinks: Vec<u64>,
    /// The next timeout, as computed by the last round of work.
    timer: Option<Instant>,
}

/// Cross traffic, which shares a link with a tunnel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CrossTraffic {
    /// One TCP connection that sends data.
    Tcp(Tcp),
    /// Packets of 1500 bytes at a constant rate in bytes per second.
    Constant(u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TrafficEnds {
    Tcp { sender: usize, receiver: usize },
    Constant { sink: usize },
}

impl PlainHost {
    /// Creates the sending end of traffic to the host `to`, whose address is `address`.
    pub(crate) fn send(
        &mut self,
        traffic: &CrossTraffic,
        to: &Self,
        address: SocketAddr,
        now: Instant,
    ) -> TrafficEnds {
        match *traffic {
            CrossTraffic::Tcp(Tcp { bytes }) => {
                let (sender, receiver) = (self.senders.len(), to.receivers.len());
                let connection = TcpSender::new(bytes, (number(sender), number(receiver)));
                self.senders.push((address, connection));
                TrafficEnds::Tcp { sender, receiver }
            }
            CrossTraffic::Constant(rate) => {
                let sink = to.sinks.len();
                let source = ConstantSource::new(rate, now);
                self.sources.push((address, number(sink), source));
                TrafficEnds::Constant { sink }
            }
        }
    }

    pub(crate) fn receive(&mut self, ends: TrafficEnds, from: SocketAddr) {
        match ends {
            TrafficEnds::Tcp { sender, receiver } => {
                let ends = (number(receiver), number(sender));
                self.receivers.push((from, TcpReceiver::new(ends)));
            }
            TrafficEnds::Constant { .. } => self.sinks.push(0),
        }
    }

    /// Reports on traffic that is sent from here and received at the host `to`.
    pub(crate) fn report(&self, ends: TrafficEnds, to: &Self) -> TrafficReport {
        match ends {
            TrafficEnds::Tcp { sender, receiver } => TrafficReport {
                received: to.receivers[receiver].1.received(),
                ..self.senders[sender].1.report()
            },
            TrafficEnds::Constant { sink } => TrafficReport {
                received: to.sinks[sink],
                ..TrafficReport::default()
            },
        }
    }

    pub(crate) fn handle_packet(&mut self, now: Instant, body: &PacketBody) {
        match *body {
            PacketBody::Udp(_) | PacketBody::Stream { .. } => {}
            PacketBody::Filler { sink, length } => {
                if let Some(received) = self.sinks.get_mut(sink as usize) {
                    *received += length as u64;
                }
            }
            PacketBody::Tcp(segment) => self.handle_segment(now, segment),
        }
    }

    fn handle_segment(&mut self, now: Instant, segment: TcpSegment) {
        let index = segment.connection as usize;
        let receiver = self.receivers.get_mut(index).map(|(_, receiver)| receiver);
        let sender = self.senders.get_mut(index).map(|(_, sender)| sender);
        match (segment.kind, receiver, sender) {
            (SegmentKind::Syn, Some(receiver), _) => receiver.handle_syn(),
            (SegmentKind::Data { sequence, length }, Some(receiver), _) => {
                receiver.handle_data(now, sequence, length);
            }
            (SegmentKind::SynAck, _, Some(sender)) => sender.handle_syn_ack(now),
            (SegmentKind::Ack { below, sack }, _, Some(sender)) => {
                sender.handle_ack(now, below, &sack);
            }
            _ => {}
        }
    }

    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.timer
    }

    pub(crate) fn run(&mut self, now: Instant, out: &mut Vec<OutgoingPacket>) {
        let mut timer: Option<Instant> = None;
        let mut wait = |at: Option<Instant>| timer = [timer, at].into_iter().flatten().min();
        let mut send =
            |to: SocketAddr, body: PacketBody| out.push(OutgoingPacket { to, ecn: 0, body });
        for (to, receiver) in &mut self.receivers {
            receiver.run(now, |segment| send(*to, PacketBody::Tcp(segment)));
            wait(receiver.next_timeout());
        }
        for (to, sender) in &mut self.senders {
            while let Some(segment) = sender.poll_segment(now) {
                send(*to, PacketBody::Tcp(segment));
            }
            wait(sender.next_timeout());
        }
        for &mut (to, sink, ref mut source) in &mut self.sources {
            while source.poll(now) {
                let length = constant::PAYLOAD;
                send(to, PacketBody::Filler { sink, length });
            }
            wait(source.next_timeout());
        }
        self.timer = timer;
    }
}

fn number(index: usize) -> u32 {
    u32::try_from(index).expect("invariant: memory holds fewer connections")
}
