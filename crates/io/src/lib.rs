//! The parts of an epoll loop that carries QUIC: shared by the tunnel's workers and the traffic generators.
//!
//! # Order of use
//!
//! Bind the UDP socket with [`udp_port`], add it to a [`poller::Poller`], and wait; [`gather::Gather`] says how long
//! incoming packets may gather before the next look, [`spin::Spin`] how long polling pays before sleeping.
#![forbid(unsafe_code)]

pub mod crash;
pub mod gather;
pub mod poller;
pub mod spin;
pub mod stale_socket;
pub mod udp_port;
