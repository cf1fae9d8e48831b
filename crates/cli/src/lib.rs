//! The programs: parse, configure, call, exit code.
//!
//! A program reads its [`inputs`], layer by layer ([`layers`]: flag > environment > file > default), into the
//! settings that `quictun-tunnel` runs with, and ends with an [`exit`] code. Everything up to the settings is a
//! pure function of the inputs. [`compat`] is `quictun-client` and `quictun-server`, [`native`] is `quictun`.
//! Flags are defined once, as [`options`]; everything that shows them is made from there.

#![forbid(unsafe_code)]

/// The system's allocator gives memory back and takes it again with a system call for every few receive
/// buffers of 64 KiB; this one keeps what is in constant use.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

pub mod address;
mod ask;
pub mod compat;
mod confirm;
pub mod control;
pub mod demo;
pub mod doctor;
pub mod exit;
pub mod forbidden;
mod host_tun;
pub mod inputs;
pub mod lab;
pub mod layers;
pub mod link;
pub mod manual;
pub mod names;
pub mod native;
pub mod netstackd;
pub mod options;
mod pair;
pub mod perf;
mod privilege;
pub mod run;
pub mod state_dir;
pub mod status;
pub mod transport;
mod tun_flags;
pub mod tune;
pub mod units;
pub mod wrapped;
