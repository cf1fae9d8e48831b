//! The networks around an emulated link: a near one, a far one, and a router in between that only we see.
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
//! The IPv4 addresses are of the range for carriers' own use (RFC 6598), its last part, which nobody is likely to
//! use on a machine for tests; the IPv6 ones are unique local ones (RFC 4193). Both ends know each other's hardware
//! address, so that nothing is asked over the link: what crosses it is what the applications send. Nothing has a
//! name outside; a [`World`] ends with its last process.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use quictun_sys::{CableEnd, Ethtool, Family, NetNamespace, Network, set_sysctl};

#[cfg(test)]
pub(crate) mod tests;

/// The router's end of the cable to the near side.
pub const ROUTER_NEAR: &str = "near";

/// The router's end of the cable to the far side.
pub const ROUTER_FAR: &str = "far";

/// The device at the link in a namespace of its own.
pub const DEVICE: &str = "link0";

/// Bytes of the option that tells the length of a piece of IPv6 beyond 64 KiB.
const JUMBO_OPTION: u32 = 8;

const MTU_MAX: u32 = 65_535;

/// How a world should be.
#[derive(Clone, Copy, Debug)]
pub struct WorldPlan {
    /// What the far side is.
    pub far: FarSide,
    /// What the network devices of both sides do themselves.
    pub offload: Offload,
    /// Longest packet, bytes with its IP header.
    pub mtu: u32,
    /// How large a piece of a stream the kernel may move as one; beyond 65536 it is BIG TCP. `None`: as it is.
    pub segment_limit: Option<u32>,
    /// What is between the two sides.
    pub between: Between,
}

/// What is between the two sides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Between {
    /// The router's two devices, with nothing that joins them: that is an emulator's business.
    #[default]
    Emulator,
    /// One cable from side to side, and no router.
    Cable,
    /// The router, whose kernel forwards packets as between any two networks.
    Router,
    /// Nothing: somebody else joins the two networks, and gives them their addresses.
    Nothing,
}

/// What is at the far side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FarSide {
    /// The network in which the calling thread is. Needs the system's root.
    Here,
    /// A network of its own.
    Own,
}

/// What the network devices of both sides do themselves. Loss, queue and rate always act on packets of the wire;
/// what differs is who cuts a stream into them, and who puts them together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Offload {
    /// As good network cards: pieces of up to 64 KiB go to the emulator whole, and arrive as whole as they survive.
    #[default]
    Full,
    /// The sender's kernel cuts, the receiver's puts together (GRO).
    Receive,
    /// The sender's kernel cuts and nobody puts together: every packet is handled alone.
    None,
}

impl Default for WorldPlan {
    fn default() -> Self {
        Self {
            far: FarSide::Own,
            offload: Offload::default(),
            mtu: 1500,
            segment_limit: None,
            between: Between::default(),
        }
    }
}

/// Why there is no world.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorldError {
    /// The system refused a step.
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
    /// Makes networks and cables. With [`Between::Emulator`] nothing passes before an emulator runs in the router.
    /// After an error nothing is left of what was made.
    pub fn build(plan: &WorldPlan) -> Result<Self, WorldError> {
        let make = || NetNamespace::new();
        let near = make().map_err(step("making the near network"))?;
        let router = make().map_err(step("making the router's network"))?;
        let far = match plan.far {
            FarSide::Here => NetNamespace::current(),
            FarSide::Own => make(),
        };
        let far = far.map_err(step("opening the far network"))?;
        // Before there are devices: they start with what holds then.
        router
            .within(|| match plan.between {
                Between::Router => forward(),
                Between::Emulator | Between::Cable | Between::Nothing => {
                    silence();
                    Ok(())
                }
            })
            .map_err(step("setting up the router's network"))?;
        near.within(quiet)
            .map_err(step("entering the near network"))?;
        if plan.far == FarSide::Own {
            far.within(quiet)
                .map_err(step("entering the far network"))?;
        }
        let other_end = match plan.between {
            Between::Nothing => {
                let number = 0;
                return Ok(Self {
                    near,
                    router,
                    far,
                    number,
                });
            }
            Between::Cable => (&near, DEVICE, NEAR),
            Between::Emulator | Between::Router => (&router, ROUTER_FAR, ROUTER_AT_FAR),
        };
        let number = lay_far_cable(plan, &far, other_end)?;
        let world = Self {
            near,
            router,
            far,
            number,
        };
        if plan.between != Between::Cable {
            world.lay_near_cable()?;
        }
        world.configure(plan)?;
        Ok(world)
    }

    /// Where the applications behind the link are.
    pub fn near(&self) -> &NetNamespace {
        &self.near
    }

    /// Where [`ROUTER_NEAR`] and [`ROUTER_FAR`] are.
    pub fn router(&self) -> &NetNamespace {
        &self.router
    }

    /// Where what they talk to is.
    pub fn far(&self) -> &NetNamespace {
        &self.far
    }

    /// The near side's addresses, IPv4 and IPv6.
    pub fn near_addresses(&self) -> [IpAddr; 2] {
        addresses(self.number, 2)
    }

    /// The far side's addresses, IPv4 and IPv6.
    pub fn far_addresses(&self) -> [IpAddr; 2] {
        addresses(self.number, 1)
    }

    fn lay_near_cable(&self) -> Result<(), WorldError> {
        let router = end(ROUTER_NEAR, self.number, ROUTER_AT_NEAR);
        let near = end(DEVICE, self.number, NEAR);
        self.router
            .within(|| Network::open()?.add_cable(router, near, &self.near))
            .map_err(step("laying the cable to the near network"))
    }

    fn configure(&self, plan: &WorldPlan) -> Result<(), WorldError> {
        if plan.between != Between::Cable {
            self.router
                .within(|| self.configure_router(plan))
                .map_err(step("setting up the router"))?;
        }
        let (near, far) = (self.near_addresses(), self.far_addresses());
        let number = self.number;
        // Whoever forwards gets packets into its own hands.
        let [of_far, of_near] = match plan.between {
            Between::Emulator | Between::Cable | Between::Nothing => [FAR, NEAR],
            Between::Router => [ROUTER_AT_NEAR, ROUTER_AT_FAR],
        }
        .map(|which| mac(number, which));
        // The near side last: what comes up last sends at once, its other end a little later.
        self.far
            .within(|| match plan.far {
                FarSide::Here => settle(&host_device(number), plan, far, near, of_near),
                FarSide::Own => {
                    settle(DEVICE, plan, far, near, of_near)?;
                    default_routes(near)
                }
            })
            .map_err(step("setting up the far network"))?;
        self.near
            .within(|| {
                settle(DEVICE, plan, near, far, of_far)?;
                default_routes(far)
            })
            .map_err(step("setting up the near network"))
    }

    fn configure_router(&self, plan: &WorldPlan) -> io::Result<()> {
        let mut network = Network::open()?;
        let sides = [
            (ROUTER_NEAR, self.near_addresses(), NEAR),
            (ROUTER_FAR, self.far_addresses(), FAR),
        ];
        let roomy = WorldPlan {
            mtu: router_mtu(plan),
            ..*plan
        };
        for (device, addresses, which) in sides {
            prepare(&mut network, device, &roomy)?;
            network.set_up(device)?;
            if plan.between == Between::Router {
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

/// Lays the cable from the far side to what is next to it, and finds the number of a world that is not in use there.
fn lay_far_cable(
    plan: &WorldPlan,
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
                // Another world was faster.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                made => return made.map(|()| Some(number)),
            }
        }
        Ok(None)
    };
    far.within(lay)
        .map_err(step("laying the cable to the far network"))?
        .ok_or(WorldError::Crowded)
}

