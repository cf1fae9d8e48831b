//! The measurements in their order, and the collection of their results.

use std::time::Duration;

use anyhow::{Result, bail};
use quictun_ipc::{WaitPolicy, wake_cost};

use super::flags::{Options, Section};
use super::results::{CallCell, CallRow, CallSample, LOADED, Results};
use super::{asynchronous, idle, payload, synchronous, syscalls};
use crate::kind::{Kind, Placement};
use crate::machine::{Machine, ratio};
use crate::spread;

/// Sizes of the server's matrices in rows, as in the original.
const LOADS: [u32; 6] = [3, 4, 5, 10, 20, 30];

const MODES: [usize; 3] = [1, 8, 64];

/// Numbers of callers in the synchronous baselines. Each caller is a thread with its own server process.
const CALLERS: [usize; 2] = [1, 8];

pub(crate) fn all(options: &Options, say: &dyn Fn(&str)) -> Result<Results> {
    let mut machine = Machine::examine()?;
    refuse(&machine, options)?;
    let wake_cost = wake_cost();
    let mut rows: Vec<CallRow> = Vec::new();
    let cells = cells(options);
    for (number, cell) in cells.iter().enumerate() {
        if !options.json && !options.csv {
            let (kind, place) = (cell.kind.word(), cell.placement.word());
            say(&format!(
                "{}/{}: {kind}, {place}, {} calls at a time",
                number + 1,
                cells.len(),
                cell.concurrency
            ));
        }
        let samples = measure(cell, &machine, options)?;
        // Two processes on one core take turns. The floor therefore follows from the synchronous baseline, which
        // switches processes twice per call.
        let switches = rows
            .iter()
            .find(|row| row.cell.kind == Kind::Futex && row.cell.placement == Placement::OneCore);
        let floor = match (cell.placement, cell.kind) {
            (Placement::TwoCores, Kind::Asynchronous) if cell.concurrency == 1 => machine.line,
            (Placement::OneCore, Kind::Asynchronous) if cell.concurrency == 1 => {
                switches.map_or(0.0, |row| 0.8 * row.cycles[1])
            }
            _ => 0.0,
        };
        rows.push(row(*cell, &samples, floor));
    }
    let wanted = |section| options.sections.contains(&section);
    let (run, cores) = (Duration::from_millis(options.run_ms), machine.cores);
    let (policy, repeats) = (options.policy, options.repeats);
    let payloads = wanted(Section::Payload)
        .then(|| payload::measure(cores, policy, repeats, run))
        .transpose()?;
    let syscalls = wanted(Section::Syscalls)
        .then(|| syscalls::measure(cores, repeats, run))
        .transpose()?;
    let idle = wanted(Section::Idle)
        .then(|| idle::measure(cores, policy, Duration::from_secs(options.idle_s)))
        .transpose()?;
    machine.note_line()?;
    machine.note_steal()?;
    refuse(&machine, options)?;
    Ok(Results {
        noise: machine.noise(),
        machine,
        wake_cost,
        options: options.clone(),
        rows,
        payloads: payloads.unwrap_or_default(),
        syscalls: syscalls.unwrap_or(Ok(Vec::new())),
        idle,
    })
}

fn refuse(machine: &Machine, options: &Options) -> Result<()> {
    match machine.noise() {
        Some(noise) if !options.force => {
            bail!(
                "unsuitable machine: {noise}; wait, or pass --force to have the results marked as noisy"
            )
        }
        _ => Ok(()),
    }
}

/// Returns the cells in their order: baselines, then curves, then loads and modes.
fn cells(options: &Options) -> Vec<CallCell> {
    let cell = |kind, placement, concurrency| CallCell {
        kind,
        placement,
        policy: options.policy,
        concurrency,
        load: 0,
    };
    let wanted = |section| options.sections.contains(&section);
    let mut cells = Vec::new();
    if wanted(Section::Baselines) {
        for kind in [Kind::Futex, Kind::SeqPacket] {
            for placement in Placement::ALL {
                cells.extend(CALLERS.map(|callers| CallCell {
                    policy: WaitPolicy::Interrupt,
                    ..cell(kind, placement, callers)
                }));
            }
        }
    }
    if wanted(Section::Calls) {
        for placement in Placement::ALL {
            let curve = options.concurrency.iter();
            cells
                .extend(curve.map(|concurrency| cell(Kind::Asynchronous, placement, *concurrency)));
        }
    }
    if wanted(Section::Load) {
        for placement in Placement::ALL {
            cells.extend(LOADS.map(|load| CallCell {
                load,
                ..cell(Kind::Asynchronous, placement, LOADED)
            }));
        }
        // If neither side polls before it sleeps, as in the original, a server with more work sleeps less often.
        cells.extend([0].into_iter().chain(LOADS).map(|load| CallCell {
            policy: WaitPolicy::Interrupt,
            load,
            ..cell(Kind::Asynchronous, Placement::TwoCores, LOADED)
        }));
    }
    if wanted(Section::Modes) {
        for policy in [
            WaitPolicy::Interrupt,
            WaitPolicy::Polling,
            WaitPolicy::Hybrid,
        ] {
            cells.extend(MODES.map(|concurrency| CallCell {
                policy,
                ..cell(Kind::Asynchronous, Placement::TwoCores, concurrency)
            }));
        }
    }
    let mut seen = Vec::new();
    cells.retain(|cell| {
        let new = !seen.contains(cell);
        seen.push(*cell);
        new
    });
    cells
}

fn measure(cell: &CallCell, machine: &Machine, options: &Options) -> Result<Vec<CallSample>> {
    let [first, second] = machine.cores;
    let cores = match cell.placement {
        Placement::OneCore => [first, first],
        Placement::TwoCores => [first, second],
    };
    let run = Duration::from_millis(options.run_ms);
    match cell.kind {
        Kind::Asynchronous => asynchronous::measure(cell, cores, options.repeats, run),
        Kind::Futex | Kind::SeqPacket => synchronous::measure(cell, cores, options.repeats, run),
    }
}

fn row(cell: CallCell, samples: &[CallSample], floor: f64) -> CallRow {
    let sum = |value: fn(&CallSample) -> u64| samples.iter().map(value).sum::<u64>();
    let nanos = |value: fn(&CallSample) -> Duration| {
        samples.iter().map(value).sum::<Duration>().as_secs_f64()
    };
    let (calls, elapsed) = (sum(|sample| sample.calls), nanos(|sample| sample.elapsed));
    let share = |value| 100.0 * nanos(value) / elapsed.max(1e-9);
    CallRow {
        cell,
        calls,
        cycles: spread::of(&samples.iter().map(CallSample::cycles).collect::<Vec<_>>()),
        to_server: ratio(sum(|sample| sample.to_server), calls.max(1)),
        to_client: ratio(sum(|sample| sample.to_client), calls.max(1)),
        cpu: (cell.kind == Kind::Asynchronous).then(|| {
            [
                share(|sample| sample.client_cpu),
                share(|sample| sample.server_cpu),
            ]
        }),
        floor,
    }
}
