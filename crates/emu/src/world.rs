//! The networks around an emulated link: a near one, a far one, and a router in between.
//!
//! ```text
//!    near namespace          router namespace           far namespace, or the host's
//!    ┌───────────┐        ┌───────────────────┐        ┌───────────┐
//!    │ link0 ────┼── veth ┼── near     far ───┼── veth ┼── link0   │   (quictunN on the host)
//!    └───────────┘        │    └─ emulator ┘  │        └───────────┘
//!     100.127.N.2         └───────────────────┘         100.127.N.1
//!     fd71:7569:6374:N::2   no addresses                fd71:7569:6374:N::1
//! ```
//!
//! The IPv4 addresses are in the last part of the range for carriers' own use (RFC 6598), which a test machine is
//! unlikely to use. The IPv6 addresses are unique local ones (RFC 4193). Both ends know each other's hardware address,
//! so no address resolution crosses the link: only the applications' packets cross it. The networks have no name
//! outside the process; a [`World`] ends with its last process.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use quictun_sys::{CableEnd, Ethtool, IpVersion, NetNamespace, Network, set_sysctl};

#[cfg(test)]
pub(crate) mod tests;

/// The router's device on the cable to the near side.
pub const ROUTER_NEAR: &str = "near";

/// The router's device on the cable to the far side.
pub const ROUTER_FAR: &str = "far";

/// The device at the link in a network namespace of its own.
pub const DEVICE: &str = "link0";

/// Bytes of the option that carries the length of an IPv6 packet beyond 64 KiB.
const JUMBO_OPTION: u32 = 8;

const MTU_MAX: u32 = 65_535;

/// The properties of a world.
#[derive(Clone, Copy, Debug)]
pub struct WorldOptions {
    /// Location of the far side.
    pub far: FarSide,
    /// Offloads of the network devices on both sides.
    pub offload: Offload,
    /// Longest packet in bytes, with its IP header.
    pub mtu: u32,
    /// Largest piece of a stream that the kernel may move as one, in bytes; above 65536 this is BIG TCP. `None` keeps
    /// the kernel's default.
    pub segment_limit: Option<u32>,
    /// Connection between the two sides.
    pub between: Interconnect,
}

/// The connection between the two sides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Interconnect {
    /// The router's two devices, not joined: an emulator carries the packets.
    #[default]
    Emulator,
    /// One cable from side to side, without a router.
    Cable,
    /// The router, whose kernel forwards packets as between any two networks.
    Router,
    /// No connection: the caller joins the two networks and assigns their addresses.
    Nothing,
}

/// The location of the far side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FarSide {
    /// The network of the calling thread. Needs root rights on the system.
    Here,
    /// A network namespace of its own.
    Own,
}

/// The offloads of the network devices on both sides. Loss, queue and rate always act on packets of the wire; the
/// setting only decides which kernel or device cuts a stream into packets, and which merges them again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Offload {
    /// The devices act as good network cards do: pieces of up to 64 KiB go to the emulator whole, and their surviving
    /// parts arrive unsplit.
    #[default]
    Full,
    /// The sender's kernel cuts the stream; the receiver's kernel merges the packets (GRO).
    Receive,
    /// The sender's kernel cuts the stream and no packets are merged: every packet is handled alone.
    None,
}

impl Default for WorldOptions {
    fn default() -> Self {
        Self {
            far: FarSide::Own,
            offload: Offload::default(),
            mtu: 1500,
            segment_limit: None,
            between: Interconnect::default(),
        }
    }
}

/// The reason for which a world could not be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorldError {
    /// The system refused a step. The text names the step.
    #[error("{0}: {1}")]
    Step(&'static str, #[source] io::Error),
    /// Every range of addresses is in use on the host.
    #[error("all 256 networks 100.127.0.0/24 to 100.127.255.0/24 are in use on this machine")]
    Crowded,
}

/// Networks joined by cables; see the module's documentation.
#[derive(Debug)]
pub struct World {
    near: NetNamespace,
    router: NetNamespace,
    far: NetNamespace,
    number: u8,
}

impl World {
    /// Creates networks and cables. With [`Interconnect::Emulator`], no packet passes before an emulator runs in the
    /// router. If it fails, all networks and cables created so far are removed.
    pub fn build(plan: &WorldOptions) -> Result<Self, WorldError> {
        let make = || NetNamespace::new();
        let near = make().map_err(step("cannot create the near network"))?;
        let router = make().map_err(step("cannot create the router's network"))?;
        let far = match plan.far {
            FarSide::Here => NetNamespace::current(),
            FarSide::Own => make(),
        };
        let far = far.map_err(step("cannot open the far network"))?;
        // Configure the router before it has devices, because devices inherit these settings when they are created.
        router
            .within(|| match plan.between {
                Interconnect::Router => forward(),
                Interconnect::Emulator | Interconnect::Cable | Interconnect::Nothing => {
                    silence();
                    Ok(())
                }
            })
            .map_err(step("cannot set up the router's network"))?;
        near.within(quiet)
            .map_err(step("cannot set up the near network"))?;
        if plan.far == FarSide::Own {
            far.within(quiet)
                .map_err(step("cannot set up the far network"))?;
        }
        let other_end = match plan.between {
            Interconnect::Nothing => {
                let number = 0;
                return Ok(Self {
                    near,
                    router,
                    far,
                    number,
                });
            }
            Interconnect::Cable => (&near, DEVICE, NEAR),
            Interconnect::Emulator | Interconnect::Router => (&router, ROUTER_FAR, ROUTER_AT_FAR),
        };
        let number = connect_far(plan, &far, other_end)?;
        let world = Self {
            near,
            router,
            far,
            number,
        };
        if plan.between != Interconnect::Cable {
            world.connect_near()?;
        }
        world.configure(plan)?;
        Ok(world)
    }

