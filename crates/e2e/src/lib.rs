//! Faults, load and attacks for the programs of a tunnel: the libraries behind `quictun-faults`, `quictun-scale` and
//! `quictun-attack`, which the end-to-end tests use too.
//!
//! [`faults`] kills or stops a process in a known state and tells what applications saw; [`load`] holds many connections
//! and measures; [`attack`] is a hostile peer. The ground under them is the crate `quictun-testbed`.
#![forbid(unsafe_code)]

pub mod attack;
pub mod faults;
pub mod load;
