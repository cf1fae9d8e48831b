//! The choice of the server that takes new flows.
//!
//! | the chosen server | another server | new flows go to the other server |
//! | --- | --- | --- |
//! | none yet, or it does not answer | answers; of several the fastest | at once |
//! | answers | is clearly faster | once it has been so for [`BETTER_FOR`] |
//! | answers | is about as fast, and precedes it in the configuration | once it has been so for [`BACK_FOR`] |
//! | answers | has a record with a lower priority number in the same service | once it has answered for [`BACK_FOR`] |
//! | answers | anything else | never |
//!
//! Among the servers of a service (RFC 2782), only those with the lowest priority number that answers are candidates. At
//! first, the server that the weights have put first is preferred: others wait for it for [`HEAD_START`], unless it has
//! failed. After that, measurements decide among servers of one priority, as among other servers.
//!
//! The margins of "clearly" and "about" leave a gap, so that no measure lies in both. An unnecessary switch is not
//! followed by another within [`HOLD`]. Pure: times and facts are arguments.

use std::time::{Duration, Instant};

use crate::config::Rank;
use crate::report::Why;

/// Time for which another server must be faster without interruption. A transfer that fills a queue for a moment ends
/// sooner.
const BETTER_FOR: Duration = Duration::from_secs(3);

/// Time for which a server that precedes the chosen one must be about as fast. A server that comes back is used within
/// 30 s: at most 15 s until there is a connection to it, and this time.
const BACK_FOR: Duration = Duration::from_secs(10);

/// Least time between two switches between servers that answer.
const HOLD: Duration = Duration::from_secs(10);

/// Time that a server of a service has to answer before one with a later position is used. It counts from the answer of
/// that later server, because both are dialled over the same access line. An attempt whose first packet was lost is
/// repeated after 1 s.
const HEAD_START: Duration = Duration::from_millis(1500);

/// Margin of "clearly faster": a fifth of the cost, and a time that a person could notice over a few round trips.
const CLEARLY: f64 = 1.25;
const CLEARLY_LEAST: Duration = Duration::from_millis(3);

/// Margin of "about as fast".
const ABOUT: f64 = 1.1;
const ABOUT_LEAST: Duration = Duration::from_millis(1);

/// Bytes whose transfer time counts in addition to the round trip: a small answer. Chosen arbitrarily between a message
/// and a page.
const TYPICAL: f64 = 32.0 * 1024.0;

/// The measurements of one server at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Facts {
    /// The lowest smoothed round-trip time of the connections that answer and take flows. `None` if there is no such
    /// connection.
    pub(super) rtt: Option<Duration>,
    /// Bytes per second that the path has delivered while flows wanted more. `None` if unknown.
    pub(super) bandwidth: Option<u64>,
    /// Position by its SRV record, if a record names the server.
    pub(super) rank: Option<Rank>,
    /// Set if no answer is expected: the server has failed, or is not dialled.
    pub(super) hopeless: bool,
    /// Set if no record names the server any more.
    pub(super) left: bool,
}

/// A change of the server that takes new flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Switch {
    pub(super) from: Option<usize>,
    pub(super) to: usize,
    pub(super) why: Why,
}

#[derive(Debug, Default)]
pub(super) struct Choice {
    chosen: Option<usize>,
    rival: Option<Rival>,
    hold_until: Option<Instant>,
    /// Time until which the first choice waits for a server that stands before those that answer.
    first_due: Option<Instant>,
}

/// A server that may be better than the chosen one.
#[derive(Clone, Copy, Debug)]
struct Rival {
    server: usize,
    since: Instant,
    due: Instant,
}

impl Choice {
    /// Returns the server that takes new flows.
    pub(super) fn chosen(&self) -> Option<usize> {
        self.chosen
    }

    /// Returns when [`Choice::judge`] should be called next.
    pub(super) fn next_timeout(&self) -> Option<Instant> {
        self.rival.map(|rival| rival.due).or(self.first_due)
    }

    /// Compares the servers, in the order of the configuration. Returns the switch that is due, if one is.
    pub(super) fn judge(&mut self, now: Instant, facts: &[Facts]) -> Option<Switch> {
        let answers = |&server: &usize| facts.get(server).is_some_and(|it| it.rtt.is_some());
        let Some(chosen) = self.chosen.filter(answers) else {
            // After an outage, earlier measurements say nothing about the servers.
            self.rival = None;
            return self.judge_anew(now, facts);
        };
        self.first_due = None;
        let reason = |server: usize| reason_for(facts, server, chosen);
        let candidates = |why| (0..facts.len()).filter(move |&other| reason(other) == Some(why));
        let of_priority = |server: &usize| reason(*server) == Some(Why::Priority);
        // A server that is already being timed stays the rival, so that two similar servers do not restart each other's
        // time.
        let rival = self.rival.map(|rival| rival.server);
        let rival = rival
            .filter(of_priority)
            .or_else(|| candidates(Why::Priority).min_by_key(|&server| position(facts, server)))
            .or(rival.filter(|&server| reason(server).is_some()))
            .or_else(|| fastest(facts, candidates(Why::Faster)))
            .or_else(|| candidates(Why::Before).min_by_key(|&server| position(facts, server)));
        let Some((server, why)) = rival.and_then(|server| Some((server, reason(server)?))) else {
            self.rival = None;
            return None;
        };
        let same = self.rival.filter(|rival| rival.server == server);
        let since = same.map_or(now, |rival| rival.since);
        let due = since
            + match why {
                Why::Before | Why::Priority => BACK_FOR,
                Why::First | Why::Gone | Why::Left | Why::Faster | Why::Record => BETTER_FOR,
            };
        let due = self.hold_until.map_or(due, |until| due.max(until));
        if now < due {
            self.rival = Some(Rival { server, since, due });
            return None;
        }
        self.hold_until = Some(now + HOLD);
        Some(self.switch(server, why))
    }

