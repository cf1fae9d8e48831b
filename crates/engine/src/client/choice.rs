//! The choice of the server that takes new flows.
//!
//! | the chosen server | another server | new flows go to the other server |
//! | --- | --- | --- |
//! | none yet, it does not answer, or it drains | answers; of several the fastest | at once |
//! | answers | is clearly faster | once it has been so for [`BETTER_FOR`] |
//! | answers | is about as fast, and precedes it in the configuration | once it has been so for [`BACK_FOR`] |
//! | answers | has a record with a lower priority number in the same service | once it has answered for [`BACK_FOR`] |
//! | answers | anything else | never |
//!
//! Among the servers of a service (RFC 2782), only those with the lowest priority number that answers are candidates.
//! At first, the server that the weights have put first is preferred: others wait for it for [`HEAD_START`], unless it
//! has failed. After that, measurements decide among servers of one priority, as among other servers.
//!
//! The margins of "clearly" and "about" leave a gap, so that no measure lies in both. An unnecessary switch is not
//! followed by another within [`HOLD`]. Pure: times and measurements are arguments.

use std::time::{Duration, Instant};

use crate::config::Rank;
use crate::report::ChoiceReason;

/// Time for which another server must be faster without interruption. A transfer that fills a queue for a moment ends
/// sooner.
const BETTER_FOR: Duration = Duration::from_secs(3);

/// Time for which a server that precedes the chosen one must be about as fast. A server that comes back is used within
/// 30 s: at most 15 s until there is a connection to it, and this time.
const BACK_FOR: Duration = Duration::from_secs(10);

/// Minimum time between two switches between servers that answer.
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
pub(super) struct Measurements {
    /// The lowest smoothed round-trip time of the connections that answer and take flows. `None` if there is no such
    /// connection.
    pub(super) rtt: Option<Duration>,
    /// Bytes per second that the path has delivered while flows wanted more. `None` if unknown.
    pub(super) bandwidth: Option<u64>,
    /// Position by its SRV record, if a record names the server.
    pub(super) rank: Option<Rank>,
    /// Set if no answer is expected: the server has failed, or is not dialled.
    pub(super) no_answer_expected: bool,
    /// Set if no record names the server any more.
    pub(super) unlisted: bool,
    /// Set if all connections to the server say that it drains.
    pub(super) drains: bool,
}

/// A change of the server that takes new flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Switch {
    pub(super) from: Option<usize>,
    pub(super) to: usize,
    pub(super) reason: ChoiceReason,
}

#[derive(Debug, Default)]
pub(super) struct Choice {
    chosen: Option<usize>,
    challenger: Option<Challenger>,
    hold_until: Option<Instant>,
    /// Time until which the first choice waits for a server that stands before those that answer.
    first_due: Option<Instant>,
}

/// A server that may be better than the chosen one.
#[derive(Clone, Copy, Debug)]
struct Challenger {
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
        self.challenger
            .map(|challenger| challenger.due)
            .or(self.first_due)
    }

    /// Compares the servers, in the order of the configuration. Returns the switch that is due, if one is.
    pub(super) fn judge(&mut self, now: Instant, measured: &[Measurements]) -> Option<Switch> {
        let answers = |&server: &usize| measured.get(server).is_some_and(|it| it.rtt.is_some());
        let Some(chosen) = self.chosen.filter(answers) else {
            // After an outage, earlier measurements say nothing about the servers.
            self.challenger = None;
            return self.judge_anew(now, measured);
        };
        self.first_due = None;
        let reason_of = |server: usize| reason_for(measured, server, chosen);
        let candidates =
            |reason| (0..measured.len()).filter(move |&other| reason_of(other) == Some(reason));
        let of_priority = |server: &usize| reason_of(*server) == Some(ChoiceReason::Priority);
        // A server that is already being timed stays the challenger, so that two similar servers do not restart each
        // other's time.
        let challenger = self.challenger.map(|challenger| challenger.server);
        let challenger = challenger
            .filter(of_priority)
            .or_else(|| {
                candidates(ChoiceReason::Priority).min_by_key(|&server| position(measured, server))
            })
            .or(challenger.filter(|&server| reason_of(server).is_some()))
            .or_else(|| fastest(measured, candidates(ChoiceReason::Faster)))
            .or_else(|| {
                candidates(ChoiceReason::ListedFirst)
                    .min_by_key(|&server| position(measured, server))
            });
        let Some((server, reason)) =
            challenger.and_then(|server| Some((server, reason_of(server)?)))
        else {
            self.challenger = None;
            return None;
        };
        let same = self
            .challenger
            .filter(|challenger| challenger.server == server);
        let since = same.map_or(now, |challenger| challenger.since);
        let due = since
            + match reason {
                ChoiceReason::ListedFirst | ChoiceReason::Priority => BACK_FOR,
                ChoiceReason::FirstAnswer
                | ChoiceReason::NoAnswer
                | ChoiceReason::NoRecord
                | ChoiceReason::Draining
                | ChoiceReason::Faster
                | ChoiceReason::FirstRecord => BETTER_FOR,
            };
        let due = self.hold_until.map_or(due, |until| due.max(until));
        if now < due {
            self.challenger = Some(Challenger { server, since, due });
            return None;
        }
        self.hold_until = Some(now + HOLD);
        Some(self.switch(server, reason))
    }

    /// Chooses while none is chosen that answers.
    fn judge_anew(&mut self, now: Instant, measured: &[Measurements]) -> Option<Switch> {
        let first = |&server: &usize| is_open(measured, server) && is_first_open(measured, server);
        let Some(to) = fastest(measured, (0..measured.len()).filter(first)) else {
            self.first_due = None;
            return None;
        };
        let is_first = self.chosen.is_none();
        if is_first && is_awaited(measured, to) {
            let due = *self.first_due.get_or_insert(now + HEAD_START);
            if now < due {
                return None;
            }
        }
        self.first_due = None;
        let previous = self.chosen.and_then(|chosen| measured.get(chosen));
        let reason = match (previous, measured[to].rank) {
            (Some(previous), _) if previous.unlisted => ChoiceReason::NoRecord,
            (Some(previous), _) if previous.drains => ChoiceReason::Draining,
            (Some(_), _) => ChoiceReason::NoAnswer,
            (None, Some(_)) => ChoiceReason::FirstRecord,
            (None, None) => ChoiceReason::FirstAnswer,
        };
        Some(self.switch(to, reason))
    }

    fn switch(&mut self, to: usize, reason: ChoiceReason) -> Switch {
        self.challenger = None;
        Switch {
            from: self.chosen.replace(to),
            to,
            reason,
        }
    }
}

