//! Load on a client and server of this workspace, with limits. `quictun-scale` runs these loads, and the tests run
//! smaller ones.
//!
//! Each load starts its own server, client and application ([`tunnel::LoadTunnel`]), measures, and returns a
//! [`report::LoadReport`] whose rows may have limits.

mod bystander;
pub mod carriers;
pub mod churn;
pub mod cost;
pub mod cut;
pub mod datagrams;
pub mod https;
pub mod idle;
pub mod kinds;
pub mod machines;
pub mod measured;
pub mod pairs;
mod processors;
pub mod proxy;
pub mod relay;
pub mod report;
pub mod rr;
pub mod socks;
pub mod stalled;
pub mod tunnel;
pub mod verify;
