//! The tunnel in virtual time: real engines, simulated links and applications.
//!
//! Repeat one seed of the random runs with
//! `QUICTUN_SEED=<seed> cargo test -p quictun-sim --test it <test>`.

mod close_table;
mod codes;
mod cross_traffic;
mod determinism;
mod faults;
mod flood;
mod hostile;
mod open;
mod oracle;
mod original;
mod reconnect;
mod reopen;
mod reports;
mod throughput;
mod world;
