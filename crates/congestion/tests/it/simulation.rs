//! Senders that consist only of a controller, on one bottleneck, in virtual time.
//!
//! There is no QUIC. Packets have a number and a size. Receivers acknowledge every tenth packet or after 2 ms.
//! Senders declare a packet lost when three later ones have arrived. The simulation handles about a million packets
//! per second, so tests can sweep grids of links and mixes of flows.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use quictun_congestion::{Limits, Loss, Model};
use quictun_link::{
    Change, Fate, GilbertElliott, Link, LinkConfig, Packet, Reorder, Setting, Stall,
};

use crate::event_queue::EventQueue;
use crate::probe::{Persistence, ProbeTimer};

/// Size of every packet in bytes.
pub(crate) const SIZE: u64 = 1250;
const ACK_EVERY: u32 = 10;
const ACK_WITHIN: Duration = Duration::from_millis(2);
const REORDER: u64 = 3;
const CATCH_UP: f64 = 0.002;
/// Number of packets that are sent when QUIC's probe timer expires, as in quinn-proto.
const PROBES: u64 = 2;

/// The configuration of one sender.
#[derive(Clone, Copy)]
pub(crate) struct SenderConfig {
    pub(crate) model: fn(Instant) -> Box<dyn Model>,
    pub(crate) rtt: Duration,
    /// Time from which the path has another round-trip time, and that round-trip time. Packets keep their order.
    pub(crate) handover: Option<(Duration, Duration)>,
    pub(crate) start: Duration,
    /// Loss on the way to the bottleneck, after the bottleneck, and of acknowledgements.
    pub(crate) loss_before: f64,
    pub(crate) loss_after: f64,
    pub(crate) loss_back: f64,
    /// Mean number of consecutive packets that are lost together (Gilbert-Elliott). Below 2, every packet is lost
    /// independently.
    pub(crate) burst: f64,
    /// Delays of packets and acknowledgements behind the bottleneck.
    pub(crate) jitter: Jitter,
    /// Time that both ends sleep between two turns, and when they start to do so. Before that they act at once.
    pub(crate) sleeps: Duration,
    pub(crate) sleeps_from: Duration,
}

/// Delays that do not depend on what is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Jitter {
    /// Each packet is late by up to this, and packets keep their order.
    pub(crate) even: Duration,
    /// Nothing arrives for a while, and then everything arrives at once.
    pub(crate) stall: Option<Stall>,
    /// Share of packets that are late by an additional time, out of order.
    pub(crate) reorder: Reorder,
}

impl Jitter {
    fn longest(&self) -> Duration {
        let stall = self.stall.map_or(Duration::ZERO, |stall| stall.lasts);
        self.even + stall + self.reorder.extra
    }
}

#[derive(Clone, Copy)]
enum Event {
    Arrive { flow: usize, number: u64 },
    AckTimer { flow: usize, armed: u64 },
    Ack { flow: usize, id: usize },
    Send { flow: usize, armed: u64 },
    Probe { flow: usize, armed: u64 },
}

impl Event {
    /// Returns the lane for events of this kind and flow, which mostly happen in the order in which they are added.
    fn lane(self) -> usize {
        let (flow, kind) = match self {
            Self::Arrive { flow, .. } => (flow, 0),
            Self::AckTimer { flow, .. } => (flow, 1),
            Self::Ack { flow, .. } => (flow, 2),
            Self::Send { flow, .. } => (flow, 3),
            Self::Probe { flow, .. } => (flow, 4),
        };
        flow * 5 + kind
    }
}

/// A hop on the path. A plain hop neither loses nor delays packets, and keeps their order without the cost
/// of a link for each packet.
enum Hop {
    Plain { latest: Instant },
    Link(Box<Link>),
}

impl Hop {
    fn new(config: LinkConfig, seed: u64, start: Instant) -> Self {
        if config == LinkConfig::default() {
            Self::Plain { latest: start }
        } else {
            Self::Link(Box::new(Link::new(config, seed, start)))
        }
    }

    /// Returns when a packet that enters at `now` leaves, or `None` if it is lost.
    fn send(&mut self, now: Instant) -> Option<Instant> {
        match self {
            Self::Plain { latest } => {
                *latest = now.max(*latest);
                Some(*latest)
            }
            Self::Link(link) => match link.send(now, Packet::from(SIZE as usize)) {
                Fate::Delivered { at, .. } => Some(at),
                Fate::Dropped(_) => None,
            },
        }
    }
}

