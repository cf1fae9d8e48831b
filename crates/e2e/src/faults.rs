//! What applications see when a process of the tunnel ends or stands still, with one connection in a known state.
//!
//! A [`cell::Cell`] names a process, what happens to it, what the connection was doing, and its kind of sockets.
//! [`run::run`] starts a tunnel of its own for it, has the two applications follow a [`script::Script`] up to the
//! moment of the fault, and tells what each of them saw. [`matrix::Matrix`] puts many of these together, judges them, and
//! is what `quictun-faults` prints.

pub mod cell;
mod door;
pub mod matrix;
pub mod oom;
pub mod run;
pub mod script;
pub mod seen;
mod site;
