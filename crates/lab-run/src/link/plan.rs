//! Links, and what is to be done with them.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use quictun_emu::{LossUnit, Offload, Plan};
use quictun_link::LinkConfig;

use super::backend::Backend;
use super::cell::{CheckCell, Load};

/// How long a measurement may take.
pub const DURATIONS: RangeInclusive<Duration> = Duration::from_millis(200)..=Duration::from_mins(1);

/// Longest delay of a calibration: TCP has to reach the rate well within the duration.
pub const DELAY_MAX: Duration = Duration::from_millis(100);

/// Coalescing of measurements: as a network card with its interrupt moderation.
pub(super) const COALESCE: Duration = Duration::from_micros(50);

/// A command behind a link.
#[derive(Clone, Debug)]
pub struct Session {
    /// From near to far, and back.
    pub ways: [LinkConfig; 2],
    /// Who emulates it.
    pub backend: Backend,
    /// Decides what is lost.
    pub seed: u64,
    /// Wire time within which packets are delivered together.
    pub coalesce: Duration,
    /// Longest packet.
    pub mtu: u32,
    /// Who cuts streams into packets.
    pub offload: Offload,
    /// What runs at the near side.
    pub near: Near,
    /// What runs at the far side, if anything, for `sh -c`.
    pub far: Option<String>,
    /// When everything ends at the latest.
    pub time_limit: Option<Duration>,
    /// Where to write the report.
    pub json: Option<PathBuf>,
}

/// What runs at the near side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Near {
    /// The user's shell.
    Shell(String),
    /// A program and its arguments.
    Command(Vec<String>),
    /// A line for `sh -c`.
    Line(String),
}

/// What to try.
#[derive(Clone, Debug)]
pub struct Calibration {
    /// Bytes per second.
    pub rates: Vec<u64>,
    /// One way.
    pub delay: Duration,
    /// For each rate.
    pub duration: Duration,
    /// Where to write the table.
    pub json: Option<PathBuf>,
}

/// What to compare.
#[derive(Clone, Debug)]
pub struct Checking {
    /// The links.
    pub cells: Vec<CheckCell>,
    /// What crosses each.
    pub loads: Vec<Load>,
    /// What counts of each run.
    pub duration: Duration,
    /// Runs of each, of which the median counts; each has a seed of its own.
    pub runs: u32,
    /// Where to write the table.
    pub json: Option<PathBuf>,
}

impl Session {
    pub(super) fn emulation(&self) -> Plan {
        let [up, down] = self.ways.clone();
        Plan {
            up,
            down,
            seed: self.seed,
            coalesce: self.coalesce,
            loss_unit: LossUnit::Segment,
        }
    }
}
