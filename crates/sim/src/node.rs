//! The machines at the nodes of a network: programs, plain hosts and routers.

use std::any::Any;
use std::fmt;
use std::net::SocketAddr;
use std::time::Instant;

use bytes::BytesMut;

use crate::host::Host;
use crate::packet::{IpPacket, OutgoingPacket, PacketBody};
use crate::plain::PlainHost;

/// A sans-IO program that sends and receives UDP datagrams. It has a host of its own.
pub trait Guest: fmt::Debug + Any {
    /// Handles a received datagram. `ecn` holds the two ECN bits of the IP header.
    fn handle_datagram(
        &mut self,
        now: Instant,
        from: SocketAddr,
        to: SocketAddr,
        ecn: u8,
        bytes: BytesMut,
    );

    /// Returns the time at which [`Guest::run`] must be called next.
    fn next_timeout(&self) -> Option<Instant>;

    /// Does all work that is due at `now` and appends the datagrams to send to `out`.
    fn run(&mut self, now: Instant, out: &mut Vec<OutgoingPacket>);

    /// Returns the lines for the transcript since the last call.
    fn take_notes(&mut self) -> Vec<String>;
}

#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) address: SocketAddr,
    pub(crate) kind: NodeKind,
}

#[derive(Debug)]
pub(crate) enum NodeKind {
    Guest(Box<dyn Guest>),
    Plain(Box<PlainHost>),
    Router,
}

impl NodeKind {
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        match self {
            Self::Guest(guest) => guest.next_timeout(),
            Self::Plain(plain) => plain.next_timeout(),
            Self::Router => None,
        }
    }

    /// Handles a packet. A packet that the machine does not understand is lost, as on a real host.
    pub(crate) fn handle_packet(&mut self, now: Instant, packet: IpPacket) {
        let IpPacket {
            from,
            to,
            ecn,
            body,
        } = packet;
        match (self, body) {
            (Self::Guest(guest), PacketBody::Udp(bytes)) => {
                guest.handle_datagram(now, from.into(), to.into(), ecn, bytes);
            }
            (Self::Guest(guest), PacketBody::Stream { segment, bytes }) => {
                let guest: &mut dyn Any = guest.as_mut();
                if let Some(host) = guest.downcast_mut::<Host>() {
                    host.handle_segment(now, from.into(), segment, bytes);
                }
            }
            (Self::Plain(plain), body) => plain.handle_packet(now, &body),
            _ => {}
        }
    }

    pub(crate) fn run(&mut self, now: Instant, out: &mut Vec<OutgoingPacket>) {
        match self {
            Self::Guest(guest) => guest.run(now, out),
            Self::Plain(plain) => plain.run(now, out),
            Self::Router => {}
        }
    }

    pub(crate) fn take_notes(&mut self) -> Vec<String> {
        match self {
            Self::Guest(guest) => guest.take_notes(),
            Self::Plain(_) | Self::Router => Vec::new(),
        }
    }
}