    /// Returns the network of the applications in front of the link.
    pub fn near(&self) -> &NetNamespace {
        &self.near
    }

    /// Returns the network of the devices [`ROUTER_NEAR`] and [`ROUTER_FAR`].
    pub fn router(&self) -> &NetNamespace {
        &self.router
    }

    /// Returns the network of the applications behind the link.
    pub fn far(&self) -> &NetNamespace {
        &self.far
    }

    /// Returns the near side's addresses, IPv4 and IPv6.
    pub fn near_addresses(&self) -> [IpAddr; 2] {
        addresses(self.number, 2)
    }

    /// Returns the far side's addresses, IPv4 and IPv6.
    pub fn far_addresses(&self) -> [IpAddr; 2] {
        addresses(self.number, 1)
    }

    fn connect_near(&self) -> Result<(), WorldError> {
        let router = end(ROUTER_NEAR, self.number, ROUTER_AT_NEAR);
        let near = end(DEVICE, self.number, NEAR);
        self.router
            .within(|| Network::open()?.add_cable(router, near, &self.near))
            .map_err(step("cannot connect the near network"))
    }

    fn configure(&self, plan: &WorldOptions) -> Result<(), WorldError> {
        if plan.between != Interconnect::Cable {
            self.router
                .within(|| self.configure_router(plan))
                .map_err(step("cannot set up the router"))?;
        }
        let (near, far) = (self.near_addresses(), self.far_addresses());
        let number = self.number;
        // A forwarding router receives the packets under its own hardware addresses.
        let [of_far, of_near] = match plan.between {
            Interconnect::Emulator | Interconnect::Cable | Interconnect::Nothing => [FAR, NEAR],
            Interconnect::Router => [ROUTER_AT_NEAR, ROUTER_AT_FAR],
        }
        .map(|which| mac(number, which));
        // Set up the near side last: the device that comes up last can send at once, its other end a little later.
        self.far
            .within(|| match plan.far {
                FarSide::Here => settle(&host_device(number), plan, far, near, of_near),
                FarSide::Own => {
                    settle(DEVICE, plan, far, near, of_near)?;
                    default_routes(near)
                }
            })
            .map_err(step("cannot set up the far network"))?;
        self.near
            .within(|| {
                settle(DEVICE, plan, near, far, of_far)?;
                default_routes(far)
            })
            .map_err(step("cannot set up the near network"))
    }

    fn configure_router(&self, plan: &WorldOptions) -> io::Result<()> {
        let mut network = Network::open()?;
        let sides = [
            (ROUTER_NEAR, self.near_addresses(), NEAR),
            (ROUTER_FAR, self.far_addresses(), FAR),
        ];
        let roomy = WorldOptions {
            mtu: router_mtu(plan),
            ..*plan
        };
        for (device, addresses, which) in sides {
            prepare(&mut network, device, &roomy)?;
            network.set_up(device)?;
            if plan.between == Interconnect::Router {
                let mac = mac(self.number, which);
                for address in addresses {
                    let mut join = || {
                        network.add_host_route(device, address)?;
                        network.add_neighbour(device, address, mac)
                    };
                    optional_v6(address, join())?;
                }
            }
        }
        Ok(())
    }
}

/// Lays the cable from the far side to its neighbour, and returns the first world number that is free in that network.
fn connect_far(
    plan: &WorldOptions,
    far: &NetNamespace,
    (namespace, device, which): (&NetNamespace, &str, u8),
) -> Result<u8, WorldError> {
    let lay = || -> io::Result<Option<u8>> {
        let mut network = Network::open()?;
        let used = network.addresses()?;
        for number in 0..=u8::MAX {
            if addresses(number, 1)
                .iter()
                .any(|address| used.contains(address))
            {
                continue;
            }
            let name = match plan.far {
                FarSide::Here => host_device(number),
                FarSide::Own => DEVICE.to_owned(),
            };
            let (here, there) = (end(&name, number, FAR), end(device, number, which));
            match network.add_cable(here, there, namespace) {
                // Another world took this number first.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                made => return made.map(|()| Some(number)),
            }
        }
        Ok(None)
    };
    far.within(lay)
        .map_err(step("cannot connect the far network"))?
        .ok_or(WorldError::Crowded)
}

