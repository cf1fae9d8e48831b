//! The parts of an epoll loop that carries QUIC, shared by the tunnel's workers and the traffic generators.
//!
//! # Order of use
//!
//! Bind the UDP socket with [`udp_port`], join it to an engine as an [`EnginePort`], and add it to a
//! [`poller::Poller`]. Then wait as the port asks: it lets packets gather if many arrive one by one, and polls
//! ([`spin::Spin`]) if that saves wake-ups.
#![forbid(unsafe_code)]

pub mod crash;
mod engine_port;
mod gather;
pub mod poller;
pub mod socket_path;
pub mod spin;
pub mod udp_port;

pub use engine_port::EnginePort;
