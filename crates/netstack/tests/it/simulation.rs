//! The stack and a peer, connected by two links, in virtual time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::SocketAddr;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use quictun_link::{Fate, Link, LinkConfig};
use quictun_netstack::{Config, FRAME_MAX, Stack};

use crate::offload::on_the_wire;
use crate::peer::PeerHost;
use crate::service::{EchoService, OfferAnswer};

pub(crate) struct StackSimulation {
    pub(crate) now: Instant,
    pub(crate) stack: Stack,
    pub(crate) peer: PeerHost,
    pub(crate) service: EchoService,
    to_stack: Link,
    to_peer: Link,
    /// True if the peer neither receives nor sends anything any more.
    pub(crate) vanished: bool,
    /// Pending items, ordered by time, then by the order in which they were planned.
    schedule: BinaryHeap<Reverse<(Instant, u64, ScheduledItem)>>,
    number: u64,
    buffer: Box<[u8; FRAME_MAX]>,
    stack_timer: Option<Instant>,
    /// Length of the longest frame of the stack, in bytes.
    pub(crate) longest: usize,
    /// Number of packets that the stack sent to the peer, after splitting.
    pub(crate) packets: u64,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum ScheduledItem {
    ToStack(Vec<u8>),
    ToPeer(Vec<u8>),
    StackTimer,
    PeerTimer(usize),
}

/// Start of virtual time.
pub(crate) fn base() -> Instant {
    static BASE: OnceLock<Instant> = OnceLock::new();
    *BASE.get_or_init(Instant::now)
}

pub(crate) fn buffer() -> Box<[u8; FRAME_MAX]> {
    vec![0; FRAME_MAX].into_boxed_slice().try_into().unwrap()
}

pub(crate) fn v4() -> SocketAddr {
    "203.0.113.9:443".parse().unwrap()
}

pub(crate) fn v6() -> SocketAddr {
    "[2001:db8::9]:443".parse().unwrap()
}

/// A short link without loss.
pub(crate) fn wire() -> LinkConfig {
    LinkConfig {
        delay: Duration::from_micros(20),
        ..LinkConfig::default()
    }
}

impl StackSimulation {
    pub(crate) fn new(config: Config, link: LinkConfig, seed: u64) -> Self {
        let start = base();
        Self {
            now: start,
            peer: PeerHost::new(config.mtu, start),
            stack: Stack::new(config, seed, start).unwrap(),
            service: EchoService::new(OfferAnswer::Accept),
            to_stack: Link::new(link.clone(), seed, start),
            to_peer: Link::new(link, seed ^ 1, start),
            vanished: false,
            schedule: BinaryHeap::new(),
            number: 0,
            buffer: buffer(),
            stack_timer: None,
            longest: 0,
            packets: 0,
        }
    }

    pub(crate) fn connect(&mut self, target: SocketAddr, bytes: u64) -> usize {
        let index = self.peer.connect(self.now, target, bytes, 65_535);
        self.touch(index);
        index
    }

    /// Handles an outside change to a connection of the peer.
    pub(crate) fn touch(&mut self, index: usize) {
        self.peer.work(self.now, index);
        self.after_peer(index);
    }

    /// Handles an outside change to the stack.
    pub(crate) fn flush(&mut self) {
        self.service.work(self.now, &mut self.stack);
        while let Some(length) = self.stack.poll_transmit(self.now, &mut self.buffer) {
            self.longest = self.longest.max(length);
            for packet in on_the_wire(&self.buffer[..length]) {
                self.packets += 1;
                let fate = self.to_peer.send(self.now, packet.len());
                self.deliver(fate, ScheduledItem::ToPeer(packet));
            }
            self.service.work(self.now, &mut self.stack);
        }
        self.service.work(self.now, &mut self.stack);
        let next = self.stack.next_timeout();
        if let Some(at) = next
            && next != self.stack_timer
        {
            self.stack_timer = next;
            self.plan(at, ScheduledItem::StackTimer);
        }
    }

    /// Runs until there is nothing to do, `done` returns true, or the time has elapsed. Returns whether `done` returned
    /// true.
    pub(crate) fn run(&mut self, time: Duration, done: impl Fn(&Self) -> bool) -> bool {
        let until = self.now + time;
        self.flush();
        while !done(self) {
            match self.schedule.peek() {
                Some(Reverse((at, ..))) if *at <= until => {}
                _ => {
                    self.now = until;
                    return false;
                }
            }
            let Some(Reverse((at, _, item))) = self.schedule.pop() else {
                unreachable!()
            };
            self.now = self.now.max(at);
            match item {
                ScheduledItem::ToStack(mut frame) => {
                    self.stack.handle_frame(self.now, &mut frame);
                }
                ScheduledItem::StackTimer => {
                    self.stack_timer = None;
                    self.stack.handle_timeout(self.now);
                }
                ScheduledItem::ToPeer(_) | ScheduledItem::PeerTimer(_) if self.vanished => {}
                ScheduledItem::ToPeer(packet) => {
                    self.peer.handle(self.now, &packet);
                    let at = if packet[0] >> 4 == 4 { 22 } else { 42 };
                    let port = u16::from_be_bytes([packet[at], packet[at + 1]]);
                    let index = usize::from(port.wrapping_sub(crate::peer::FIRST_PORT));
                    if index < self.peer.connections.len() {
                        self.after_peer(index);
                    }
                }
                ScheduledItem::PeerTimer(index) => self.touch(index),
            }
            self.flush();
        }
        true
    }

    fn after_peer(&mut self, index: usize) {
        while let Some(frame) = self.peer.poll() {
            let fate = self.to_stack.send(self.now, frame.len());
            self.deliver(fate, ScheduledItem::ToStack(frame));
        }
        if let Some(at) = self.peer.next(self.now, index) {
            self.plan(at, ScheduledItem::PeerTimer(index));
        }
    }

    fn deliver(&mut self, fate: Fate, item: ScheduledItem) {
        let Fate::Delivered { at, copy, .. } = fate else {
            return;
        };
        if let Some(copy) = copy {
            let again = match &item {
                ScheduledItem::ToStack(frame) => ScheduledItem::ToStack(frame.clone()),
                ScheduledItem::ToPeer(packet) => ScheduledItem::ToPeer(packet.clone()),
                _ => return,
            };
            self.plan(copy, again);
        }
        self.plan(at, item);
    }

    fn plan(&mut self, at: Instant, item: ScheduledItem) {
        self.number += 1;
        self.schedule.push(Reverse((at, self.number, item)));
    }
}
