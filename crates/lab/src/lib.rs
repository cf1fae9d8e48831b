//! What the lab measures, and what its measurements say: functions of text, numbers and seeds.
//!
//! ```text
//!  scenario (TOML) ─► Scenario ─► Schedule ─► whoever measures ─► Run (run.json) ─► Findings ─► Markdown, HTML, JSON
//!                       │ cases, arms             (lab-run)           raw data          tables, verdicts
//!                       └ published figures
//! ```
//!
//! # Order of use
//!
//! 1. [`Scenario::parse`] a text, or one of [`scenarios::ALL`]; what makes no sense is refused with its line.
//! 2. [`Schedule::new`] puts its cells in order: every block holds each arm once, in an order that the seed decides.
//! 3. Measure them, and keep what was found in a [`Run`], which [`Run::to_json`] and [`Run::from_json`] store.
//! 4. [`Findings::new`] has medians, intervals, comparisons and assertions; [`markdown`], [`html`] and
//!    [`Findings::to_json`] show them. Nothing in there comes from anywhere but the `Run`.
//!
//! Nothing here measures, waits, or touches a file.
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
pub use record::{Asked, Cell, LinkAccount, Process, Profile, Run, RunError, SCHEMA, WayAccount};
pub use report::{charts, html, markdown, text};
pub use scenario::{
    Amount, Arm, ArmKind, Background, Cable, Case, Emulated, Link, Load, LossUnit, Mode, Offload,
    Profiled, Refused, Scenario, Setup,
};
pub use schedule::{Planned, Schedule, Selection, SelectionError};

pub use writing::wrapped;

/// The Cargo profile that this program was built with: `release`, `dist`, `debug` or a user's own.
pub const BUILD_PROFILE: &str = env!("QUICTUN_PROFILE");
