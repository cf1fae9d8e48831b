//! Settings of a TUN device and of the traffic that is routed into it.

use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;

/// A TUN device whose connections are carried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TunSettings {
    /// The origin of the device.
    pub device: TunDevice,
    /// The name server that answers all queries, reached through the tunnel. With `None`, queries are
    /// datagrams as all others.
    pub dns: Option<IpAddr>,
    /// True if the network stack runs in the client's process. Otherwise, a device that this program creates gets a
    /// separate process for its stack.
    pub one_process: bool,
    /// Time within which the user must confirm a device that this program creates. Without confirmation, the device and
    /// its routes are removed.
    pub confirm: Option<Duration>,
    /// True if the device serves a single command, which has ended when the client drains. Unanswered connections are
    /// then refused.
    pub for_command: bool,
}

/// The origin of a TUN device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TunDevice {
    /// A device that another process owns, inherited as this descriptor.
    Inherited(i32),
    /// A device in a separate process that also has the network stack. The descriptor is a socket to that process.
    Apart(i32),
    /// A device that this program creates and routes traffic into, and removes when it ends.
    Own(Routes),
}

/// The networks that are routed into a device that this program creates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Routes {
    /// Networks to route into the device. If empty, all networks.
    pub include: Vec<IpNet>,
    /// Networks whose traffic stays outside the tunnel.
    pub exclude: Vec<IpNet>,
    /// True if traffic may bypass the tunnel when the device is gone.
    pub fail_open: bool,
}
