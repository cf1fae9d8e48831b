//! Why a scenario is none.

use quictun_link::ConfigError;
use quictun_link::units::UnitError;

/// Most cells of one block: a scenario beyond that is a mistake, or several scenarios.
pub(crate) const MAX_CELLS: usize = 400;

/// Most repetitions.
pub(crate) const MAX_REPS: u32 = 1000;

/// A scenario that makes no sense, and where.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("line {line}: {why}")]
pub struct Refused {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong there.
    #[source]
    pub why: Why,
}

/// What is wrong, and what to write.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Why {
    /// It is not TOML, or has keys that there are not.
    #[error("{0}")]
    Syntax(Box<str>),
    /// A value with a unit.
    #[error("{0}")]
    Unit(#[from] UnitError),
    /// No link is like that.
    #[error("{0}")]
    Link(#[from] ConfigError),
    /// A reference to nothing.
    #[error("there is no {what} {name:?}; there are {known}")]
    Unknown {
        /// What was referred to.
        what: &'static str,
        /// How.
        name: String,
        /// What there is.
        known: String,
    },
    /// Two of one name.
    #[error("there are two called {0:?}: give each a name of its own")]
    Twice(String),
    /// Names end up in file names.
    #[error("{0:?} is no name: write it in small letters, digits and '-'")]
    NotAName(String),
    /// Nothing to measure.
    #[error("there is nothing to measure: add an [[arm]]")]
    Empty,
    /// Too much to measure.
    #[error(
        "{0} cells in each block are more than {MAX_CELLS}: measure fewer cases, or make two scenarios of it"
    )]
    TooManyCells(usize),
    /// No sensible number of repetitions.
    #[error("{0} repetitions: from 1 to {MAX_REPS} are possible")]
    Reps(u32),
    /// A command arm without commands, or another with.
    #[error("kind = \"command\", and no other kind, takes client_command and server_command")]
    Commands,
    /// An assertion that nothing can break.
    #[error("nothing could break this assertion: give it at_least or at_most")]
    NoLimit,
    /// An allowance where there is nothing to allow for.
    #[error(
        "allow = \"headers\" goes with at_least, an arm of kind tunnel or quic over one of kind tcp or iperf3, both on \
         an emulated link: take it out"
    )]
    Allowance,
    /// Only an emulated link has limits.
    #[error(
        "only medium = \"link\" has rate, delay, loss, queue or outage: take them out, or the medium"
    )]
    NoLink,
    /// More than another emulator is told.
    #[error(
        "an emulator by command needs a rate, and is told rate, delay, loss, queue and mtu alone: take out what is beyond"
    )]
    Emulator,
    /// An MTU that no cable has.
    #[error("an MTU of {0} bytes: from 1280 to 65535 are possible")]
    Mtu(u32),
    /// Something of the workload is missing.
    #[error("a workload with mode = {mode:?} needs {what}")]
    Incomplete {
        /// The mode.
        mode: &'static str,
        /// What it lacks.
        what: &'static str,
    },
    /// Something of the workload is beyond its limits.
    #[error("{what} = {value}: from {least} to {most} are possible")]
    Beyond {
        /// Which key.
        what: &'static str,
        /// What it says.
        value: u64,
        /// Least.
        least: u64,
        /// Most.
        most: u64,
    },
    /// A background of nothing that takes a known time.
    #[error("background goes with mode = \"rr\" or \"crr\" and a duration")]
    Background,
    /// A time that is too long to be meant.
    #[error("{what} is longer than {most_s} s")]
    TooLong {
        /// Which key.
        what: &'static str,
        /// Longest, seconds.
        most_s: u64,
    },
}

impl Refused {
    pub(super) fn new(text: &str, offset: usize, why: Why) -> Self {
        Self {
            line: line(text, offset),
            why,
        }
    }

    pub(super) fn syntax(text: &str, error: &toml::de::Error) -> Self {
        let offset = error.span().map_or(0, |span| span.start);
        Self::new(text, offset, Why::Syntax(error.message().into()))
    }
}

/// The line of a text that a place is in, from 1.
pub(super) fn line(text: &str, offset: usize) -> usize {
    let before = text.get(..offset).unwrap_or(text);
    before.matches('\n').count() + 1
}
