//! `quictun bench netstack`: how fast the user-space stack serves ordinary programs, and applications that reach it through
//! calls.
//!
//! Everything happens in a network of its own: kernel sockets on one core, the stack on another, and for comparison the
//! kernel's own loopback in the same run ([`bulk`], and of thousands of flows [`crowd`]); or the stack in a process of its own, as in the published system
//! ([`calls`]).

mod action;
mod answering;
mod apart;
mod bulk;
mod calls;
mod crowd;
mod device;
mod duty;
mod flags;
mod in_thread;
mod load;
mod measure;
mod options;
mod results;

pub use action::Action;
pub(crate) use action::run;
pub use calls::{Mode, Polling, Setup, WireKind};
pub(crate) use flags::{PROGRAM, command, parse};
pub use options::Options;
