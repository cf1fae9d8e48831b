//! Programs behind a TUN device: the device, what is led into it, and the TCP/IP stack that ends their connections.
//!
//! # Order of use
//!
//! [`detour::Detour`] makes a device and leads traffic into it. The stack runs in the own process ([`own_stack`]) or in
//! one of its own ([`netstackd::run`]), whose flows the tunnel uses through `netstackd::remote`.
#![forbid(unsafe_code)]

pub mod detour;
pub mod frames;
pub mod netstackd;
pub mod own_stack;
pub mod settings;
pub mod stack_socket;
pub mod tun_device;
