//! Shows what applications see when a process of the tunnel ends or stops while one connection is in a known state.
//!
//! A [`cell::FaultCell`] names a process, its fault, the phase of the connection, and the kind of sockets. [`run::run`]
//! starts a new tunnel for the cell, lets the two applications follow a [`script::Script`] until the fault, and reports
//! what each of them saw. [`matrix::Matrix`] collects many cells and judges them; `quictun-faults` prints it.

pub mod cell;
pub mod disk;
pub mod matrix;
pub mod observation;
pub mod oom;
pub mod run;
pub mod script;
pub mod storm;
pub mod stress;
mod stress_tunnel;
mod target_listener;
pub mod traffic;
mod tunnel;
