//! The device in front of the stack, in the network of a measurement.

use std::net::IpAddr;

use quictun_sys::{Network, Tun, set_sysctl};

/// The device's name. The network has no other users.
const NAME: &str = "bench0";
/// Maximum packets that wait for the stack. With the kernel's 500, bursts of several flows would be dropped.
const QUEUE: u32 = 10_000;

/// Creates a device with addresses of both families. Its packets go to the stack.
pub(crate) fn create(offload: bool) -> std::io::Result<Tun> {
    let tun = Tun::create(NAME, offload)?;
    let mut network = Network::open()?;
    network.set_queue_length(NAME, QUEUE)?;
    network.add_address(NAME, IpAddr::from([10, 77, 0, 2]), 24)?;
    network.add_address(NAME, "fd77::2".parse().map_err(std::io::Error::other)?, 64)?;
    network.set_up(NAME)?;
    set_sysctl("net/ipv4/tcp_no_metrics_save", "1")?;
    Ok(tun)
}
