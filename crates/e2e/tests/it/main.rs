//! End-to-end tests: the shipped programs, real applications, real sockets, namespaces.
//!
//! `cargo test --workspace` runs them; `.ci/run` first installs the programs they need.

mod apart;
mod applications;
mod attack;
mod attack_limits;
mod bad_input;
mod bench;
mod closes;
mod confined;
mod deaths;
mod detour;
mod doctor;
mod documents;
mod endings;
mod enrol;
mod faults;
mod first_minutes;
mod foreign;
mod foreign_limits;
mod greedy;
mod identities;
mod interop;
mod iperf3;
mod lab;
mod lab_remote;
mod leaks;
mod limits;
mod link;
mod logs;
mod metrics;
mod native;
mod outage;
mod perf;
mod published;
mod reach;
mod records;
mod reload;
mod rest;
mod scale;
mod service;
mod status;
mod tutorial;
mod units;
mod wrapped;
mod wrapped_programs;