    /// Chooses while none is chosen that answers.
    fn judge_anew(&mut self, now: Instant, facts: &[Facts]) -> Option<Switch> {
        let first = |&server: &usize| is_open(facts, server) && is_first_open(facts, server);
        let Some(to) = fastest(facts, (0..facts.len()).filter(first)) else {
            self.first_due = None;
            return None;
        };
        let is_first = self.chosen.is_none();
        if is_first && is_awaited(facts, to) {
            let due = *self.first_due.get_or_insert(now + HEAD_START);
            if now < due {
                return None;
            }
        }
        self.first_due = None;
        let left = self.chosen.and_then(|chosen| facts.get(chosen));
        let why = match (left, facts[to].rank) {
            (Some(left), _) if left.left => Why::Left,
            (Some(_), _) => Why::Gone,
            (None, Some(_)) => Why::Record,
            (None, None) => Why::First,
        };
        Some(self.switch(to, why))
    }

    fn switch(&mut self, to: usize, why: Why) -> Switch {
        self.rival = None;
        Switch {
            from: self.chosen.replace(to),
            to,
            why,
        }
    }
}

/// Returns the reason why `server` should replace `chosen`, if there is one.
fn reason_for(facts: &[Facts], server: usize, chosen: usize) -> Option<Why> {
    if server == chosen {
        return None;
    }
    let (this, that) = (facts.get(server)?, facts.get(chosen)?);
    if let Some((one, other)) = priorities(this, that)
        && one != other
    {
        return (one < other && this.rtt.is_some()).then_some(Why::Priority);
    }
    if !is_open(facts, server) {
        return None;
    }
    // The bandwidth of one path alone permits no comparison.
    let counts = this.bandwidth.is_some() && that.bandwidth.is_some();
    let (this, that) = (this.cost(counts)?, that.cost(counts)?);
    if this * CLEARLY + CLEARLY_LEAST.as_secs_f64() < that {
        return Some(Why::Faster);
    }
    let about = this <= that * ABOUT + ABOUT_LEAST.as_secs_f64();
    (position(facts, server) < position(facts, chosen) && about).then_some(Why::Before)
}

/// Returns the priorities of two servers if they belong to one service.
fn priorities(this: &Facts, that: &Facts) -> Option<(u16, u16)> {
    let (this, that) = (this.rank?, that.rank?);
    (this.service == that.service).then_some((this.priority, that.priority))
}

/// Returns the other servers of the same service.
fn beside(facts: &[Facts], server: usize) -> impl Iterator<Item = usize> {
    let service = facts[server].rank.map(|rank| rank.service);
    let of_service = move |other: &usize| {
        let rank = facts[*other].rank;
        *other != server && rank.is_some_and(|rank| Some(rank.service) == service)
    };
    (0..facts.len()).filter(of_service)
}

/// Returns whether the server answers, and no server of its service that answers has a lower priority number.
fn is_open(facts: &[Facts], server: usize) -> bool {
    let before = |other: usize| {
        let priorities = priorities(&facts[other], &facts[server]);
        facts[other].rtt.is_some() && priorities.is_some_and(|(other, this)| other < this)
    };
    facts[server].rtt.is_some() && !beside(facts, server).any(before)
}

/// Returns whether no server of its service that answers precedes the server.
fn is_first_open(facts: &[Facts], server: usize) -> bool {
    let before = |other: usize| {
        facts[other].rtt.is_some() && position(facts, other) < position(facts, server)
    };
    !beside(facts, server).any(before)
}

/// Returns whether a server of the same service that precedes the server may still answer.
fn is_awaited(facts: &[Facts], server: usize) -> bool {
    let may = |other: usize| {
        let it = &facts[other];
        !it.hopeless && it.rtt.is_none() && position(facts, other) < position(facts, server)
    };
    beside(facts, server).any(may)
}

/// Returns the position in the configuration; the lower one is preferred if two servers are equally good. All servers
/// of a service share the position of the service, and follow their priority and order there.
fn position(facts: &[Facts], server: usize) -> (usize, u16, usize) {
    match facts[server].rank {
        Some(rank) => (rank.service.0, rank.priority, rank.order),
        None => (server, 0, 0),
    }
}

/// Returns the server with the lowest round-trip time, and of several the one with the lowest position.
fn fastest(facts: &[Facts], servers: impl Iterator<Item = usize>) -> Option<usize> {
    servers.min_by_key(|&server| (facts[server].rtt, position(facts, server)))
}

impl Facts {
    /// Returns the time that a small answer takes, in seconds.
    fn cost(&self, with_bandwidth: bool) -> Option<f64> {
        let round_trip = self.rtt?.as_secs_f64();
        let bandwidth = self.bandwidth.filter(|_| with_bandwidth);
        #[expect(clippy::cast_precision_loss, reason = "a rate")]
        let transfer = bandwidth.map_or(0.0, |bandwidth| TYPICAL / bandwidth.max(1) as f64);
        Some(round_trip + transfer)
    }
}

#[cfg(test)]
mod tests;
