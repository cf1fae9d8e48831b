//! The rate limit of a connection's client: what may be sent and delivered now, and which flows wait.
//!
//! Nothing is dropped. Down (to the client), flows are not asked for bytes, so that their sockets are not read. Up (to
//! the application), received data waits here and takes up the connection's window. The window is no larger than the
//! rate needs, so the peer sends at that rate.
//!
//! Flows take turns: down in the queue of all flows that have data to send, up in a queue of the flows that wait here.

use std::collections::BTreeMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fxhash::FxHashMap;
use quictun_flow::{Allowance, FlowDirection, FlowKey, Meter};

/// Limit for the turns of flows in one call, so that other connections get theirs at any rate.
pub(crate) const TURNS: usize = 16;

/// Added to the round-trip time when the window is computed from the rate, because portions and credit arrive with a
/// delay.
const LATE: Duration = Duration::from_millis(100);
const WINDOW_MIN: u64 = 32 * 1024;

/// Bytes of datagrams that may be delivered between the turns of two flows, at least: a full packet.
const DATAGRAMS_MIN: u64 = 1500;

#[derive(Debug, Default)]
pub(crate) struct Shaping {
    meters: Option<Box<Meters>>,
    waiting: Turns,
    /// Bytes of datagrams that may be delivered before the next of `waiting` has its turn.
    datagrams: u64,
    /// Time at which the first of `waiting` may continue.
    up_at: Option<Instant>,
    /// Time at which flows may continue to send.
    down_at: Option<Instant>,
}

/// Flows whose bytes may not be delivered yet, in turn. Many may end at once, so that none is searched for.
#[derive(Debug, Default)]
struct Turns {
    flows: BTreeMap<u64, FlowKey>,
    by_flow: FxHashMap<FlowKey, u64>,
    next: u64,
}

impl Turns {
    fn is_empty(&self) -> bool {
        self.flows.is_empty()
    }

    /// Appends a flow, unless it has a turn.
    fn append(&mut self, flow: FlowKey) {
        if let Entry::Vacant(place) = self.by_flow.entry(flow) {
            place.insert(self.next);
            self.flows.insert(self.next, flow);
            self.next += 1;
        }
    }

    fn remove(&mut self, flow: FlowKey) {
        if let Some(turn) = self.by_flow.remove(&flow) {
            self.flows.remove(&turn);
        }
    }

    fn pop(&mut self) -> Option<FlowKey> {
        let (_, flow) = self.flows.pop_first()?;
        self.by_flow.remove(&flow);
        Some(flow)
    }
}

#[derive(Debug)]
struct Meters {
    allowance: Arc<Allowance>,
    up: Meter,
    down: Meter,
}

impl Shaping {
    /// Sets the limits that apply from now on.
    pub(crate) fn set_allowance(&mut self, allowance: Option<&Arc<Allowance>>) {
        let present = self.meters.as_ref().map(|meters| &meters.allowance);
        let same = match (present, allowance) {
            (Some(present), Some(allowance)) => Arc::ptr_eq(present, allowance),
            (None, None) => true,
            _ => false,
        };
        if !same {
            self.meters = allowance.map(|allowance| {
                Box::new(Meters {
                    allowance: allowance.clone(),
                    up: Meter::new(allowance.clone(), FlowDirection::Up),
                    down: Meter::new(allowance.clone(), FlowDirection::Down),
                })
            });
        }
    }

    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        [self.up_at, self.down_at].into_iter().flatten().min()
    }

    /// Returns whether flows that wait for delivery have to be served.
    pub(crate) fn handle_timeout(&mut self, now: Instant) -> bool {
        self.down_at = self.down_at.filter(|&at| at > now);
        self.up_at.take_if(|at| *at <= now).is_some()
    }

    /// Returns the number of bytes that may be sent now. With 0, flows wait.
    pub(crate) fn may_send(&mut self, now: Instant) -> u64 {
        self.down_at = None;
        let Some(meters) = &mut self.meters else {
            return u64::MAX;
        };
        meters.down.poll(now).unwrap_or_else(|at| {
            self.down_at = Some(at);
            0
        })
    }

    pub(crate) fn note_sent(&mut self, bytes: u64) {
        if let Some(meters) = &mut self.meters {
            meters.down.spend(bytes);
        }
    }

    /// Clears the send deadline, because no flow waits to send.
    pub(crate) fn clear_send_deadline(&mut self) {
        self.down_at = None;
    }

    /// Returns whether flows have data to send, and may not send it yet.
    pub(crate) fn holds_back(&self) -> bool {
        self.down_at.is_some()
    }

    /// Returns the number of bytes that may be delivered now to a flow that has not waited. Returns 0 if other flows
    /// wait.
    pub(crate) fn may_deliver(&mut self, now: Instant) -> u64 {
        if !self.waiting.is_empty() {
            return 0;
        }
        let Some(meters) = &mut self.meters else {
            return u64::MAX;
        };
        meters.up.poll(now).unwrap_or(0)
    }

    pub(crate) fn note_delivered(&mut self, bytes: u64) {
        if let Some(meters) = &mut self.meters {
            meters.up.spend(bytes);
        }
    }

    /// Returns whether a datagram may be delivered now. Datagrams do not wait: while flows do, they may have as many bytes
    /// as the latest turn of a flow, and the next turns pay for them.
    pub(crate) fn may_deliver_datagram(&mut self, now: Instant) -> bool {
        if self.waiting.is_empty() {
            return self.may_deliver(now) > 0;
        }
        let meters = self.meters.as_ref();
        self.datagrams > 0 && meters.is_none_or(|meters| meters.allowance.left() > 0)
    }

    pub(crate) fn note_datagram_delivered(&mut self, bytes: u64) {
        self.datagrams = self.datagrams.saturating_sub(bytes);
        self.note_delivered(bytes);
    }

    /// Returns the receive window that the rate needs on a path with this round-trip time, in bytes. A peer with no
    /// more than this window sends at the rate by itself. `None` if there is no rate.
    pub(crate) fn window(&self, rtt: Duration) -> Option<u64> {
        let rate = self.meters.as_ref()?.allowance.usage().limits.rate_up?;
        let time = (rtt + LATE).as_nanos();
        let bytes = u128::from(rate) * time / 1_000_000_000;
        Some(
            u64::try_from(bytes)
                .unwrap_or(u64::MAX)
                .saturating_add(WINDOW_MIN),
        )
    }

    /// Appends a flow to the queue of those that wait for their turn.
    pub(crate) fn wait(&mut self, now: Instant, key: FlowKey) {
        if self.waiting.is_empty() {
            // A flow that waits alone leaves the queue for its turn.
            self.datagrams = self.datagrams.max(DATAGRAMS_MIN);
        }
        self.waiting.append(key);
        self.plan(now);
    }

    pub(crate) fn forget(&mut self, key: FlowKey) {
        self.waiting.remove(key);
        if self.waiting.is_empty() {
            self.up_at = None;
        }
    }

    /// Returns the flow whose turn it is, and the number of bytes that may be delivered to it.
    pub(crate) fn next(&mut self, now: Instant) -> Option<(FlowKey, u64)> {
        if self.waiting.is_empty() {
            return None;
        }
        let bytes = match &mut self.meters {
            Some(meters) => meters.up.poll(now).ok()?,
            None => u64::MAX,
        };
        self.datagrams = bytes.max(DATAGRAMS_MIN);
        Some((self.waiting.pop()?, bytes))
    }

    /// Sets the time of the next turn.
    pub(crate) fn plan(&mut self, now: Instant) {
        self.up_at = None;
        if self.waiting.is_empty() {
            return;
        }
        self.up_at = match &mut self.meters {
            Some(meters) => Some(meters.up.poll(now).err().unwrap_or(now)),
            None => Some(now),
        };
    }
}

