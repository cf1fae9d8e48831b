//! Parses flags, environment and configuration files into settings.
//!
//! A program reads its [`inputs`] layer by layer ([`layers`]: flag > environment > file > default). Parsing is a pure
//! function of the inputs. [`compat`] defines `quictun-client` and `quictun-server`; [`native`] defines `quictun
//! server` and `quictun client`. Each flag is defined once, in [`mod@options`]; help, manual pages and completion
//! derive from this definition.

#![forbid(unsafe_code)]

pub mod address;
pub mod compat;
pub mod completion;
mod control;
pub mod fault;
pub mod file;
mod forward;
pub mod inputs;
pub mod layers;
pub mod manual;
pub mod native;
pub mod options;
mod outbound_proxy;
pub mod programs;
pub mod state_dir;
pub mod terminal;
mod transport;
mod tun_flags;
pub mod values;
mod variables;
