//! Connections of programs behind a TUN device: the device, its routes, and the TCP/IP stack that terminates the
//! connections.
//!
//! # Order of use
//!
//! [`detour::Detour`] creates a device and routes traffic into it. The stack runs either in this process
//! ([`own_stack`]) or in a separate process ([`netstackd::run`]). In the latter case, the tunnel uses the stack's flows
//! through [`netstackd::NetstackProcess`].
#![forbid(unsafe_code)]

pub mod detour;
pub mod frames;
pub mod netstackd;
pub mod own_stack;
pub mod settings;
pub mod stack_socket;
pub mod tun_device;