#[cfg(test)]
mod tests {
    use quictun_flow::AllowanceLimits;

    use super::*;

    /// The client's rate in bytes per second.
    const RATE: u64 = 2_500_000;

    /// Returns the bytes of a flow that always waits, and of datagrams of 200 bytes that arrive at this interval, in 10 s.
    fn shared(interval: Duration) -> (u64, u64) {
        let (mut shaping, start) = (Shaping::default(), Instant::now());
        let allowance = Arc::new(Allowance::new(start));
        allowance.set(AllowanceLimits {
            rate_up: Some(RATE),
            ..AllowanceLimits::default()
        });
        shaping.set_allowance(Some(&allowance));
        let (mut stream, mut datagrams) = (0, 0);
        let (mut now, mut arrives) = (start, start);
        shaping.wait(now, FlowKey(1));
        while now < start + Duration::from_secs(10) {
            if shaping.next_timeout().is_some_and(|at| at <= now) && shaping.handle_timeout(now) {
                while let Some((key, bytes)) = shaping.next(now) {
                    shaping.note_delivered(bytes);
                    stream += bytes;
                    shaping.wait(now, key);
                }
                shaping.plan(now);
            }
            if arrives <= now {
                arrives += interval;
                if shaping.may_deliver_datagram(now) {
                    shaping.note_datagram_delivered(200);
                    datagrams += 200;
                }
            }
            let next = shaping.next_timeout().map_or(arrives, |at| at.min(arrives));
            now = next.max(now + Duration::from_micros(1));
        }
        (stream, datagrams)
    }

    // PROTOCOL UDP-10.
    #[test]
    fn an_upload_at_its_rate_starves_no_datagrams_and_a_flood_no_upload() {
        let (stream, datagrams) = shared(Duration::from_millis(20));
        assert_eq!(datagrams, 500 * 200, "all of them, {stream}");
        let all = RATE * 10 * 21 / 20;
        assert!(stream + datagrams <= all, "{stream} {datagrams}");
        assert!(stream + datagrams >= RATE * 9, "{stream} {datagrams}");
        let (stream, datagrams) = shared(Duration::from_micros(20));
        assert!(stream + datagrams <= all, "{stream} {datagrams}");
        let least = RATE * 10 * 2 / 5;
        assert!(
            stream >= least && datagrams >= least,
            "{stream} {datagrams}"
        );
    }

    #[test]
    fn flows_take_turns_in_the_order_in_which_they_began_to_wait() {
        let (mut shaping, now) = (Shaping::default(), Instant::now());
        for flow in [3, 1, 2, 3] {
            shaping.wait(now, FlowKey(flow));
        }
        shaping.forget(FlowKey(1));
        shaping.wait(now, FlowKey(1));
        let turns = std::iter::from_fn(|| shaping.next(now)).map(|(flow, _)| flow.0);
        assert_eq!(turns.collect::<Vec<_>>(), [3, 2, 1]);
    }
}
