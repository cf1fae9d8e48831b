//! `quictun link`: commands and measurements across an emulated link.

mod artefact;
mod backend;
mod bulk;
mod calibrate;
mod cell;
mod check;
mod options;
mod prompt;
mod real;
mod report;
mod session;
mod table;

pub use artefact::run as artefact;
pub use backend::Backend;
pub use calibrate::run as calibrate;
pub use cell::{CheckCell, Load, ten};
pub use check::run as check;
pub use options::{
    CalibrationOptions, CheckOptions, DELAY_MAX, DURATIONS, NearCommand, SessionOptions,
};
pub use session::{PROGRAM, run as session};