/// One side's end: addresses, and the other side's hardware address known.
fn settle(
    device: &str,
    plan: &WorldPlan,
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

/// A kernel may have no IPv6; the link then has none either.
fn optional_v6(address: IpAddr, done: io::Result<()>) -> io::Result<()> {
    match done {
        Err(_) if address.is_ipv6() && !has_v6() => Ok(()),
        done => done,
    }
}

fn has_v6() -> bool {
    std::path::Path::new("/proc/sys/net/ipv6").exists()
}

/// What fits through the router's devices. A piece of IPv6 beyond 64 KiB says its length in a hop-by-hop option of 8
/// bytes, which is gone when the piece is cut into packets; but a kernel that forwards counts it with each of them
/// (`skb_gso_network_seglen`, asked by `ip6_forward`), and would find all of them too big.
fn router_mtu(plan: &WorldPlan) -> u32 {
    if plan.between == Between::Router && plan.segment_limit.is_some() {
        (plan.mtu + JUMBO_OPTION).min(MTU_MAX)
    } else {
        plan.mtu
    }
}

fn prepare(network: &mut Network, device: &str, plan: &WorldPlan) -> io::Result<()> {
    network.set_mtu(device, plan.mtu)?;
    if let Some(limit) = plan.segment_limit {
        network.set_segment_limit(device, Family::V6, limit)?;
        network.set_segment_limit(device, Family::V4, limit)?;
    }
    Ok(())
}

fn offload(device: &str, offload: Offload) -> io::Result<()> {
    let (cut, merge) = match offload {
        Offload::Full => return Ok(()),
        Offload::Receive => (false, true),
        Offload::None => (false, false),
    };
    // Without segmentation offload a device gets packets, not pieces: the kernel cuts before it hands them over.
    Ethtool::open(device)?.set_features(&[
        ("tx-tcp-segmentation", cut),
        ("tx-tcp6-segmentation", cut),
        ("tx-tcp-ecn-segmentation", cut),
        ("tx-udp-segmentation", cut),
        ("tx-generic-segmentation", cut),
        ("rx-gro", merge),
    ])
}

/// A network of our own: its loopback on, and nothing said or remembered that was not asked for.
fn quiet() -> io::Result<()> {
    Network::open()?.set_up("lo")?;
    for (setting, value) in [
        // What one connection learnt about the path must not help the next.
        ("net/ipv4/tcp_no_metrics_save", "1"),
        ("net/ipv6/conf/default/accept_ra", "0"),
        ("net/ipv6/conf/default/router_solicitations", "0"),
    ] {
        // A kernel or a container may not let us: then there is a little more traffic.
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

/// Keeps the router's own kernel from saying anything on the cables.
fn silence() {
    for which in ["all", "default"] {
        // Without IPv6, or where `/proc` cannot be written, there is nothing to do or nothing to be done.
        if set_sysctl(&format!("net/ipv6/conf/{which}/disable_ipv6"), "1").is_err() {}
    }
}

/// Ends of cables, by which their hardware addresses differ.
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

/// An address of our own making (the second-lowest bit of the first byte says so).
fn mac(number: u8, which: u8) -> [u8; 6] {
    [0x02, 0x71, 0x75, 0x69, number, which]
}

fn host_device(number: u8) -> String {
    format!("quictun{number}")
}

fn step(step: &'static str) -> impl FnOnce(io::Error) -> WorldError {
    move |source| WorldError::Step(step, source)
}
