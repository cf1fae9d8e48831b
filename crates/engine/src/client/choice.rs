//! The choice of the server that takes new flows.
//!
//! | the chosen server | another server | new flows go to the other server |
//! | --- | --- | --- |
//! | none yet, or it does not answer | answers; of several the fastest | at once |
//! | answers | is clearly faster | once it has been so for [`BETTER_FOR`] |
//! | answers | is about as fast, and precedes it in the configuration | once it has been so for [`BACK_FOR`] |
//! | answers | anything else | never |
//!
//! The margins of "clearly" and "about" leave a gap, so that no measure lies in both. An unnecessary switch is not
//! followed by another within [`HOLD`]. Pure: times and facts are arguments.

use std::time::{Duration, Instant};

use crate::report::Why;

/// Time for which another server must be faster without interruption. A transfer that fills a queue for a moment ends
/// sooner.
const BETTER_FOR: Duration = Duration::from_secs(3);

/// Time for which a server that precedes the chosen one must be about as fast. A server that comes back is used within
/// 30 s: at most 15 s until there is a connection to it, and this time.
const BACK_FOR: Duration = Duration::from_secs(10);

/// Least time between two switches between servers that answer.
const HOLD: Duration = Duration::from_secs(10);

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
        Some(self.rival?.due)
    }

    /// Compares the servers, in the order of the configuration. Returns the switch that is due, if one is.
    pub(super) fn judge(&mut self, now: Instant, facts: &[Facts]) -> Option<Switch> {
        let answers = |&server: &usize| facts.get(server).is_some_and(|it| it.rtt.is_some());
        let Some(chosen) = self.chosen.filter(answers) else {
            // After an outage, earlier measurements say nothing about the servers.
            self.rival = None;
            let to = fastest(facts, (0..facts.len()).filter(answers))?;
            let first = self.chosen.is_none();
            return Some(self.switch(to, if first { Why::First } else { Why::Gone }));
        };
        let reason = |server: usize| reason_for(facts, server, chosen);
        let candidates = |why| (0..facts.len()).filter(move |&other| reason(other) == Some(why));
        // A server that is already being timed stays the rival, so that two similar servers do not restart each other's
        // time.
        let rival = self.rival.map(|rival| rival.server);
        let rival = rival
            .filter(|&server| reason(server).is_some())
            .or_else(|| fastest(facts, candidates(Why::Faster)))
            .or_else(|| candidates(Why::Before).next());
        let Some((server, why)) = rival.and_then(|server| Some((server, reason(server)?))) else {
            self.rival = None;
            return None;
        };
        let same = self.rival.filter(|rival| rival.server == server);
        let since = same.map_or(now, |rival| rival.since);
        let due = since
            + match why {
                Why::Before => BACK_FOR,
                Why::First | Why::Gone | Why::Faster => BETTER_FOR,
            };
        let due = self.hold_until.map_or(due, |until| due.max(until));
        if now < due {
            self.rival = Some(Rival { server, since, due });
            return None;
        }
        self.hold_until = Some(now + HOLD);
        Some(self.switch(server, why))
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
    // The bandwidth of one path alone permits no comparison.
    let counts = this.bandwidth.is_some() && that.bandwidth.is_some();
    let (this, that) = (this.cost(counts)?, that.cost(counts)?);
    if this * CLEARLY + CLEARLY_LEAST.as_secs_f64() < that {
        return Some(Why::Faster);
    }
    let about = this <= that * ABOUT + ABOUT_LEAST.as_secs_f64();
    (server < chosen && about).then_some(Why::Before)
}

/// Returns the server with the lowest round-trip time, and of several the first.
fn fastest(facts: &[Facts], servers: impl Iterator<Item = usize>) -> Option<usize> {
    servers.min_by_key(|&server| facts[server].rtt)
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