#[derive(Clone, Copy, PartialEq)]
enum PacketState {
    Flying,
    Settled,
}

pub(crate) struct SimulatedFlow {
    pub(crate) model: Box<dyn Model>,
    /// The shortest round-trip time of the path. Any further delay is part of `after` and `back`.
    rtt: Duration,
    /// The longest delay of a packet by jitter and a handover.
    slowest: Duration,
    sleeps: Duration,
    sleeps_from: Instant,
    before: Hop,
    after: Hop,
    pub(crate) back: Link,
    packets: VecDeque<(Instant, PacketState)>,
    first: u64,
    next: u64,
    in_flight: u64,
    largest: Option<u64>,
    tokens: f64,
    refilled: Instant,
    armed: u64,
    pub(crate) probe: ProbeTimer,
    probe_armed: u64,
    last_stamp: Instant,
    pending: Vec<u64>,
    unacked: u32,
    expected: u64,
    ack_armed: u64,
    pub(crate) sent: u64,
    pub(crate) lost: u64,
    /// Bytes received in every slot of length [`Simulation::slot`].
    pub(crate) series: Vec<u64>,
    /// Round-trip time of the latest packet that was acknowledged.
    pub(crate) latest_rtt: Duration,
    /// True if the flow sends nothing more.
    stopped: bool,
}

pub(crate) struct Simulation {
    pub(crate) now: Instant,
    pub(crate) origin: Instant,
    event_queue: EventQueue<Event>,
    pub(crate) bottleneck: Link,
    pub(crate) flows: Vec<SimulatedFlow>,
    acks: Vec<Vec<u64>>,
    free: Vec<usize>,
    /// Histogram of the waiting times at the bottleneck, in bins of 20 us.
    pub(crate) waits: Vec<u64>,
    /// Arrival time of each packet at the bottleneck, and its wait there; recorded only if a test sets it.
    pub(crate) trail: Option<Vec<(Duration, Duration)>>,
    pub(crate) slot: Duration,
    /// Interval at which the bottleneck's host stands still, and for how long.
    pub(crate) standstills: Option<(Duration, Duration)>,
    /// True if probes become less and less frequent, and loss may be persistent. Bursts of loss in this model count
    /// packets rather than time, so that infrequent probes would turn each burst into an outage.
    pub(crate) outages: bool,
}

/// Creates a hop without delay. With a handover, it delays packets by half of the difference to the shorter of the
/// two round-trip times.
fn hop(handover: Option<(Duration, Duration)>, rtt: Duration) -> LinkConfig {
    let mut config = LinkConfig::default();
    if let Some((at, new)) = handover {
        let half = |rtt: Duration, other: Duration| rtt.saturating_sub(other) / 2;
        config.delay = half(rtt, new);
        config.changes = vec![Change {
            at,
            to: Setting::Delay(half(new, rtt)),
        }];
    }
    config
}

fn lossy(hop: LinkConfig, loss: f64, burst: f64, jitter: Jitter) -> LinkConfig {
    let mut config = LinkConfig {
        jitter: jitter.even,
        stall: jitter.stall,
        reorder: jitter.reorder,
        ..hop
    };
    if loss > 0.0 && burst >= 2.0 {
        config.bursts = Some(GilbertElliott::from_mean(loss, burst));
    } else {
        config.loss = loss;
    }
    config
}

