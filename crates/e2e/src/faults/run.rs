//! Runs one cell of the fault matrix: a new tunnel, two applications, and a fault in one process.

use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};

use super::cell::{Cell, Fault, Phase, Process, Sockets};
use super::door::Door;
use super::oom;
use super::script::{self, End, Hold, Step};
use super::seen::Outcome;
pub use super::site::Plan;
use super::site::{Site, wait_gone};
use quictun_testbed::deadline;

/// The time limit for the connection to reach the state in which the fault occurs.
const SOON: Duration = Duration::from_secs(30);

/// Additional time for steps that exceed their deadline on a busy machine.
const SLACK: Duration = Duration::from_secs(15);

/// Runs a cell and returns what the application at the near end and the target saw.
///
/// # Errors
///
/// Fails if the tunnel does not start or the connection does not reach the state for the fault.
pub fn run(cell: Cell, plan: &Plan) -> Result<[Outcome; 2]> {
    let (mut site, door) = Site::start(cell.sockets, cell.phase == Phase::Opening, plan)?;
    let outcomes = under(cell, plan, door, &site);
    if outcomes.is_ok() {
        site.client.hush();
        site.server.hush();
    }
    outcomes
}

fn under(cell: Cell, plan: &Plan, door: Door, site: &Site) -> Result<[Outcome; 2]> {
    let [asks, gets] = cell.phase.scripts();
    let patience = patience(cell.fault, plan);
    let (reached, arrivals) = channel();
    std::thread::scope(|scope| {
        let (target_goes_on, released) = channel();
        let hold = Hold {
            reached: reached.clone(),
            released,
        };
        let target = scope.spawn(move || far(door, &gets, &hold, patience));
        let (app_goes_on, released) = channel();
        let hold = Hold { reached, released };
        let app = scope.spawn(move || near(site, cell, asks, &hold, patience));
        let happened = arrivals
            .recv_timeout(SOON)
            .context("the connection has ended before the fault")
            .and_then(|()| strike(cell, plan, site, [app_goes_on, target_goes_on]));
        let outcomes = [app, target].map(|end| {
            end.join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        happened?;
        let [app, target] = outcomes;
        Ok([
            app.context("running the application")?,
            target.context("running the target")?,
        ])
    })
}

/// Returns how long an end waits without receiving anything.
fn patience(fault: Fault, plan: &Plan) -> Duration {
    let stopped = if fault == Fault::Stop {
        plan.stop
    } else {
        Duration::ZERO
    };
    plan.idle_timeout.max(plan.drain) + stopped + SLACK
}

fn near(
    site: &Site,
    cell: Cell,
    mut script: Vec<Step>,
    hold: &Hold,
    patience: Duration,
) -> Result<Outcome> {
    // Through a device, a connection is established only after the target's is.
    if cell.sockets == Sockets::Tun && cell.phase == Phase::Opening {
        script.retain(|step| *step != Step::Hold);
        hold.reached.send(())?;
    }
    match site.connect() {
        Ok(connection) => {
            connection.set_patience(patience)?;
            End::new(connection, true).follow(&script, hold)
        }
        Err(error) => Ok(Outcome::not_connected(script::expected(&script), &error)),
    }
}

fn far(door: Door, script: &[Step], hold: &Hold, patience: Duration) -> Result<Outcome> {
    match door.open(hold)? {
        Some(connection) => {
            connection.set_patience(patience)?;
            End::new(connection, false).follow(script, hold)
        }
        None => Ok(Outcome::unreached(script::expected(script))),
    }
}

/// Causes the fault, then releases the applications.
fn strike(cell: Cell, plan: &Plan, site: &Site, ends: [Sender<()>; 2]) -> Result<()> {
    if cell.phase == Phase::Opening {
        // The log messages of the compatible and of the native programs.
        let dials = ["starting connect to server app", "dialling the target"];
        let dialled = || dials.iter().any(|words| site.server.has_said(words));
        deadline::until("the server to dial", SOON, dialled)?;
    }
    let victim = site.victim(cell.process, cell.sockets)?;
    match cell.fault {
        Fault::None => {}
        Fault::Term => terminate(cell, site, victim)?,
        Fault::Kill => {
            kill_process(victim, Signal::KILL)?;
            wait_gone(victim, SOON)?;
        }
        Fault::Oom => oom::kill(victim)?,
        Fault::Stop => kill_process(victim, Signal::STOP)?,
    }
    for end in ends {
        // The application may have ended without holding.
        if end.send(()).is_err() {}
    }
    if cell.fault == Fault::Stop {
        let until = Instant::now() + plan.stop;
        while let Some(left) = until.checked_duration_since(Instant::now()) {
            std::thread::park_timeout(left);
        }
        kill_process(victim, Signal::CONT)?;
    }
    Ok(())
}

fn terminate(cell: Cell, site: &Site, victim: Pid) -> Result<()> {
    kill_process(victim, Signal::TERM)?;
    let program = match cell.process {
        Process::Server => &site.server,
        Process::Client | Process::Supervisor => &site.client,
        // This process leaves the signal to the client and logs nothing.
        Process::Netstackd => return Ok(()),
    };
    let what = "the process to log that it drains";
    deadline::until(what, SOON, || program.has_said("ending:"))
}