/// Sets up one side's device: its addresses, and the hardware address of the other side.
fn settle(
    device: &str,
    plan: &WorldOptions,
    own: [IpAddr; 2],
    other: [IpAddr; 2],
    mac: [u8; 6],
) -> io::Result<()> {
    let mut network = Network::open()?;
    prepare(&mut network, device, plan)?;
    offload(device, plan.offload)?;
    for (address, prefix) in own.into_iter().zip([24, 64]) {
        optional_v6(address, network.add_address(device, address, prefix))?;
    }
    network.set_up(device)?;
    for address in other {
        optional_v6(address, network.add_neighbour(device, address, mac))?;
    }
    Ok(())
}

fn default_routes(gateways: [IpAddr; 2]) -> io::Result<()> {
    let mut network = Network::open()?;
    for gateway in gateways {
        optional_v6(gateway, network.add_default_route(gateway))?;
    }
    Ok(())
}

/// Ignores a failure for an IPv6 address if the kernel has no IPv6; the link then has no IPv6 either.
fn optional_v6(address: IpAddr, done: io::Result<()>) -> io::Result<()> {
    match done {
        Err(_) if address.is_ipv6() && !has_v6() => Ok(()),
        done => done,
    }
}

fn has_v6() -> bool {
    std::path::Path::new("/proc/sys/net/ipv6").exists()
}

/// Returns the MTU of the router's devices. An IPv6 packet beyond 64 KiB carries its length in a hop-by-hop option of 8
/// bytes, which is removed when the packet is cut. But a kernel that forwards adds the option to the length of each cut
/// packet (`skb_gso_network_seglen`, called by `ip6_forward`), and would find all of them too big.
fn router_mtu(plan: &WorldOptions) -> u32 {
    if plan.between == Interconnect::Router && plan.segment_limit.is_some() {
        (plan.mtu + JUMBO_OPTION).min(MTU_MAX)
    } else {
        plan.mtu
    }
}

fn prepare(network: &mut Network, device: &str, plan: &WorldOptions) -> io::Result<()> {
    network.set_mtu(device, plan.mtu)?;
    if let Some(limit) = plan.segment_limit {
        network.set_segment_limit(device, IpVersion::V6, limit)?;
        network.set_segment_limit(device, IpVersion::V4, limit)?;
    }
    Ok(())
}

fn offload(device: &str, offload: Offload) -> io::Result<()> {
    let (cut, merge) = match offload {
        Offload::Full => return Ok(()),
        Offload::Receive => (false, true),
        Offload::None => (false, false),
    };
    // Without segmentation offload, the kernel cuts pieces into packets before it passes them to the device.
    Ethtool::open(device)?.set_features(&[
        ("tx-tcp-segmentation", cut),
        ("tx-tcp6-segmentation", cut),
        ("tx-tcp-ecn-segmentation", cut),
        ("tx-udp-segmentation", cut),
        ("tx-generic-segmentation", cut),
        ("rx-gro", merge),
    ])
}

/// Prepares a namespace of the world: enables loopback, and disables saved metrics and IPv6 router discovery.
fn quiet() -> io::Result<()> {
    Network::open()?.set_up("lo")?;
    for (setting, value) in [
        // Metrics that one connection learnt about the path must not help the next.
        ("net/ipv4/tcp_no_metrics_save", "1"),
        ("net/ipv6/conf/default/accept_ra", "0"),
        ("net/ipv6/conf/default/router_solicitations", "0"),
    ] {
        // A kernel or a container may refuse a setting; the only effect is a little more traffic or a saved metric.
        if set_sysctl(setting, value).is_err() {}
    }
    Ok(())
}

fn forward() -> io::Result<()> {
    set_sysctl("net/ipv4/ip_forward", "1")?;
    if has_v6() {
        set_sysctl("net/ipv6/conf/all/forwarding", "1")?;
    }
    Ok(())
}

/// Keeps the router's own kernel from sending anything on the cables.
fn silence() {
    for which in ["all", "default"] {
        // If the kernel has no IPv6, this is not needed; if `/proc` is read-only, it is not possible.
        if set_sysctl(&format!("net/ipv6/conf/{which}/disable_ipv6"), "1").is_err() {}
    }
}

/// Numbers of the cable ends; each end derives its hardware address from its number.
const FAR: u8 = 1;
const NEAR: u8 = 2;
const ROUTER_AT_NEAR: u8 = 3;
const ROUTER_AT_FAR: u8 = 4;

fn addresses(number: u8, host: u8) -> [IpAddr; 2] {
    [
        Ipv4Addr::new(100, 127, number, host).into(),
        Ipv6Addr::new(0xfd71, 0x7569, 0x6374, number.into(), 0, 0, 0, host.into()).into(),
    ]
}

fn end(name: &str, number: u8, which: u8) -> CableEnd<'_> {
    CableEnd {
        name,
        mac: mac(number, which),
    }
}

/// Returns a locally administered hardware address (the second-lowest bit of the first byte is set).
fn mac(number: u8, which: u8) -> [u8; 6] {
    [0x02, 0x71, 0x75, 0x69, number, which]
}

fn host_device(number: u8) -> String {
    format!("quictun{number}")
}

fn step(step: &'static str) -> impl FnOnce(io::Error) -> WorldError {
    move |source| WorldError::Step(step, source)
}
