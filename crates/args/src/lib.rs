//! Flags, environment and configuration files, read into the settings that the product runs with.
//!
//! A program reads its [`inputs`], layer by layer ([`layers`]: flag > environment > file > default). All of it is a
//! pure function of the inputs. [`compat`] is `quictun-client` and `quictun-server`, [`native`] is `quictun server`
//! and `quictun client`. Flags are defined once, as [`options`]; everything that shows them is made from there.

#![forbid(unsafe_code)]

pub mod address;
pub mod compat;
mod control;
pub mod fault;
pub mod file;
mod forward;
pub mod inputs;
pub mod layers;
pub mod manual;
pub mod native;
pub mod options;
mod state_dir;
pub mod terminal;
mod transport;
mod tun_flags;
pub mod values;
