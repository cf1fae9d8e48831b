//! Errors that prevent traffic from being routed into the tunnel.

use std::io;
use std::net::IpAddr;

use ipnet::IpNet;

/// The reason why traffic is not routed into the tunnel.
#[derive(Debug, thiserror::Error)]
pub enum DetourError {
    /// The server's name cannot be looked up. Its addresses must be known before there is a device.
    #[error(
        "the server {0:?} cannot be looked up: {1}; with --tun its addresses must be known before the device exists"
    )]
    Server(String, #[source] io::Error),
    /// A route would lead the tunnel's own packets into the tunnel.
    #[error("--route {0} is the server itself: remove it")]
    RouteToServer(IpNet),
    /// Another rule of the host takes precedence and leads packets to the server into the tunnel.
    #[error(
        "packets to the server {0} would go into the tunnel itself, because of another rule of this host (see `ip rule`)"
    )]
    Swallowed(IpAddr),
    /// A network is both included and excluded.
    #[error("{0} is both routed into the tunnel and excluded: keep one of the two")]
    Contradiction(IpNet),
    /// The user lacks the rights to change the host's network.
    #[error(
        "--tun changes the network of the whole host, which this user may not do: run it with sudo, or as a service with AmbientCapabilities=CAP_NET_ADMIN; `quictun run` needs no rights"
    )]
    Rights,
    /// Another client has the device, of which there is only one.
    #[error(
        "another client has the TUN device quictun0, and a host has only one: stop that client first"
    )]
    Busy,
    /// The device cannot be created or configured.
    #[error("cannot make the TUN device quictun0: {0}; does /dev/net/tun exist (`modprobe tun`)?")]
    Device(#[source] io::Error),
    /// The device existed, but is gone.
    #[error(
        "the TUN device quictun0 is gone ({0}): another program has deleted it; restart the client"
    )]
    Gone(#[source] io::Error),
    /// A route or rule cannot be added.
    #[error("{0}: {1}")]
    Route(String, #[source] io::Error),
    /// The packet filter cannot be installed.
    #[error(
        "cannot install the packet filter that stops traffic from bypassing the tunnel: {0}; load nf_tables, nft_ct and nft_fib_inet (`modprobe`), or use --fail-open to do without it"
    )]
    Filter(#[source] io::Error),
    /// The kernel would drop the server's packets, and the setting that prevents this cannot be changed.
    #[error(
        "the kernel would drop the server's packets: rp_filter is 1 for {device}, and net.ipv4.conf.all.src_valid_mark cannot be set: {cause}; as root, `sysctl -w net.ipv4.conf.all.src_valid_mark=1`"
    )]
    SourceCheck {
        /// The device at which the server's packets arrive.
        device: String,
        /// The reason why the setting cannot be changed.
        #[source]
        cause: io::Error,
    },
}
