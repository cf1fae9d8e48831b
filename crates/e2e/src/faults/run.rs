//! Runs one cell of the fault matrix: a new tunnel, two applications, and a fault in one process.

use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};

use super::cell::{FaultCell, Phase, Process, ProcessFault, Sockets};
use super::observation::Observation;
use super::oom;
use super::script::{self, ConnectionEnd, HoldPoint, ScriptStep};
use super::target_listener::TargetListener;
pub use super::tunnel::FaultOptions;
use super::tunnel::{FaultTunnel, wait_gone};
use quictun_testbed::deadline;
use quictun_testbed::program::Program;

/// The line of a process that has taken over.
pub const TAKEN: &str = "the flows of the previous process continue here";

/// The line of a process whose successor has failed.
pub const GOES_ON: &str = "no other process has taken over: this one goes on";

/// The time limit for the connection to reach the state in which the fault occurs.
const SOON: Duration = Duration::from_secs(30);

/// Additional time for steps that exceed their deadline on a busy machine.
const SLACK: Duration = Duration::from_secs(15);

/// Runs a cell and returns what the application at the near end and the target saw.
///
/// # Errors
///
/// Fails if the tunnel does not start or the connection does not reach the state for the fault.
pub fn run(cell: FaultCell, plan: &FaultOptions) -> Result<[Observation; 2]> {
    let (mut site, listener) =
        FaultTunnel::start(cell.sockets, cell.phase == Phase::Opening, plan)?;
    let outcomes = under(cell, plan, listener, &site);
    if outcomes.is_ok() {
        site.client.silence();
        site.server.silence();
    }
    outcomes
}

fn under(
    cell: FaultCell,
    plan: &FaultOptions,
    listener: TargetListener,
    site: &FaultTunnel,
) -> Result<[Observation; 2]> {
    let [asks, gets] = cell.phase.scripts();
    let timeout = timeout(cell, plan);
    let (reached, arrivals) = channel();
    std::thread::scope(|scope| {
        let (target_goes_on, released) = channel();
        let hold = HoldPoint {
            reached: reached.clone(),
            released,
        };
        let target = scope.spawn(move || far(listener, &gets, &hold, timeout));
        let (app_goes_on, released) = channel();
        let hold = HoldPoint { reached, released };
        let app = scope.spawn(move || near(site, cell, asks, &hold, timeout));
        let happened = arrivals
            .recv_timeout(SOON)
            .context("the connection has ended before the fault")
            .and_then(|()| strike(cell, plan, site, [app_goes_on, target_goes_on]));
        let outcomes = [app, target].map(|end| {
            end.join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        let mut successor = happened?;
        let [app, target] = outcomes;
        let seen = [
            app.context("running the application")?,
            target.context("running the target")?,
        ];
        if let Some(successor) = &mut successor {
            successor.silence();
        }
        Ok(seen)
    })
}

/// Returns how long an end waits without receiving anything.
fn timeout(cell: FaultCell, plan: &FaultOptions) -> Duration {
    let stopped = match cell.fault {
        ProcessFault::Stop | ProcessFault::Cut => plan.stop,
        _ => Duration::ZERO,
    };
    let outlives = match cell.sockets {
        Sockets::Tls => plan.bond_ttl(),
        _ => Duration::ZERO,
    };
    plan.idle_timeout.max(plan.drain) + stopped + outlives + SLACK
}

fn near(
    site: &FaultTunnel,
    cell: FaultCell,
    mut script: Vec<ScriptStep>,
    hold: &HoldPoint,
    timeout: Duration,
) -> Result<Observation> {
    // Through a device, a connection is established only after the target's is.
    if cell.sockets == Sockets::Tun && cell.phase == Phase::Opening {
        script.retain(|step| *step != ScriptStep::Hold);
        hold.reached.send(())?;
    }
    match site.connect() {
        Ok(connection) => {
            connection.set_timeout(timeout)?;
            ConnectionEnd::new(connection, true).follow(&script, hold)
        }
        Err(error) => Ok(Observation::not_connected(
            script::expected(&script),
            &error,
        )),
    }
}

fn far(
    listener: TargetListener,
    script: &[ScriptStep],
    hold: &HoldPoint,
    timeout: Duration,
) -> Result<Observation> {
    match listener.open(hold)? {
        Some(connection) => {
            connection.set_timeout(timeout)?;
            ConnectionEnd::new(connection, false).follow(script, hold)
        }
        None => Ok(Observation::unreached(script::expected(script))),
    }
}

/// Causes the fault, then releases the applications. Returns the process that has taken over, if there is one.
fn strike(
    cell: FaultCell,
    plan: &FaultOptions,
    site: &FaultTunnel,
    ends: [Sender<()>; 2],
) -> Result<Option<Program>> {
    if cell.phase == Phase::Opening {
        // The log messages of the compatible and of the native programs.
        let dials = ["starting connect to server app", "dialling the target"];
        let dialled = || dials.iter().any(|words| site.server.has_printed(words));
        deadline::until("the server to dial", SOON, dialled)?;
    }
    let victim = site.victim(cell.process, cell.sockets)?;
    let mut successor = None;
    match cell.fault {
        ProcessFault::None => {}
        ProcessFault::Cut => site.cut(true)?,
        ProcessFault::Term => terminate(cell, site, victim)?,
        ProcessFault::Kill => {
            kill_process(victim, Signal::KILL)?;
            wait_gone(victim, SOON)?;
        }
        ProcessFault::Oom => oom::kill(victim)?,
        ProcessFault::Stop => kill_process(victim, Signal::STOP)?,
        ProcessFault::Upgraded => {
            let mut next = site.successor(cell.process, false)?;
            next.wait_for(TAKEN, SOON)?;
            successor = Some(next);
        }
        ProcessFault::RolledBack => roll_back(cell, site)?,
    }
    for end in ends {
        // The application may have ended without holding.
        if end.send(()).is_err() {}
    }
    match cell.fault {
        ProcessFault::Stop => {
            wait(plan.stop);
            kill_process(victim, Signal::CONT)?;
        }
        ProcessFault::Cut => {
            wait(plan.stop);
            site.cut(false)?;
        }
        _ => {}
    }
    Ok(successor)
}

/// Lets a new process fail after it has taken everything.
fn roll_back(cell: FaultCell, site: &FaultTunnel) -> Result<()> {
    let mut next = site.successor(cell.process, true)?;
    let status = next.wait_end(SOON)?;
    ensure!(!status.success(), "it has started: {:?}", next.lines());
    next.silence();
    let program = match cell.process {
        Process::Server => &site.server,
        _ => &site.client,
    };
    deadline::until(GOES_ON, SOON, || program.has_printed(GOES_ON))
}

fn wait(time: Duration) {
    let until = Instant::now() + time;
    while let Some(left) = until.checked_duration_since(Instant::now()) {
        std::thread::park_timeout(left);
    }
}

fn terminate(cell: FaultCell, site: &FaultTunnel, victim: Pid) -> Result<()> {
    kill_process(victim, Signal::TERM)?;
    let program = match cell.process {
        Process::Server => &site.server,
        Process::Client | Process::Supervisor => &site.client,
        // These processes leave the signal to others and log nothing.
        Process::Netstackd | Process::ServerKeeper | Process::ClientKeeper => return Ok(()),
    };
    let what = "the process to log that it drains";
    deadline::until(what, SOON, || program.has_printed("ending:"))
}
