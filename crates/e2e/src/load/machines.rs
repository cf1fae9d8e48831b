//! The two machines of a load, and the link between them.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use anyhow::Result;
use quictun_emu::{FarSide, LossUnit, RunningEmulator, World, WorldOptions};
use quictun_link::{LinkConfig, Queue};
use quictun_testbed::machine::Machine;

/// The number of cables created so far.
static CABLES: AtomicU8 = AtomicU8::new(0);

/// The machines on which the two programs run, and the link between them.
#[derive(Clone, Debug)]
pub enum LinkKind {
    /// Both on one machine.
    Loopback,
    /// On two network namespaces connected by a cable. Requires [`quictun_testbed::isolation`].
    Veth,
    /// Like [`LinkKind::Veth`], but neither end merges or segments packets: the cable carries single packets of 1500
    /// bytes, as a wire would.
    Packets,
    /// On the two sides of an emulated link. Requires [`quictun_testbed::isolation`].
    Emulated(EmulatedPath),
}

/// An emulated path, symmetric in both directions; its queue holds one bandwidth-delay product.
#[derive(Clone, Debug)]
pub struct EmulatedPath {
    /// The rate in bytes per second.
    pub rate: u64,
    /// The round-trip time of the path.
    pub round_trip: Duration,
    /// The maximum of the extra delay that each packet draws in each direction.
    pub jitter: Duration,
    /// The share of packets that are lost, from 0 to 1.
    pub loss: f64,
}

/// The minimum queue in bytes: a burst that a sender may send at once.
const QUEUE_MIN: u64 = 64 * 1500;

impl EmulatedPath {
    fn plan(&self) -> quictun_emu::EmulatorConfig {
        let product = u128::from(self.rate) * self.round_trip.as_nanos() / 1_000_000_000;
        let product = u64::try_from(product).unwrap_or(u64::MAX).max(QUEUE_MIN);
        let way = LinkConfig {
            rate: Some(self.rate),
            delay: self.round_trip / 2,
            jitter: self.jitter,
            loss: self.loss,
            queue: Queue::Bytes(usize::try_from(product).unwrap_or(usize::MAX)),
            ..LinkConfig::default()
        };
        quictun_emu::EmulatorConfig {
            up: way.clone(),
            down: way,
            seed: 1,
            coalesce: Duration::ZERO,
            loss_unit: LossUnit::default(),
        }
    }
}

/// The machines of the client and of the server, joined by a link.
#[derive(Debug)]
pub struct LinkedMachines {
    /// The machine of the client and its applications.
    pub near: Machine,
    /// The machine of the server and its applications.
    pub far: Machine,
    /// The address of the far machine.
    pub address: IpAddr,
    emulation: Option<LinkEmulation>,
}

/// A running emulator and the networks around it.
struct LinkEmulation {
    running: RunningEmulator,
    _world: World,
}

impl fmt::Debug for LinkEmulation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LinkEmulation")
    }
}

impl LinkedMachines {
    /// Joins two machines by a link.
    ///
    /// # Errors
    ///
    /// Fails if the system does not permit the link.
    pub fn new(link: &LinkKind) -> Result<Self> {
        match link {
            LinkKind::Loopback => Ok(Self {
                near: Machine::here(),
                far: Machine::here(),
                address: Ipv4Addr::LOCALHOST.into(),
                emulation: None,
            }),
            LinkKind::Veth => Self::on_a_cable(|_, _| Ok(())),
            LinkKind::Packets => Self::on_a_cable(|machine, device| {
                let off =
                    format!("ethtool -K {device} tso off gso off gro off tx-udp-segmentation off");
                machine.run(&off).map(drop)
            }),
            LinkKind::Emulated(path) => Self::emulated(path),
        }
    }

    /// Joins the present machine and another one by a cable. `prepare` sets up each end.
    fn on_a_cable(prepare: impl Fn(&Machine, &str) -> Result<()>) -> Result<Self> {
        let (near, far) = (Machine::here(), Machine::new("far")?);
        // The kernel removes the cable of earlier machines with a delay, so each pair has its own.
        let number = CABLES.fetch_add(1, Ordering::Relaxed);
        let address = Ipv4Addr::new(10, 30, number, 2);
        let (of_near, of_far) = (format!("10.30.{number}.1/24"), format!("{address}/24"));
        let device = format!("lan{number}");
        near.join(&far, &device, &of_near, &of_far)?;
        for machine in [&near, &far] {
            prepare(machine, &device)?;
        }
        Ok(Self {
            near,
            far,
            address: address.into(),
            emulation: None,
        })
    }

    fn emulated(path: &EmulatedPath) -> Result<Self> {
        let world = World::build(&WorldOptions {
            far: FarSide::Own,
            ..WorldOptions::default()
        })?;
        let running = RunningEmulator::start(&world, path.plan())?;
        let side = |namespace: &quictun_sys::NetNamespace| {
            Ok::<_, std::io::Error>(Machine::of(namespace.as_fd().try_clone_to_owned()?))
        };
        let (near, far) = (side(world.near())?, side(world.far())?);
        let [address, _] = world.far_addresses();
        Ok(Self {
            near,
            far,
            address,
            emulation: Some(LinkEmulation {
                running,
                _world: world,
            }),
        })
    }

    /// Ends the link of a load that went well.
    ///
    /// # Errors
    ///
    /// Fails if the emulator failed.
    pub fn end(self) -> Result<()> {
        if let Some(emulation) = self.emulation {
            emulation.running.stop()?;
        }
        Ok(())
    }
}
