//! Runs an external emulator between two networks of this process.

use std::os::fd::{AsFd as _, AsRawFd as _};

use anyhow::{Context as _, Result};
use quictun_emu::World;
use quictun_lab::EmulatedLink;
use quictun_link::Queue;
use quictun_sys::{NetNamespace, Network};

use crate::client::{ChildProgram, SignalWaiter, sh};

const PREFIX: u8 = 24;

/// Starts the external emulator, and waits until both networks have their addresses.
pub(crate) fn start(
    world: &World,
    link: &EmulatedLink,
    command: &str,
    seed: u64,
    waiter: &SignalWaiter,
) -> Result<ChildProgram> {
    let here = NetNamespace::current().context("cannot open this network")?;
    let mut shell = sh(command);
    shell.envs(variables(world, link, seed));
    let mut started = ChildProgram::new("the emulator", &here, &mut shell)?;
    started.wait_ready(waiter, || {
        has(world.near(), world.near_addresses()[0]) && has(world.far(), world.far_addresses()[0])
    })?;
    Ok(started)
}

fn has(network: &NetNamespace, address: std::net::IpAddr) -> bool {
    let known = network.within(|| Network::open()?.addresses());
    known.is_ok_and(|known| known.contains(&address))
}

fn variables(world: &World, link: &EmulatedLink, seed: u64) -> Vec<(String, String)> {
    let net = |network: &NetNamespace| {
        let (process, fd) = (std::process::id(), network.as_fd().as_raw_fd());
        format!("/proc/{process}/fd/{fd}")
    };
    let [near, far] = [world.near_addresses()[0], world.far_addresses()[0]];
    let [config, _] = link.directions(seed);
    let ip = bare(config.mtu, config.overhead);
    #[expect(clippy::cast_precision_loss, reason = "a rate and a queue")]
    let (mbit, queue) = (
        config.rate.unwrap_or_default() as f64 * 8.0 / 1e6 * ip,
        match config.queue {
            Queue::Bytes(bytes) => bytes as f64 * ip,
            Queue::Packets(packets) => (packets * config.mtu) as f64,
        },
    );
    [
        ("NEAR_NET", net(world.near())),
        ("FAR_NET", net(world.far())),
        ("NEAR_ADDRESS", format!("{near}/{PREFIX}")),
        ("FAR_ADDRESS", format!("{far}/{PREFIX}")),
        ("MTU", link.mtu.to_string()),
        ("RATE_MBIT", format!("{mbit:.6}")),
        ("DELAY_US", config.delay.as_micros().to_string()),
        ("LOSS", config.loss.to_string()),
        ("QUEUE_BYTES", format!("{queue:.0}")),
        ("SEED", seed.to_string()),
    ]
    .map(|(name, value)| (format!("QUICTUN_{name}"), value))
    .into()
}

/// Returns the share of IP packets in the bytes on a cable, for packets of maximum size.
#[expect(clippy::cast_precision_loss, reason = "bytes of a packet")]
fn bare(mtu: usize, overhead: usize) -> f64 {
    mtu as f64 / (mtu + overhead).max(1) as f64
}
