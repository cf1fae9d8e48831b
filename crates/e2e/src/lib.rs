//! Faults, load and attacks for the programs of a tunnel. These are the libraries behind `quictun-faults`,
//! `quictun-scale` and `quictun-attack`; the end-to-end tests use them too.
//!
//! [`faults`] kills or stops a process in a known state and reports what applications saw. [`load`] puts many flows on
//! a tunnel and measures. [`attack`] is a hostile peer. All are built on the crate `quictun-testbed`.
#![forbid(unsafe_code)]

pub mod attack;
pub mod faults;
pub mod load;
