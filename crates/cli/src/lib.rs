//! The programs: they parse, configure, call, and return an exit code.
//!
//! `compat` runs `quictun-client` and `quictun-server`; `native` runs `quictun`. `quictun-args` reads their arguments,
//! environment and files. They end with a code from `exit`.

#![forbid(unsafe_code)]

/// The system's allocator returns memory to the kernel and requests it again, with a system call for every few receive
/// buffers of 64 KiB. mimalloc keeps memory that is in constant use.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

mod ask;
mod client;
mod compat;
mod confirm;
mod connect;
pub mod demo;
mod doctor;
mod drain;
mod exit;
mod forbidden;
mod host_tun;
mod invite;
mod join;
pub mod lab;
pub mod link;
pub mod names;
pub mod native;
mod netstackd;
mod pair;
pub mod perf;
mod privilege;
mod reconnect;
mod reload_running;
mod status;
mod supervisor;
mod tune;
mod version;
mod which_process;
mod wrapped;
