//! Limits the log lines that peers cause. Each source has a budget, so that no source can fill the log or displace
//! other lines.
//!
//! A source is a named client or an address ([`Holder`]). It may cause `BURST` lines at once and one more every
//! `INTERVAL`. Further lines are left out and counted. The source's next line, or a line of its own, states the
//! count. The final line of a known client's flow does not count against the budget, because it is the audit trail.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tracing::warn;

use quictun_trust::shares::Holder;

/// Burst of a source: enough for a client that opens a connection per core and reconnects after a restart of the
/// server.
const BURST: u32 = 100;

/// Interval after which a source may cause another line. A line has about 250 bytes, so a source fills at most 20 MB a
/// day.
const INTERVAL: Duration = Duration::from_secs(1);

/// Number of sources with a budget of their own; all others share one. An entry has about 100 bytes.
const SOURCES: usize = 1024;

/// Interval at which the counts of omitted lines are logged.
pub const REPORT: Duration = Duration::from_secs(10);

/// Permission to write one line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinePermit {
    left_out: u64,
}

impl LinePermit {
    /// Returns the number of lines of the same source that were left out before this one, or `None` if there were none.
    pub fn left_out(self) -> Option<u64> {
        (self.left_out > 0).then_some(self.left_out)
    }
}

/// The budgets of all sources of a process. It is cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct LineBudget(Arc<Mutex<Budgets>>);

#[derive(Debug, Default)]
struct Budgets {
    sources: HashMap<Holder, SourceBudget>,
    rest: SourceBudget,
    /// The time at which silent sources were last removed from the full table.
    swept: Option<Instant>,
}

#[derive(Debug, Default)]
struct SourceBudget {
    /// The time at which the whole burst is available again, or `None` if it is available.
    full_at: Option<Instant>,
    left_out: u64,
}

impl LineBudget {
    /// Takes the permission to write one line. Returns `None` if the line must be left out, and counts it.
    pub fn take(&self, source: &Holder, now: Instant) -> Option<LinePermit> {
        let mut budgets = self.lock();
        let budget = budgets.of(source, now);
        if !budget.take(now) {
            budget.left_out += 1;
            return None;
        }
        let left_out = std::mem::take(&mut budget.left_out);
        Some(LinePermit { left_out })
    }

    /// Logs how many lines were left out since the last report.
    pub fn report(&self) {
        for (source, left_out) in self.left_out() {
            warn!(target: "quictun", source, left_out, "Log lines were left out: their source causes too many");
        }
    }

    fn left_out(&self) -> Vec<(String, u64)> {
        let mut budgets = self.lock();
        let Budgets { sources, rest, .. } = &mut *budgets;
        let of_sources = sources
            .iter_mut()
            .map(|(source, budget)| (source.to_string(), budget));
        let all = of_sources.chain([("others".to_owned(), rest)]);
        let mut counts: Vec<_> = all
            .map(|(source, budget)| (source, std::mem::take(&mut budget.left_out)))
            .filter(|&(_, left_out)| left_out > 0)
            .collect();
        counts.sort_unstable();
        counts
    }

    fn lock(&self) -> MutexGuard<'_, Budgets> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Budgets {
    fn of(&mut self, source: &Holder, now: Instant) -> &mut SourceBudget {
        if self.sources.len() >= SOURCES && !self.sources.contains_key(source) {
            if self.swept.is_none_or(|at| now >= at + INTERVAL) {
                self.sources.retain(|_, budget| !budget.is_unused(now));
                self.swept = Some(now);
            }
            if self.sources.len() >= SOURCES {
                return &mut self.rest;
            }
        }
        self.sources.entry(source.clone()).or_default()
    }
}

impl SourceBudget {
    fn take(&mut self, now: Instant) -> bool {
        let full_at = self.full_at.map_or(now, |at| at.max(now)) + INTERVAL;
        let allowed = full_at.saturating_duration_since(now) <= INTERVAL * BURST;
        if allowed {
            self.full_at = Some(full_at);
        }
        allowed
    }

    fn is_unused(&self, now: Instant) -> bool {
        self.left_out == 0 && self.full_at.is_none_or(|at| at <= now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(number: u32) -> Holder {
        Holder::at(std::net::Ipv4Addr::from_bits(0xc000_0000 + number).into())
    }

    fn taken(budget: &LineBudget, source: &Holder, now: Instant, wanted: usize) -> usize {
        (0..wanted)
            .filter(|_| budget.take(source, now).is_some())
            .count()
    }

    #[test]
    fn a_source_has_a_burst_and_then_a_line_each_second() {
        let (budget, now) = (LineBudget::default(), Instant::now());
        assert_eq!(taken(&budget, &source(1), now, 1000), 100);
        assert_eq!(taken(&budget, &source(1), now + INTERVAL / 2, 1000), 0);
        assert_eq!(taken(&budget, &source(1), now + INTERVAL, 1000), 1);
        assert_eq!(taken(&budget, &source(1), now + INTERVAL * 11, 1000), 10);
        assert_eq!(taken(&budget, &source(1), now + INTERVAL * 1000, 1000), 100);
    }

    #[test]
    fn one_source_costs_the_others_nothing() {
        let (budget, now) = (LineBudget::default(), Instant::now());
        taken(&budget, &source(1), now, 1_000_000);
        assert_eq!(taken(&budget, &source(2), now, 1000), 100);
        let named = Holder::Client("laptop".into());
        assert_eq!(taken(&budget, &named, now, 1000), 100);
    }

    #[test]
    fn left_out_lines_are_counted_once() {
        let (budget, now) = (LineBudget::default(), Instant::now());
        assert_eq!(budget.take(&source(1), now), Some(LinePermit::default()));
        taken(&budget, &source(1), now, 150);
        let later = now + INTERVAL;
        let next = budget
            .take(&source(1), later)
            .and_then(LinePermit::left_out);
        assert_eq!(next, Some(51));
        taken(&budget, &source(1), later, 3);
        assert_eq!(budget.left_out(), [("192.0.0.1".to_owned(), 3)]);
        assert_eq!(budget.left_out(), []);
    }

    #[test]
    fn sources_beyond_the_table_share_one_budget() {
        let (budget, now) = (LineBudget::default(), Instant::now());
        let crowd = 100_000;
        let lines: usize = (0..crowd)
            .map(|number| taken(&budget, &source(number), now, 1))
            .sum();
        assert_eq!(lines, SOURCES + 100);
        assert_eq!(budget.lock().sources.len(), SOURCES);
        let left_out = u64::from(crowd) - lines as u64;
        assert_eq!(budget.left_out(), [("others".to_owned(), left_out)]);
        // Sources that have been silent make room for new ones.
        assert_eq!(taken(&budget, &source(crowd), now + INTERVAL, 1000), 100);
    }
}
