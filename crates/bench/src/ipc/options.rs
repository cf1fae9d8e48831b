//! What to measure of calls, and how.

use std::path::PathBuf;

use quictun_ipc::WaitPolicy;

use crate::kind::Kind;

/// What can be measured by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    /// The synchronous baselines.
    Baselines,
    /// Calls by how many are under way.
    Calls,
    /// Calls that make the server work.
    Load,
    /// Ways to wait.
    Modes,
    /// Calls that carry something.
    Payload,
    /// System calls in batches.
    Syscalls,
    /// Nothing at all.
    Idle,
}

impl Section {
    pub(crate) const ALL: [Self; 7] = [
        Self::Baselines,
        Self::Calls,
        Self::Load,
        Self::Modes,
        Self::Payload,
        Self::Syscalls,
        Self::Idle,
    ];

    /// In the words of the command line.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Baselines => "baselines",
            Self::Calls => "calls",
            Self::Load => "load",
            Self::Modes => "modes",
            Self::Payload => "payload",
            Self::Syscalls => "syscalls",
            Self::Idle => "idle",
        }
    }
}

/// How to measure and to show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// What to measure.
    pub sections: Vec<Section>,
    /// Calls under way at a time.
    pub concurrency: Vec<usize>,
    /// How both sides wait.
    pub policy: WaitPolicy,
    /// Runs of each, of which the median counts.
    pub repeats: usize,
    /// Time of each run.
    pub run_ms: u64,
    /// Seconds without anything to do.
    pub idle_s: u64,
    /// Print JSON.
    pub json: bool,
    /// Print CSV.
    pub csv: bool,
    /// Where to draw the figure.
    pub svg: Option<PathBuf>,
    /// Also on a machine that is busy.
    pub force: bool,
}

/// The server to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    pub(crate) kind: Kind,
    pub(crate) cpu: usize,
    pub(crate) policy: WaitPolicy,
}

impl Part {
    /// From the words of the command line.
    pub(crate) fn parse(words: &[&str]) -> Option<Self> {
        let [kind, cpu, policy] = *words else {
            return None;
        };
        Some(Self {
            kind: Kind::ALL.into_iter().find(|one| one.word() == kind)?,
            cpu: cpu.parse().ok()?,
            policy: policy_of(policy),
        })
    }
}

/// The policy that a word names; the default one for any other word.
pub(crate) fn policy_of(word: &str) -> WaitPolicy {
    let all = [WaitPolicy::Interrupt, WaitPolicy::Polling];
    all.into_iter()
        .find(|policy| policy.word() == word)
        .unwrap_or_default()
}