impl Simulation {
    pub(crate) fn new(bottleneck: LinkConfig, seed: u64, senders: Vec<SenderConfig>) -> Self {
        let origin = Instant::now();
        let outages = bottleneck.outages.clone();
        let mut sim = Self {
            now: origin,
            origin,
            event_queue: EventQueue::default(),
            bottleneck: Link::new(bottleneck, seed, origin),
            flows: Vec::new(),
            acks: Vec::new(),
            free: Vec::new(),
            waits: Vec::new(),
            trail: None,
            slot: Duration::from_millis(50),
            standstills: None,
            outages: false,
        };
        for (index, sender) in senders.into_iter().enumerate() {
            let seed = seed * 1000 + index as u64 * 10;
            let start = origin + sender.start;
            let hop = hop(sender.handover, sender.rtt);
            let (shortest, longest) = match sender.handover {
                Some((_, new)) => (sender.rtt.min(new), sender.rtt.max(new)),
                None => (sender.rtt, sender.rtt),
            };
            sim.flows.push(SimulatedFlow {
                model: (sender.model)(origin),
                rtt: shortest,
                slowest: sender.jitter.longest() + longest.saturating_sub(shortest) / 2,
                sleeps: sender.sleeps,
                sleeps_from: start + sender.sleeps_from,
                before: Hop::new(
                    lossy(
                        LinkConfig::default(),
                        sender.loss_before,
                        sender.burst,
                        Jitter::default(),
                    ),
                    seed + 1,
                    origin,
                ),
                after: Hop::new(
                    lossy(hop.clone(), sender.loss_after, sender.burst, sender.jitter),
                    seed + 2,
                    origin,
                ),
                back: Link::new(
                    lossy(
                        LinkConfig {
                            outages: outages.clone(),
                            ..hop
                        },
                        sender.loss_back,
                        sender.burst,
                        sender.jitter,
                    ),
                    seed + 3,
                    origin,
                ),
                packets: VecDeque::new(),
                first: 0,
                next: 0,
                in_flight: 0,
                largest: None,
                tokens: 10.0 * SIZE as f64,
                refilled: start,
                armed: 0,
                probe: ProbeTimer::new(origin, longest),
                probe_armed: 0,
                last_stamp: origin,
                pending: Vec::new(),
                unacked: 0,
                expected: 0,
                ack_armed: 0,
                sent: 0,
                lost: 0,
                series: Vec::new(),
                latest_rtt: sender.rtt,
                stopped: false,
            });
            sim.at(
                start,
                Event::Send {
                    flow: index,
                    armed: 0,
                },
            );
        }
        sim
    }

    fn at(&mut self, time: Instant, event: Event) {
        let time = self
            .awake(time, event)
            .saturating_duration_since(self.origin);
        self.event_queue
            .push(time.as_nanos() as u64, event.lane(), event);
    }

    pub(crate) fn run_until(&mut self, end: Duration) {
        while let Some((time, event)) = self.event_queue.pop_until(end.as_nanos() as u64) {
            self.now = self.origin + Duration::from_nanos(time);
            self.handle(event);
        }
        self.now = self.origin + end;
    }

    pub(crate) fn reconfigure(&mut self, config: LinkConfig) {
        self.bottleneck.reconfigure(config);
    }

