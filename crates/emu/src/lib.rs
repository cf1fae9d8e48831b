//! Emulates a link in real time: frames between two network devices get the fate that `link` decides.
//!
//! ```text
//!  near device ─► PacketSocket ─► Frame ─► Schedule (Link, by segment) ─► segments ─► PacketSocket ─► far device
//!             ◄─────────────────── the same the other way, on a thread of its own ◄───────────────
//! ```
//!
//! Linux passes TCP and UDP segments around in super-packets of up to 64 kB and more. A link that loses or delays
//! super-packets as if they were packets favours the sender that makes larger ones. So each super-packet is cut by
//! arithmetic into the segments that a wire would carry, and each segment gets its own fate. Adjacent surviving
//! segments leave together if they arrive within a window, as a network card would deliver them.
//!
//! # Order of use
//!
//! 1. Open a [`PacketSocket`](quictun_sys::PacketSocket) on either end, in a namespace whose own stack is silent.
//! 2. Call [`emulate`] with an [`EmulatorConfig`]. It blocks until [`Stop::stop`], and returns an [`Audit`] that says
//!    whether the run is valid.
//!
//! A [`World`] creates the networks for it, and [`RunningEmulator`] runs an emulator in one.
//! `quictun_sys::CommandRunner` runs commands on its two sides. [`KernelLink`] uses the kernel's own emulation in place
//! of an emulator.
#![forbid(unsafe_code)]

mod audit;
mod clocks;
mod counts;
mod emulator;
mod frame;
mod frame_reader;
mod interval;
mod kernel;
mod relay;
mod running;
mod schedule;
mod segments;
mod stop;
mod summary;
mod world;

#[doc(hidden)]
#[cfg(any(test, feature = "check"))]
pub mod check;

pub use audit::{Audit, BUSY, DirectionAudit, LATE, Limit, Verdict};
pub use counts::{TrafficCounts, Unintended};
pub use emulator::{EmulatorConfig, LossUnit, emulate};
pub use kernel::{KernelAudit, KernelError, KernelLink};
pub use running::RunningEmulator;
pub use stop::Stop;
pub use summary::AuditSummary;
pub use world::{
    DEVICE, FarSide, Interconnect, Offload, ROUTER_FAR, ROUTER_NEAR, World, WorldError,
    WorldOptions,
};
