//! The measurements of the stack in their order.

use anyhow::{Context as _, Result, anyhow};
use quictun_sys::{ContainError, NetNamespace, Network};

use super::calls;
use super::flags::Options;
use super::results::Results;
use super::{bulk, crowd};
use crate::machine::Machine;

pub(crate) fn all<'a>(options: &'a Options, say: &dyn Fn(&str)) -> Result<Results<'a>> {
    let mut machine = Machine::examine()?;
    if let Some(noise) = machine.noise().filter(|_| !options.force) {
        return Err(anyhow!("unsuitable machine: {noise}; wait or pass --force"));
    }
    let network = NetNamespace::new().map_err(ContainError::Forbidden)?;
    network
        .within(|| Network::open()?.set_up("lo"))
        .context("setting up the loopback device")?;
    let cells = if options.bulk {
        bulk::cells(options)
    } else {
        Vec::new()
    };
    let sides = if options.crowd > 0 {
        &crowd::SIDES[..]
    } else {
        &[]
    };
    let setups = options.grid.setups();
    let (mut number, count) = (0, cells.len() + sides.len() + setups.len());
    let mut note = |name: &str| {
        number += 1;
        if !options.json {
            say(&format!("{number}/{count}: {name}"));
        }
    };
    let mut rows = Vec::new();
    for cell in &cells {
        note(&cell.name());
        rows.push(bulk::repeat(cell, options, &machine, &network)?);
    }
    let crowds = crowd::measure(sides, options, &machine, &network, &mut note)?;
    let mut answers = Vec::new();
    if !setups.is_empty() {
        // This is measured once per process, and must not run beside the measurements.
        quictun_ipc::wake_cost();
    }
    for setup in &setups {
        note(&setup.name());
        let (repeats, run) = (options.repeats, options.run / 4);
        let row = calls::measure(setup, repeats, run, &machine, &network);
        answers.push(row.with_context(|| setup.name())?);
    }
    machine.note_steal()?;
    Ok(Results {
        noise: machine.noise(),
        machine,
        grid: &options.grid,
        rows,
        crowds,
        answers,
    })
}
