//! A load across a link in real time.

use quictun_emu::{Audit, KernelError, KernelLink, LossUnit, Plan, Running, World, WorldPlan};

use super::backend::Backend;
use super::bulk;
use super::cell::{CheckCell, Load};
use super::plan::{COALESCE, Checking};
use crate::tunnel::{Ends, Tunnel};

/// In real time: bit/s, and what the emulator says of itself.
pub(super) fn real(
    plan: &Checking,
    cell: CheckCell,
    load: Load,
    seed: u64,
    loss_unit: LossUnit,
) -> anyhow::Result<(u64, Audit)> {
    let world = World::build(&WorldPlan::default())?;
    let running = Running::start(
        &world,
        Plan {
            up: cell.way(),
            down: cell.way(),
            seed,
            coalesce: COALESCE,
            loss_unit,
        },
    )?;
    let rate = cross(&world, plan, cell, load)?;
    Ok((rate, running.stop()?))
}

/// The same across a link of the kernel's; `None`, and why, where it has none.
pub(super) fn across_kernel(
    plan: &Checking,
    cell: CheckCell,
    load: Load,
    seed: u64,
    missing: &mut Option<String>,
) -> anyhow::Result<Option<u64>> {
    let world = World::build(&WorldPlan {
        offload: Backend::Kernel.offload(),
        ..WorldPlan::default()
    })?;
    match KernelLink::start(&world, [&cell.way(), &cell.way()], seed) {
        Ok(_) => cross(&world, plan, cell, load).map(Some),
        Err(why @ KernelError::Missing { .. }) => {
            *missing = Some(why.to_string());
            Ok(None)
        }
        Err(why) => Err(why.into()),
    }
}

fn cross(world: &World, plan: &Checking, cell: CheckCell, load: Load) -> anyhow::Result<u64> {
    if load == Load::Cubic {
        return bulk::tcp(world, cell.warm_up(), plan.duration);
    }
    let listener = bulk::listen(world)?;
    let tunnel = Tunnel::across(Ends::across(world), listener.local_addr()?, [&[], &[]])?;
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