/// Returns the reason why `server` should replace `chosen`, if there is one.
fn reason_for(measured: &[Measurements], server: usize, chosen: usize) -> Option<ChoiceReason> {
    if server == chosen {
        return None;
    }
    let (this, that) = (measured.get(server)?, measured.get(chosen)?);
    if let Some((one, other)) = priorities(this, that)
        && one != other
    {
        return (one < other && this.rtt.is_some()).then_some(ChoiceReason::Priority);
    }
    if !is_open(measured, server) {
        return None;
    }
    // The bandwidth of one path alone permits no comparison.
    let counts = this.bandwidth.is_some() && that.bandwidth.is_some();
    let (this, that) = (this.cost(counts)?, that.cost(counts)?);
    if this * CLEARLY + CLEARLY_LEAST.as_secs_f64() < that {
        return Some(ChoiceReason::Faster);
    }
    let about = this <= that * ABOUT + ABOUT_LEAST.as_secs_f64();
    (position(measured, server) < position(measured, chosen) && about)
        .then_some(ChoiceReason::ListedFirst)
}

/// Returns the priorities of two servers if they belong to one service.
fn priorities(this: &Measurements, that: &Measurements) -> Option<(u16, u16)> {
    let (this, that) = (this.rank?, that.rank?);
    (this.service == that.service).then_some((this.priority, that.priority))
}

/// Returns the other servers of the same service.
fn beside(measured: &[Measurements], server: usize) -> impl Iterator<Item = usize> {
    let service = measured[server].rank.map(|rank| rank.service);
    let of_service = move |other: &usize| {
        let rank = measured[*other].rank;
        *other != server && rank.is_some_and(|rank| Some(rank.service) == service)
    };
    (0..measured.len()).filter(of_service)
}

/// Returns whether the server answers, and no server of its service that answers has a lower priority number.
fn is_open(measured: &[Measurements], server: usize) -> bool {
    let before = |other: usize| {
        let priorities = priorities(&measured[other], &measured[server]);
        measured[other].rtt.is_some() && priorities.is_some_and(|(other, this)| other < this)
    };
    measured[server].rtt.is_some() && !beside(measured, server).any(before)
}

/// Returns whether no server of its service that answers precedes the server.
fn is_first_open(measured: &[Measurements], server: usize) -> bool {
    let before = |other: usize| {
        measured[other].rtt.is_some() && position(measured, other) < position(measured, server)
    };
    !beside(measured, server).any(before)
}

/// Returns whether a server of the same service that precedes the server may still answer.
fn is_awaited(measured: &[Measurements], server: usize) -> bool {
    let may = |other: usize| {
        let it = &measured[other];
        !it.no_answer_expected
            && it.rtt.is_none()
            && position(measured, other) < position(measured, server)
    };
    beside(measured, server).any(may)
}

/// Returns the position in the configuration; the lower one is preferred if two servers are equally good. All servers
/// of a service share the position of the service, and follow their priority and order there.
fn position(measured: &[Measurements], server: usize) -> (usize, u16, usize) {
    match measured[server].rank {
        Some(rank) => (rank.service.0, rank.priority, rank.order),
        None => (server, 0, 0),
    }
}

/// Returns the server with the lowest round-trip time, and of several the one with the lowest position.
fn fastest(measured: &[Measurements], servers: impl Iterator<Item = usize>) -> Option<usize> {
    servers.min_by_key(|&server| (measured[server].rtt, position(measured, server)))
}

impl Measurements {
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
