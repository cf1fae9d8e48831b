//! `quictun link`: commands and measurements across an emulated link.

mod artefact;
mod backend;
mod bulk;
mod calibrate;
mod cell;
mod check;
mod plan;
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
pub use plan::{Calibration, Checking, DELAY_MAX, DURATIONS, Near, Session};
pub use session::{PROGRAM, run as session};
