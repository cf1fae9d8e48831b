//! Observation and control of a process: the HTTP interface, metrics, logs, and the service manager.
//!
//! # Order of use
//!
//! [`log::init`] comes first. Workers provide [`snapshot::RequestSender`]s, from which the process makes a
//! [`rest::RestState`]; [`rest::serve`] serves it on the control plane's runtime. [`flow_log`] writes the lines about
//! flows, within the limits of [`line_budget`]. [`systemd`] notifies the service manager when the process is ready.
#![forbid(unsafe_code)]

pub mod flow_log;
mod flow_uuids;
pub mod line_budget;
pub mod log;
mod metrics;
pub mod reload;
pub mod rest;
pub mod settings;
mod shown;
pub mod snapshot;
pub mod systemd;
pub mod terminal;
