//! The networks of the demonstration: two sides of an emulated link, or the loopback device.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context as _, Result};
use quictun_emu::{EmulatorConfig, LossUnit, RunningEmulator, Verdict, World, WorldOptions};
use quictun_link::{LinkConfig, Queue, overhead};
use serde_json::{Value, json};

/// The link: a common one between office and data centre, with some loss.
const RATE_BIT_PER_S: u64 = 100_000_000;
const DELAY: Duration = Duration::from_millis(10);
const LOSS: f64 = 0.001;

/// Queue at either end, in bytes: about two bandwidth-delay products.
const QUEUE: usize = 500_000;

/// Seed of the losses: every demonstration that sends the same packets loses the same ones.
const SEED: u64 = 1;

/// A network for server and applications, another for client and users, and a link between them. `None`: everything is
/// on 127.0.0.1.
pub(super) struct DemoNetwork(Option<(World, RunningEmulator)>);

impl DemoNetwork {
    pub(super) fn loopback() -> Self {
        Self(None)
    }

    /// Builds a link between networks of its own. The process must be the first one in namespaces of its own.
    pub(super) fn link() -> Result<Self> {
        let world = World::build(&WorldOptions::default())?;
        let way = LinkConfig {
            rate: Some(RATE_BIT_PER_S / 8),
            overhead: overhead::ETHERNET,
            delay: DELAY,
            loss: LOSS,
            queue: Queue::Bytes(QUEUE),
            ..LinkConfig::default()
        };
        let plan = EmulatorConfig {
            up: way.clone(),
            down: way,
            seed: SEED,
            coalesce: Duration::from_micros(50),
            loss_unit: LossUnit::Segment,
        };
        let running = RunningEmulator::start(&world, plan).context("cannot start the emulator")?;
        Ok(Self(Some((world, running))))
    }

    pub(super) fn is_link(&self) -> bool {
        self.0.is_some()
    }

    pub(super) fn describe(&self) -> String {
        if !self.is_link() {
            return "the loopback device: no delay, no loss".to_owned();
        }
        format!(
            "an emulated link of {} Mbit/s, {} ms round trip, {} % loss each way",
            RATE_BIT_PER_S / 1_000_000,
            2 * DELAY.as_millis(),
            LOSS * 100.0
        )
    }

    pub(super) fn facts(&self) -> Option<Value> {
        let delay = u64::try_from(DELAY.as_micros()).unwrap_or(u64::MAX);
        let facts = json!({"rate_bit_per_s": RATE_BIT_PER_S, "delay_us": delay, "loss": LOSS});
        self.is_link().then_some(facts)
    }

    /// Returns the address under which the near side reaches the far side.
    pub(super) fn far_address(&self) -> IpAddr {
        let link = self.0.as_ref();
        link.map_or(Ipv4Addr::LOCALHOST.into(), |(world, _)| {
            world.far_addresses()[0]
        })
    }

    /// Returns the address on which applications at the far side listen: for programs beside them and, across a link,
    /// for direct connections.
    pub(super) fn far_listener(&self) -> SocketAddr {
        let address = if self.is_link() {
            Ipv4Addr::UNSPECIFIED
        } else {
            Ipv4Addr::LOCALHOST
        };
        (address, 0).into()
    }

    pub(super) fn far<T: Send>(&self, act: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
        match &self.0 {
            None => act(),
            Some((world, _)) => world.far().within(act),
        }
    }

    /// Runs `act` at the near side, with all the threads that it starts.
    pub(super) fn near<T: Send>(&self, act: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        match &self.0 {
            None => act(),
            Some((world, _)) => world.near().within(|| Ok(act()))?,
        }
    }

    /// Ends the link. Returns the emulator's verdict if the link did not behave as configured.
    pub(super) fn close(self) -> Result<Option<String>> {
        let Some((_world, running)) = self.0 else {
            return Ok(None);
        };
        let verdict = running.stop().context("cannot stop emulation")?.verdict();
        Ok((verdict != Verdict::Ok).then(|| verdict.to_string()))
    }
}
