//! What a host runs.

use std::net::SocketAddr;
use std::time::Instant;

use crate::bare::Bare;
use crate::host::Host;
use crate::original::Original;
use crate::packet::{Body, Departure, Packet};
use crate::plain::Plain;

/// What a node of the network is.
#[derive(Debug)]
pub(crate) enum Machine {
    Engine(Box<Host>),
    Original(Box<Original>),
    Bare(Box<Bare>),
    Plain(Box<Plain>),
    Router { name: String, address: SocketAddr },
}

impl Machine {
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Engine(host) => host.name(),
            Self::Original(original) => original.name(),
            Self::Bare(bare) => bare.name(),
            Self::Plain(plain) => plain.name(),
            Self::Router { name, .. } => name,
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        match self {
            Self::Engine(host) => host.address(),
            Self::Original(original) => original.address(),
            Self::Bare(bare) => bare.address(),
            Self::Plain(plain) => plain.address(),
            Self::Router { address, .. } => *address,
        }
    }

    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        match self {
            Self::Engine(host) => host.next_timeout(),
            Self::Original(original) => original.next_timeout(),
            Self::Bare(bare) => bare.next_timeout(),
            Self::Plain(plain) => plain.next_timeout(),
            Self::Router { .. } => None,
        }
    }

    /// Takes a packet. What a host does not understand is lost, as on a real one.
    pub(crate) fn handle_packet(&mut self, now: Instant, packet: Packet) {
        let (from, ecn) = (packet.from.into(), Some(packet.ecn));
        match (self, packet.body) {
            (Self::Engine(host), Body::Udp(bytes)) => {
                host.handle_datagram(now, from, ecn, bytes);
            }
            (Self::Original(original), Body::Udp(bytes)) => {
                original.handle_datagram(now, from, ecn, bytes);
            }
            (Self::Bare(bare), Body::Udp(bytes)) => {
                bare.handle_datagram(now, from, ecn, bytes);
            }
            (Self::Plain(plain), body) => plain.handle_packet(now, packet.ecn, &body),
            _ => {}
        }
    }

    /// Does all there is to do at `now`; packets go to `out`.
    pub(crate) fn run(&mut self, now: Instant, out: &mut Vec<Departure>) {
        match self {
            Self::Engine(host) => host.run(now, out),
            Self::Original(original) => original.run(now, out),
            Self::Bare(bare) => bare.run(now, out),
            Self::Plain(plain) => plain.run(now, out),
            Self::Router { .. } => {}
        }
    }

    /// Lines for the transcript since the last call.
    pub(crate) fn take_notes(&mut self) -> Vec<String> {
        match self {
            Self::Engine(host) => host.take_notes(),
            Self::Original(original) => original.take_notes(),
            Self::Bare(bare) => bare.take_notes(),
            Self::Plain(_) | Self::Router { .. } => Vec::new(),
        }
    }
}
