//! How a process is observed and told what to do: the HTTP interface, metrics, logs, the service manager.
//!
//! # Order of use
//!
//! [`log::init`] comes first. Workers hand out [`snapshot::Ask`]s; a [`rest::RestState`] made of them is served by
//! [`rest::serve`] on the control plane's runtime. [`flow_log`] words the lines about flows, within the limits of
//! [`line_budget`]; [`systemd`] tells the service manager when the process is ready.
#![forbid(unsafe_code)]

pub mod flow_log;
mod flow_uuids;
pub mod line_budget;
pub mod log;
mod metrics;
pub mod reload;
pub mod rest;
pub mod settings;
pub mod snapshot;
pub mod systemd;
