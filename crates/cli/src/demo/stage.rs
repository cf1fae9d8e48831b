//! Where the demonstration takes place: on two sides of an emulated link, or on the loopback device.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context as _, Result};
use quictun_emu::{LossUnit, Plan, Running, World, WorldPlan};
use quictun_link::{LinkConfig, Queue, overhead};
use serde::Serialize;

/// The link: one that many have between office and data centre, with some loss.
const RATE_BIT_PER_S: u64 = 100_000_000;
const DELAY: Duration = Duration::from_millis(10);
const LOSS: f64 = 0.001;

/// Bytes that wait at either end: what the link carries in two round trips.
const QUEUE: usize = 500_000;

/// Every demonstration loses the same packets, as far as it sends the same ones.
const SEED: u64 = 1;

/// Networks for server and applications, and for client and users.
pub(super) enum Stage {
    /// Everything on 127.0.0.1.
    Loopback,
    /// A link between.
    Link {
        /// The networks.
        world: World,
        /// The link; it ends with the stage.
        running: Running,
    },
}

/// The link, as `--json` tells it.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct LinkFacts {
    rate_bit_per_s: u64,
    delay_us: u64,
    loss: f64,
}

impl Stage {
    /// A link in networks of its own. The process must be the first in a world of its own.
    pub(super) fn link() -> Result<Self> {
        let world = World::build(&WorldPlan::default())?;
        let way = LinkConfig {
            rate: Some(RATE_BIT_PER_S / 8),
            overhead: overhead::ETHERNET,
            delay: DELAY,
            loss: LOSS,
            queue: Queue::Bytes(QUEUE),
            ..LinkConfig::default()
        };
        let plan = Plan {
            up: way.clone(),
            down: way,
            seed: SEED,
            coalesce: Duration::from_micros(50),
            loss_unit: LossUnit::Segment,
        };
        let running = Running::start(&world, plan).context("starting the emulator")?;
        Ok(Self::Link { world, running })
    }

    /// In one line, what there is between the two sides.
    pub(super) fn describe(&self) -> String {
        match self {
            Self::Loopback => "the loopback device: no delay, no loss".to_owned(),
            Self::Link { .. } => format!(
                "an emulated link of {} Mbit/s, {} ms round trip, {} % loss each way",
                RATE_BIT_PER_S / 1_000_000,
                2 * DELAY.as_millis(),
                LOSS * 100.0
            ),
        }
    }

    /// The link for `--json`.
    pub(super) fn facts(&self) -> Option<LinkFacts> {
        matches!(self, Self::Link { .. }).then_some(LinkFacts {
            rate_bit_per_s: RATE_BIT_PER_S,
            delay_us: u64::try_from(DELAY.as_micros()).unwrap_or(u64::MAX),
            loss: LOSS,
        })
    }

    /// The address under which the near side reaches the far one.
    pub(super) fn far_address(&self) -> IpAddr {
        match self {
            Self::Loopback => Ipv4Addr::LOCALHOST.into(),
            Self::Link { world, .. } => world.far_addresses()[0],
        }
    }

    /// Where applications at the far side listen: for neighbours and, across a link, for direct connections.
    pub(super) fn far_listener(&self) -> SocketAddr {
        let address = match self {
            Self::Loopback => Ipv4Addr::LOCALHOST,
            Self::Link { .. } => Ipv4Addr::UNSPECIFIED,
        };
        (address, 0).into()
    }

    /// Runs `act` at the far side.
    pub(super) fn far<T: Send>(&self, act: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
        match self {
            Self::Loopback => act(),
            Self::Link { world, .. } => world.far().within(act),
        }
    }

    /// Runs `act` at the near side, with all the threads that it starts.
    pub(super) fn near<T: Send>(&self, act: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        match self {
            Self::Loopback => act(),
            Self::Link { world, .. } => world.near().within(|| Ok(act()))?,
        }
    }

    /// Ends the link; what it has to say where it was not what it should have been.
    pub(super) fn close(self) -> Result<Option<String>> {
        match self {
            Self::Loopback => Ok(None),
            Self::Link { running, .. } => {
                let audit = running.stop().context("the emulator")?;
                Ok(super::limited(&audit))
            }
        }
    }
}
