//! Measures a load over a link in real time.

use quictun_emu::{
    Audit, EmulatorConfig, KernelError, KernelLink, LossUnit, RunningEmulator, World, WorldOptions,
};

use super::backend::Backend;
use super::bulk;
use super::cell::{CheckCell, Load};
use super::options::{COALESCE, CheckOptions};
use crate::tunnel::{LinkEnds, Tunnel};

/// Measures the load over the emulator's link. Returns the rate in bit/s and the emulator's account.
pub(super) fn real(
    plan: &CheckOptions,
    cell: CheckCell,
    load: Load,
    seed: u64,
    loss_unit: LossUnit,
) -> anyhow::Result<(u64, Audit)> {
    let world = World::build(&WorldOptions::default())?;
    let running = RunningEmulator::start(
        &world,
        EmulatorConfig {
            up: cell.link_config(),
            down: cell.link_config(),
            seed,
            coalesce: COALESCE,
            loss_unit,
        },
    )?;
    let rate = cross(&world, plan, cell, load)?;
    Ok((rate, running.stop()?))
}

/// Measures the load over a link of the kernel, in bit/s. If the kernel cannot emulate the link, returns `None` and
/// puts the reason into `missing`.
pub(super) fn across_kernel(
    plan: &CheckOptions,
    cell: CheckCell,
    load: Load,
    seed: u64,
    missing: &mut Option<String>,
) -> anyhow::Result<Option<u64>> {
    let world = World::build(&WorldOptions {
        offload: Backend::Kernel.offload(),
        ..WorldOptions::default()
    })?;
    match KernelLink::start(&world, [&cell.link_config(), &cell.link_config()], seed) {
        Ok(_) => cross(&world, plan, cell, load).map(Some),
        Err(why @ KernelError::Missing { .. }) => {
            *missing = Some(why.to_string());
            Ok(None)
        }
        Err(why) => Err(why.into()),
    }
}

fn cross(world: &World, plan: &CheckOptions, cell: CheckCell, load: Load) -> anyhow::Result<u64> {
    if load == Load::Cubic {
        return bulk::tcp(world, cell.warm_up(), plan.duration);
    }
    let listener = bulk::listen(world)?;
    let tunnel = Tunnel::across(LinkEnds::across(world), listener.local_addr()?, [&[], &[]])?;
    let rate = bulk::measure(
        world,
        &listener,
        tunnel.entries()[0],
        None,
        cell.warm_up(),
        plan.duration,
    )?;
    tunnel.stop()?;
    Ok(rate)
}
