//! The rate of a connection's client: what may be sent and delivered now, and which flows wait.
//!
//! Nothing is dropped. Down, flows are not asked for bytes, so that their sockets are not read. Up, what has arrived waits
//! here and takes up the connection's window, which is no larger than the rate needs: the peer sends at that rate.
//!
//! Flows take turns: down in the queue of all that have something to send, up in a queue of those that wait here.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use quictun_flow::{Allowance, FlowKey, Meter, Way};

/// Turns of flows in one call: then others have theirs, whatever the rate.
pub(crate) const TURNS: usize = 16;

/// What a window holds beyond a round trip: portions and credit do not come at once.
const LATE: Duration = Duration::from_millis(100);
const WINDOW_MIN: u64 = 32 * 1024;

#[derive(Debug, Default)]
pub(crate) struct Shaping {
    meters: Option<Box<Meters>>,
    /// Flows with bytes that may not be delivered yet, in turn.
    waiting: VecDeque<FlowKey>,
    /// When the first of them may go on.
    up_at: Option<Instant>,
    /// When flows may send on.
    down_at: Option<Instant>,
}

#[derive(Debug)]
struct Meters {
    allowance: Arc<Allowance>,
    up: Meter,
    down: Meter,
}

impl Shaping {
    /// From now on this is the limit.
    pub(crate) fn obey(&mut self, allowance: Option<&Arc<Allowance>>) {
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
                    up: Meter::new(allowance.clone(), Way::Up),
                    down: Meter::new(allowance.clone(), Way::Down),
                })
            });
        }
    }

    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        [self.up_at, self.down_at].into_iter().flatten().min()
    }

    /// Returns whether flows that wait for delivery have to be looked after.
    pub(crate) fn handle_timeout(&mut self, now: Instant) -> bool {
        self.down_at = self.down_at.filter(|&at| at > now);
        self.up_at.take_if(|at| *at <= now).is_some()
    }

    /// Bytes that may be sent now; 0: flows wait.
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

    /// Nothing waits to be sent: that needs no time.
    pub(crate) fn rest(&mut self) {
        self.down_at = None;
    }

    /// Whether flows have something to send, and may not.
    pub(crate) fn holds_back(&self) -> bool {
        self.down_at.is_some()
    }

    /// Bytes that may be delivered now to a flow that has not waited: none where others wait.
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

    /// The receive window that the rate needs on a path of this round trip, if there is a rate, bytes: a peer that has no more
    /// sends at that rate by itself.
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

    /// A flow waits for its turn.
    pub(crate) fn wait(&mut self, now: Instant, key: FlowKey) {
        self.waiting.push_back(key);
        self.plan(now);
    }

    pub(crate) fn forget(&mut self, key: FlowKey) {
        self.waiting.retain(|&waiting| waiting != key);
        if self.waiting.is_empty() {
            self.up_at = None;
        }
    }

    /// The flow whose turn it is, and the bytes that may be delivered to it.
    pub(crate) fn next(&mut self, now: Instant) -> Option<(FlowKey, u64)> {
        if self.waiting.is_empty() {
            return None;
        }
        let bytes = match &mut self.meters {
            Some(meters) => meters.up.poll(now).ok()?,
            None => u64::MAX,
        };
        Some((self.waiting.pop_front()?, bytes))
    }

    /// Enters the time of the next turn.
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
