//! What happened, as text.

use std::fmt;
use std::time::Duration;

use crate::seed::Seed;

/// How much a transcript keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Detail {
    /// Nothing.
    Nothing,
    /// What engines and applications say.
    #[default]
    Events,
    /// Every datagram as well.
    Datagrams,
}

/// A run in lines of time, host and event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transcript {
    lines: Vec<(Duration, String, String)>,
    detail: Detail,
}

impl Transcript {
    /// An empty transcript, with datagrams where the run is to leave its evidence.
    pub(crate) fn of(seed: &Seed) -> Self {
        let detail = seed.evidence().map(|_| Detail::Datagrams);
        Self {
            lines: Vec::new(),
            detail: detail.unwrap_or_default(),
        }
    }

    pub(crate) fn set_detail(&mut self, detail: Detail) {
        self.detail = detail;
    }

    pub(crate) fn keeps(&self, detail: Detail) -> bool {
        self.detail >= detail
    }

    pub(crate) fn note(&mut self, at: Duration, host: &str, what: String) {
        self.lines.push((at, host.to_owned(), what));
    }

    /// Number of lines.
    pub fn len(&self) -> usize {
        self.lines.len()
    }

    /// Whether nothing was noted.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// The last `count` lines.
    #[must_use]
    pub fn tail(&self, count: usize) -> Self {
        Self {
            lines: self.lines[self.lines.len().saturating_sub(count)..].to_vec(),
            detail: self.detail,
        }
    }
}

impl fmt::Display for Transcript {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, host, what) in &self.lines {
            writeln!(f, "{:>12.6} s  {host:<10} {what}", at.as_secs_f64())?;
        }
        Ok(())
    }
}
