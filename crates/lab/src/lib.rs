//! The lab's scenarios, statistics and reports, as functions of text, numbers and seeds.
//!
//! ```text
//!  scenario (TOML) ─► Scenario ─► Schedule ─► measurements ─► Run (run.json) ─► Findings ─► Markdown, HTML, JSON
//!                       │ cases, arms          (lab-run)        raw data          tables, verdicts
//!                       └ published figures
//! ```
//!
//! A *case* is one condition, for example a loss rate. An *arm* is one of the systems under comparison. A *cell* is one
//! measurement of an arm under a case. A *block* is one repetition of all cells.
//!
//! # Order of use
//!
//! 1. [`Scenario::parse`] reads a text, or one of [`scenarios::ALL`]. It refuses an invalid scenario with the number of
//!    the line.
//! 2. [`Schedule::new`] puts the cells in order: every block holds each arm of each case once, in an order that the
//!    seed decides.
//! 3. The caller measures the cells and keeps the results in a [`Run`], which [`Run::to_json`] and [`Run::from_json`]
//!    store and load.
//! 4. [`Findings::new`] computes medians, intervals, comparisons and assertions. [`markdown`], [`html`] and
//!    [`Findings::to_json`] present them. All of them depend on the `Run` alone.
//!
//! This crate does not measure, wait, or touch files.
#![forbid(unsafe_code)]

pub mod chart;
mod comparison;
mod estimate;
mod findings;
mod judgement;
mod metric;
mod record;
mod report;
mod scenario;
pub mod scenarios;
mod schedule;
pub mod stats;
mod writing;

pub use comparison::Comparison;
pub use findings::Findings;
pub use judgement::{Judgement, judge, late_limit};
pub use metric::Metric;
pub use record::{
    Cell, DirectionAccount, LinkAccount, Process, Profile, RecordedOptions, Run, RunError, SCHEMA,
};
pub use report::{charts, html, markdown, text};
pub use scenario::{
    Amount, Arm, ArmKind, Background, Cable, Case, EmulatedLink, Link, Load, LossUnit, Mode,
    Offload, ProfileSelection, RepsError, Scenario, ScenarioError, Setup,
};
pub use schedule::{PlannedCell, Schedule, Selection, SelectionError};

pub use writing::wrapped;

/// The Cargo profile that this program was built with: `release`, `dist`, `debug` or one that the user defined.
pub const BUILD_PROFILE: &str = env!("QUICTUN_PROFILE");
