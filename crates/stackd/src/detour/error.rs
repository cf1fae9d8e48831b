//! What keeps traffic from being led into the tunnel.

use std::io;
use std::net::IpAddr;

use ipnet::IpNet;

/// Why traffic is not led into the tunnel.
#[derive(Debug, thiserror::Error)]
pub enum DetourError {
    /// The server's addresses have to be known first.
    #[error(
        "the server {0:?} cannot be looked up: {1}; with --tun its addresses have to be known before the device is there"
    )]
    Server(String, #[source] io::Error),
    /// The tunnel would be led through itself.
    #[error("--route {0} is the server itself: take it away")]
    RouteToServer(IpNet),
    /// Another rule precedes ours.
    #[error(
        "packets to the server {0} would go through the tunnel itself: another rule of this host decides that (ip rule)"
    )]
    Swallowed(IpAddr),
    /// Both at once.
    #[error("{0} is to be led into the tunnel and excluded: keep one of the two")]
    Contradiction(IpNet),
    /// Only an administrator may do this.
    #[error(
        "--tun changes the network of the whole host, which this user may not do: run it with sudo, or as a service with AmbientCapabilities=CAP_NET_ADMIN; `quictun run` needs no rights"
    )]
    Rights,
    /// There is one device of that name.
    #[error(
        "another client has the TUN device quictun0: there is one for each host; end that client first"
    )]
    Busy,
    /// No device.
    #[error("making the TUN device quictun0: {0}; is there /dev/net/tun (modprobe tun)?")]
    Device(#[source] io::Error),
    /// It was there.
    #[error(
        "the TUN device quictun0 is gone ({0}): another program has deleted it; start this again"
    )]
    Gone(#[source] io::Error),
    /// No routes.
    #[error("{0}: {1}")]
    Route(String, #[source] io::Error),
    /// No packet filter.
    #[error(
        "the packet filter that keeps traffic from leaving beside the tunnel: {0}; it takes nf_tables with nft_ct and nft_fib_inet (modprobe), or give --fail-open to do without"
    )]
    Filter(#[source] io::Error),
}
