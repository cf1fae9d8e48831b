//! The event loop: virtual time passes, packets move, hosts run.

use std::net::{SocketAddr, SocketAddrV4};
use std::time::{Duration, Instant};

use quictun_link::{Fate, Packet as Length};

use crate::in_flight::Arrival;
use crate::network::{Network, TAIL};
use crate::packet::{CE, IpPacket, OutgoingPacket, PacketBody};
use crate::transcript::TranscriptDetail;

impl Network {
    /// Lets the given time pass.
    pub fn run_for(&mut self, time: Duration) {
        let until = self.now + time;
        while self.step(until) {}
        self.now = until;
    }

    /// Lets time pass until `done` returns true, and returns how long that took. Panics after `most`.
    pub fn run_until(
        &mut self,
        most: Duration,
        mut done: impl FnMut(&mut Self) -> bool,
    ) -> Duration {
        let (from, until) = (self.now, self.now + most);
        loop {
            self.settle();
            if done(self) {
                return self.now - from;
            }
            assert!(
                self.step(until),
                "the condition did not become true within {most:?}\n{}",
                self.transcript.tail(TAIL)
            );
        }
    }

    /// Lets time pass until no packet is in flight and no host has a timer, or until `most` has passed. Returns true if
    /// the network became silent.
    pub fn run_to_silence(&mut self, most: Duration) -> bool {
        let until = self.now + most;
        while self.step(until) {}
        self.in_flight.is_empty() && self.wakeups.next() == u64::MAX
    }

    /// Does the work that is due now, then jumps to the next event before `until`. Returns false if there is none.
    fn step(&mut self, until: Instant) -> bool {
        self.settle();
        let arrival = self.in_flight.next().unwrap_or(u64::MAX);
        let at = arrival.min(self.wakeups.next());
        if at == u64::MAX || at > self.nanos(until) {
            return false;
        }
        self.now = self.now.max(self.start + Duration::from_nanos(at));
        let now = self.nanos(self.now);
        while let Some(arrival) = self.in_flight.pop_due(now) {
            self.arrive(arrival);
        }
        self.wakeups.handle_time(now);
        true
    }

    /// Hands a packet to its destination host, or to the next link on the route.
    fn arrive(&mut self, arrival: Arrival) {
        let Arrival { node, host, packet } = arrival;
        if node != host {
            self.enter_link(node, host, packet);
            return;
        }
        self.datagrams += 1;
        if self.nodes[host].address != SocketAddr::V4(packet.to) {
            return;
        }
        if self.transcript.keeps(TranscriptDetail::Datagrams) {
            let what = format!("<- {} from {}", packet.body, self.name_at(packet.from));
            self.note(host, what);
        }
        self.wakeups.wake(host);
        self.nodes[host].kind.handle_packet(self.now, packet);
    }

    fn settle(&mut self) {
        while let Some(index) = self.wakeups.poll() {
            let mut departures = std::mem::take(&mut self.departures);
            let host = &mut self.nodes[index].kind;
            host.run(self.now, &mut departures);
            let notes = host.take_notes();
            let timer = host.next_timeout();
            let timer = timer.map_or(u64::MAX, |at| self.nanos(at));
            self.wakeups.set(index, timer);
            if self.transcript.keeps(TranscriptDetail::Events) {
                for note in notes {
                    self.note(index, note);
                }
            }
            for departure in departures.drain(..) {
                self.depart(index, departure);
            }
            self.departures = departures;
        }
    }

    fn depart(&mut self, from: usize, departure: OutgoingPacket) {
        let OutgoingPacket { to, ecn, body } = departure;
        let (SocketAddr::V4(source), SocketAddr::V4(to)) = (self.nodes[from].address, to) else {
            self.note_lost(from, &body, to);
            return;
        };
        if self.addresses.host(source).is_none() {
            self.note_lost(from, &body, to.into());
            return;
        }
        let packet = IpPacket {
            from: source,
            to,
            ecn,
            body,
        };
        let (receiver, packet) = self.divert(from, packet);
        match receiver {
            Some(host) if self.filters.drops(self.now, (from, host), &packet.body) => {
                if self.transcript.keeps(TranscriptDetail::Datagrams) {
                    self.note(from, format!("-> {} to {to}: filtered", packet.body));
                }
            }
            Some(host) => self.enter_link(from, host, packet),
            None => self.note_lost(from, &packet.body, to.into()),
        }
    }

    /// Returns the host that gets a packet, which may be a middlebox.
    fn divert(&self, from: usize, mut packet: IpPacket) -> (Option<usize>, IpPacket) {
        let Some(host) = self.addresses.host(packet.to) else {
            return (None, packet);
        };
        if let Some(middlebox) = self.filters.middlebox((from, host), &packet.body)
            && let SocketAddr::V4(address) = self.nodes[middlebox].address
        {
            packet.to = address;
            return (Some(middlebox), packet);
        }
        if let Some(as_host) = self.filters.disguise((from, host), &packet.body)
            && let SocketAddr::V4(address) = self.nodes[as_host].address
        {
            packet.from = address;
        }
        (Some(host), packet)
    }

    /// Sends a packet from `node` into the next link on the route to `host`.
    fn enter_link(&mut self, node: usize, host: usize, mut packet: IpPacket) {
        let Some((index, directed)) = self.topology.first_link(node, host) else {
            self.note_lost(node, &packet.body, packet.to.into());
            return;
        };
        self.packets += 1;
        let next = directed.to;
        let length = Length {
            length: packet.body.length(),
            ecn_capable: packet.ecn != 0,
        };
        let fate = directed.link.send(self.now, length);
        if self.transcript.keeps(TranscriptDetail::Datagrams) {
            let whom = self.name_at(packet.to);
            let what = format!("-> {} to {whom}: {}", packet.body, self.describe(fate));
            self.note(node, what);
        }
        #[cfg(feature = "evidence")]
        self.evidence
            .add(index, self.now - self.start, &packet, fate);
        let Fate::Delivered { at, copy, marked } = fate else {
            return;
        };
        if marked {
            packet.ecn = CE;
        }
        if let Some(copy) = copy {
            self.push(index, at, (next, host), packet.clone());
            self.push(index, copy, (next, host), packet);
        } else {
            self.push(index, at, (next, host), packet);
        }
    }

    fn push(&mut self, link: usize, at: Instant, (node, host): (usize, usize), packet: IpPacket) {
        let arrival = Arrival { node, host, packet };
        self.in_flight.push(link, self.nanos(at), arrival);
    }

    fn note_lost(&mut self, node: usize, body: &PacketBody, to: SocketAddr) {
        if self.transcript.keeps(TranscriptDetail::Datagrams) {
            self.note(node, format!("-> {body} to {to}: no way there"));
        }
    }

    /// Returns the name of the host at an address, or the address itself if no host has it any more.
    fn name_at(&self, address: SocketAddrV4) -> String {
        match self.addresses.host(address) {
            Some(host) => self.nodes[host].name.clone(),
            None => address.to_string(),
        }
    }

    fn describe(&self, fate: Fate) -> String {
        let seconds = |at: Instant| (at - self.start).as_secs_f64();
        match fate {
            Fate::Delivered { at, copy, marked } => {
                let again = copy.map_or_else(String::new, |copy| {
                    format!(" and again at {:.6} s", seconds(copy))
                });
                let mark = if marked { ", marked CE" } else { "" };
                format!("arrives at {:.6} s{again}{mark}", seconds(at))
            }
            Fate::Dropped(reason) => format!("dropped: {reason:?}"),
        }
    }
}
