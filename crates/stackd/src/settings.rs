//! A TUN device and what is led into it.

use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;

/// A TUN device whose connections are carried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TunSettings {
    /// Where it comes from.
    pub device: TunDevice,
    /// The name server that is asked for every question, through the tunnel; `None`: none is.
    pub dns: Option<IpAddr>,
    /// The network stack is in the client's own process. Otherwise a device of ours has one of its own for it.
    pub one_process: bool,
    /// A device of ours goes, and its routes, where it is not confirmed within this time.
    pub confirm: Option<Duration>,
    /// One command is behind the device, and it has ended when this drains: connections without an answer are refused.
    pub for_command: bool,
}

/// Where a TUN device comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TunDevice {
    /// This descriptor, which another process owns.
    Inherited(i32),
    /// The process that has it, and a network stack, is at the other end of this descriptor, a socket.
    Apart(i32),
    /// It is made, what is for some networks is led into it, and all of that ends with us.
    Own(Routes),
}

/// What a TUN device of ours gets to carry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Routes {
    /// These networks; empty: everything.
    pub include: Vec<IpNet>,
    /// But not these.
    pub exclude: Vec<IpNet>,
    /// Traffic leaves beside the tunnel when the device is gone.
    pub fail_open: bool,
}