    /// Stops a flow, which then has nothing more to send.
    pub(crate) fn stop(&mut self, flow: usize) {
        self.flows[flow].stopped = true;
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Send { flow, .. } | Event::Probe { flow, .. } if self.flows[flow].stopped => {}
            Event::Send { flow, armed } if self.flows[flow].armed == armed => self.send(flow),
            Event::Probe { flow, armed } if self.flows[flow].probe_armed == armed => {
                let asks = self.outages && self.flows[flow].probe.asks(self.now);
                if self.outages && !asks {
                    self.flows[flow].probe.on_sent();
                }
                let packets = if self.outages && !asks { PROBES } else { 1 };
                self.transmit(flow, packets);
                self.arm_probe(flow);
            }
            Event::Arrive { flow, number } => self.arrive(flow, number),
            Event::AckTimer { flow, armed } if self.flows[flow].ack_armed == armed => {
                self.ack(flow);
            }
            Event::Ack { flow, id } => self.acked(flow, id),
            _ => {}
        }
    }

    fn send(&mut self, index: usize) {
        loop {
            let now = self.now;
            let flow = &mut self.flows[index];
            flow.armed += 1;
            let Limits {
                window,
                rate,
                quantum,
            } = flow.model.limits();
            let room = window.saturating_sub(flow.in_flight) / SIZE;
            if room == 0 {
                return;
            }
            let mut count = room.min(52);
            if let Some(rate) = rate {
                let elapsed = now.saturating_duration_since(flow.refilled).as_secs_f64();
                let burst = quantum.max(SIZE) as f64;
                let least = 4.0 * SIZE as f64;
                let late = (rate * CATCH_UP).min(least.max(window as f64 / 8.0));
                let late = late + rate * flow.sleeps_at(now).as_secs_f64();
                flow.tokens = (flow.tokens + elapsed * rate).min(burst.max(late));
                flow.refilled = now;
                let needed = burst.min((room * SIZE) as f64);
                if flow.tokens < needed - 0.5 {
                    let wait = Duration::from_secs_f64((needed - flow.tokens) / rate)
                        + Duration::from_micros(1);
                    let armed = flow.armed;
                    self.at(now + wait, Event::Send { flow: index, armed });
                    return;
                }
                count = count.min(((flow.tokens + 0.5) / SIZE as f64) as u64).max(1);
                flow.tokens -= (count * SIZE) as f64;
            }
            self.transmit(index, count);
        }
    }

    fn transmit(&mut self, index: usize, count: u64) {
        let now = self.now;
        let flow = &mut self.flows[index];
        let stamp = now.max(flow.last_stamp + Duration::from_nanos(1));
        flow.last_stamp = stamp;
        flow.model.on_sent(stamp, count * SIZE, true);
        let first = flow.in_flight == 0;
        for _ in 0..count {
            let flow = &mut self.flows[index];
            let number = flow.next;
            flow.next += 1;
            flow.sent += 1;
            flow.in_flight += SIZE;
            flow.packets.push_back((stamp, PacketState::Flying));
            if flow.before.send(now).is_none() {
                continue;
            }
            let offered = self.standstill_over(now);
            let rate = self.bottleneck.config().rate.unwrap_or(u64::MAX);
            let wait = self.bottleneck.backlog(offered) as f64 / rate as f64;
            let bin = (wait * 50_000.0) as usize;
            if self.waits.len() <= bin {
                self.waits.resize(bin + 1, 0);
            }
            self.waits[bin] += 1;
            if let Some(trail) = &mut self.trail {
                trail.push((now - self.origin, self.bottleneck.wait(offered)));
            }
            let packet = Packet::from(SIZE as usize);
            let Fate::Delivered { at, .. } = self.bottleneck.send(offered, packet) else {
                continue;
            };
            let out = self.standstill_over(at);
            let flow = &mut self.flows[index];
            // Packets that the bottleneck reorders are late on their own. The hop behind it keeps their order.
            let Some(due) = flow.after.send(out) else {
                continue;
            };
            let at = due.min(out + flow.slowest) + flow.rtt / 2;
            self.at(
                at,
                Event::Arrive {
                    flow: index,
                    number,
                },
            );
        }
        if first {
            self.arm_probe(index);
        }
    }

    /// Returns when the end that handles an event is awake, at or after `time`. An acknowledgement is handled
    /// together with what arrives in the same turn.
    fn awake(&self, time: Instant, event: Event) -> Instant {
        let (Event::Arrive { flow, .. }
        | Event::AckTimer { flow, .. }
        | Event::Ack { flow, .. }
        | Event::Send { flow, .. }
        | Event::Probe { flow, .. }) = event;
        let sleeps = self.flows[flow].sleeps_at(time);
        let sender = !matches!(event, Event::Arrive { .. } | Event::AckTimer { .. });
        // The model is asked only if the answer matters, because there is an event for each packet.
        if sleeps.is_zero() || sender && self.flows[flow].is_awake() {
            return time;
        }
        // The turns of the two ends are independent of each other.
        let shift = match event {
            Event::Arrive { .. } | Event::AckTimer { .. } => sleeps.mul_f64(0.37),
            _ => Duration::ZERO,
        };
        let turns = (time - self.origin + shift)
            .as_nanos()
            .div_ceil(sleeps.as_nanos());
        self.origin + (sleeps * turns as u32).saturating_sub(shift)
    }

    /// Returns when the host of the bottleneck runs again.
    fn standstill_over(&self, now: Instant) -> Instant {
        let Some((every, lasts)) = self.standstills else {
            return now;
        };
        let into = (now - self.origin).as_nanos() % every.as_nanos();
        now + lasts.saturating_sub(Duration::from_nanos(into as u64))
    }

    fn arm_probe(&mut self, index: usize) {
        let flow = &mut self.flows[index];
        flow.probe_armed += 1;
        let armed = flow.probe_armed;
        let at = flow.probe.next(self.now, self.outages);
        self.at(at, Event::Probe { flow: index, armed });
    }

    fn arrive(&mut self, index: usize, number: u64) {
        let since = (self.now - self.origin).as_nanos() as u64;
        let slot = (since / self.slot.as_nanos() as u64) as usize;
        let flow = &mut self.flows[index];
        if flow.series.len() <= slot {
            flow.series.resize(slot + 1, 0);
        }
        flow.series[slot] += SIZE;
        flow.pending.push(number);
        flow.unacked += 1;
        let gap = number > flow.expected;
        flow.expected = flow.expected.max(number + 1);
        if flow.unacked >= ACK_EVERY || gap {
            self.ack(index);
        } else if flow.unacked == 1 {
            flow.ack_armed += 1;
            let armed = flow.ack_armed;
            // A receiver that sleeps acknowledges in the turn in which packets arrived.
            let at_once = !flow.sleeps_at(self.now).is_zero();
            let within = if at_once { Duration::ZERO } else { ACK_WITHIN };
            self.at(self.now + within, Event::AckTimer { flow: index, armed });
        }
    }

    fn ack(&mut self, index: usize) {
        let now = self.now;
        let flow = &mut self.flows[index];
        flow.unacked = 0;
        flow.ack_armed += 1;
        if flow.pending.is_empty() {
            return;
        }
        let Fate::Delivered { at, .. } = flow.back.send(now, Packet::from(40)) else {
            return;
        };
        let numbers = std::mem::take(&mut flow.pending);
        let at = at + flow.rtt / 2;
        let id = self.free.pop().unwrap_or_else(|| {
            self.acks.push(Vec::new());
            self.acks.len() - 1
        });
        self.acks[id] = numbers;
        self.at(at, Event::Ack { flow: index, id });
    }

    fn acked(&mut self, index: usize, id: usize) {
        let now = self.now;
        let numbers = std::mem::take(&mut self.acks[id]);
        self.free.push(id);
        let flow = &mut self.flows[index];
        flow.probe.on_ack(now);
        for number in numbers {
            flow.largest = flow.largest.max(Some(number));
            if number < flow.first {
                continue;
            }
            let entry = &mut flow.packets[(number - flow.first) as usize];
            if entry.1 == PacketState::Flying {
                entry.1 = PacketState::Settled;
                flow.in_flight -= SIZE;
                flow.latest_rtt = now.saturating_duration_since(entry.0);
                flow.model.on_acked(now, entry.0, SIZE);
            }
        }
        let sleeps = flow.sleeps_at(now);
        let awake = sleeps.is_zero() || flow.is_awake();
        flow.model
            .set_sleeps(if awake { Duration::ZERO } else { sleeps });
        flow.model.on_ack_end(now, flow.in_flight);
        let limit = flow.largest.unwrap_or(0).saturating_sub(REORDER - 1);
        let mut lost = 0;
        let mut latest = now;
        let mut persistence = Persistence::of(&flow.probe);
        while flow.first < limit {
            let Some((sent, state)) = flow.packets.pop_front() else {
                break;
            };
            flow.first += 1;
            if state == PacketState::Flying {
                lost += SIZE;
                latest = sent;
                persistence.on_lost(sent);
            } else {
                persistence.on_arrived();
            }
        }
        if lost > 0 {
            flow.in_flight -= lost;
            flow.lost += lost / SIZE;
            flow.model.on_lost(
                now,
                latest,
                Loss {
                    bytes: lost,
                    persistent: self.outages && persistence.shown(),
                },
            );
        }
        self.arm_probe(index);
        if !self.flows[index].stopped {
            self.send(index);
        }
    }

    /// Forgets the waits of packets so far.
    pub(crate) fn forget_waits(&mut self) {
        self.waits.clear();
    }

    /// Returns the wait in milliseconds that this share of packets did not exceed.
    pub(crate) fn wait_ms(&self, share: f64) -> f64 {
        let all: u64 = self.waits.iter().sum();
        let mut seen = 0;
        for (bin, count) in self.waits.iter().enumerate() {
            seen += count;
            if seen as f64 >= share * all as f64 {
                return bin as f64 * 0.02;
            }
        }
        0.0
    }
}

impl SimulatedFlow {
    /// Returns whether the sender may not sleep now, as in the engine.
    fn is_awake(&self) -> bool {
        let view = self.model.view();
        view.starting || view.even
    }

    fn sleeps_at(&self, now: Instant) -> Duration {
        if now < self.sleeps_from {
            Duration::ZERO
        } else {
            self.sleeps
        }
    }

    /// Returns the bytes per second received between two times.
    pub(crate) fn rate(&self, slot: Duration, from: Duration, to: Duration) -> f64 {
        let place = |time: Duration| (time.as_nanos() / slot.as_nanos()) as usize;
        let bytes: u64 = self.series.iter().take(place(to)).skip(place(from)).sum();
        bytes as f64 / to.saturating_sub(from).as_secs_f64()
    }
}
