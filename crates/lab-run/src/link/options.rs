//! The settings of the subcommands of `quictun link`.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use quictun_emu::{EmulatorConfig, LossUnit, Offload};
use quictun_link::LinkConfig;

use super::backend::Backend;
use super::cell::{CheckCell, Load};

/// Allowed durations of a measurement.
pub const DURATIONS: RangeInclusive<Duration> = Duration::from_millis(200)..=Duration::from_mins(1);

/// Maximum delay of a calibration. TCP has to reach the rate well within the duration.
pub const DELAY_MAX: Duration = Duration::from_millis(100);

/// The coalescing period of measurements: like a network card with interrupt moderation.
pub(super) const COALESCE: Duration = Duration::from_micros(50);

/// The settings of a command behind a link.
#[derive(Clone, Debug)]
pub struct SessionOptions {
    /// The link from the near to the far side, and from the far to the near side.
    pub links: [LinkConfig; 2],
    /// The emulator of the link.
    pub backend: Backend,
    /// Seed of the random events on the link.
    pub seed: u64,
    /// Packets whose transmission times lie within this period are delivered together.
    pub coalesce: Duration,
    /// Maximum packet size, in bytes.
    pub mtu: u32,
    /// The component that segments streams into packets.
    pub offload: Offload,
    /// The command at the near side.
    pub near: NearCommand,
    /// Command line for the far side, which `sh -c` runs. `None` for no command.
    pub far: Option<String>,
    /// Time after which the session ends. `None` for no limit.
    pub time_limit: Option<Duration>,
    /// The file for the report. `None` for no report.
    pub json: Option<PathBuf>,
}

/// The command at the near side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NearCommand {
    /// The user's shell, with an interactive prompt.
    Shell(String),
    /// A program and its arguments.
    Command(Vec<String>),
    /// A command line that `sh -c` runs.
    Line(String),
}

/// The settings of a calibration.
#[derive(Clone, Debug)]
pub struct CalibrationOptions {
    /// The rates to try, in bytes per second.
    pub rates: Vec<u64>,
    /// The one-way delay of the link.
    pub delay: Duration,
    /// The measured time for each rate.
    pub duration: Duration,
    /// The file for the table as JSON. `None` for no file.
    pub json: Option<PathBuf>,
}

/// The settings of a comparison.
#[derive(Clone, Debug)]
pub struct CheckOptions {
    /// The links to compare.
    pub cells: Vec<CheckCell>,
    /// The kinds of traffic on each link.
    pub loads: Vec<Load>,
    /// The measured time of each run, without its warm-up.
    pub duration: Duration,
    /// Number of runs for each link and load, each with its own seed. Their median counts.
    pub runs: u32,
    /// The file for the table as JSON. `None` for no file.
    pub json: Option<PathBuf>,
}

impl SessionOptions {
    pub(super) fn emulation(&self) -> EmulatorConfig {
        let [up, down] = self.links.clone();
        EmulatorConfig {
            up,
            down,
            seed: self.seed,
            coalesce: self.coalesce,
            loss_unit: LossUnit::Segment,
        }
    }
}
