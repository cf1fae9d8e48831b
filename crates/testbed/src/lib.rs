//! Support for the end-to-end tests: machines made of namespaces, programs that die with their test, and applications
//! that verify every byte.
//!
//! A test that needs its own network wraps its body in [`isolation::isolated`]. It then runs in a process with its own
//! network, mounts and process ids, in which every port is free and every address may be used. [`machine::Machine`]
//! adds further hosts. [`tunnel`] starts the client and server under test, and [`application`] the programs whose bytes
//! they carry; [`openssh`] and [`postgresql`] are programs that people use. [`original`] starts the peer that behaves like quic-tun, [`foreign`] a client that uses another QUIC
//! implementation, and [`leaks`] detects packets that bypass a tunnel.
//!
//! No function here sleeps for a fixed time: every wait is for an event, with a deadline ([`deadline`]).
#![forbid(unsafe_code)]

pub mod application;
pub mod binaries;
pub mod connection;
pub mod deadline;
pub mod environment;
pub mod foreign;
pub mod isolation;
pub mod leaks;
pub mod machine;
pub mod openssh;
pub mod original;
pub mod payload;
pub mod postgresql;
pub mod program;
pub mod rest;
mod standstill;
pub mod transfer;
pub mod tunnel;
pub mod work;
