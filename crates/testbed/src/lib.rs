//! What the end-to-end tests stand on: machines made of namespaces, programs that die with their test, and
//! applications that know every byte they should see.
//!
//! A test that needs a network of its own wraps its body in [`isolation::isolated`]; it then runs in a process
//! with its own network, mounts and process ids, where every port is free and every address may be taken.
//! [`machine::Machine`] adds further hosts to that world. [`tunnel`] starts the pair under test,
//! [`application`] the programs that it carries, [`original`] the peer that behaves like quic-tun,
//! [`foreign`] a client on another QUIC implementation, and [`leaks`] listens beside them.
//!
//! Nothing here waits for a fixed time: every wait is for an event, with a deadline ([`deadline`]).
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
pub mod original;
pub mod payload;
pub mod program;
pub mod rest;
pub mod transfer;
pub mod tunnel;
pub mod work;
