//! A tunnel that carries traffic while signals or a disk disturb one of its processes. No flow may be lost.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::process::{Signal, kill_process};

use super::cell::Process;
use super::disk::{DiskFault, LoopDisk};
use super::matrix::name;
use super::storm::{Random, StormKind};
use super::stress_tunnel::StressTunnel;
use super::traffic::TrafficReport;

/// Time that every answer of /healthz may take.
const HEALTH_MAX: Duration = Duration::from_secs(1);

/// Time that traffic gets before a disturbance, and after it.
const AROUND: Duration = Duration::from_secs(1);

/// Time for which a slow disk is slow: several writes of the usage.
const SLOW_FOR: Duration = Duration::from_secs(30);

/// Time between two SIGHUP while a disk is disturbed.
const HUP_PAUSE: Duration = Duration::from_secs(2);

/// Time between two looks at the traffic.
const GLANCE: Duration = Duration::from_millis(50);

/// Time for the processes to end, and for the last usage to be stored.
const END: Duration = Duration::from_secs(90);

/// The way in which connections of applications enter the tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TunnelEntry {
    /// The applications connect to a forward of the client.
    Forward,
    /// A device carries the connections of the host.
    Device,
    /// A device carries the connections of one command (`quictun run`).
    Command,
}

/// The processes of each kind of tunnel. The supervisor of a command is the first process of its namespace.
pub const PROCESSES: [(Process, TunnelEntry); 11] = [
    (Process::Server, TunnelEntry::Forward),
    (Process::ServerKeeper, TunnelEntry::Forward),
    (Process::Client, TunnelEntry::Forward),
    (Process::ClientKeeper, TunnelEntry::Forward),
    (Process::Supervisor, TunnelEntry::Device),
    (Process::Client, TunnelEntry::Device),
    (Process::ClientKeeper, TunnelEntry::Device),
    (Process::Netstackd, TunnelEntry::Device),
    (Process::Supervisor, TunnelEntry::Command),
    (Process::Client, TunnelEntry::Command),
    (Process::Netstackd, TunnelEntry::Command),
];

/// Returns whether signals of this kind leave a process as it is. SIGHUP ends a command and its supervisor.
pub fn survives(process: Process, entry: TunnelEntry, kind: StormKind) -> bool {
    let ends = (process, entry) == (Process::Supervisor, TunnelEntry::Command);
    !ends || matches!(kind, StormKind::User | StormKind::Stop)
}

/// The events that disturb a tunnel under load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disturbance {
    /// Signals to a process at random moments.
    Storm {
        /// The process that gets the signals.
        process: Process,
        /// The way into the tunnel.
        entry: TunnelEntry,
        /// The signals that it gets.
        kind: StormKind,
        /// The number of signals, or of pairs of SIGSTOP and SIGCONT.
        count: u32,
        /// The seed of the moments.
        seed: u64,
    },
    /// The keeper of the server is stopped for this time, as if every disk hung. SIGHUP arrives meanwhile.
    StoppedKeeper(Duration),
    /// The state directory and the log files of both programs are on this disk. SIGHUP arrives meanwhile.
    Disk(DiskFault),
}

/// Disturbs a tunnel under load, and returns the report of its traffic. Then ends both programs in good order.
///
/// # Errors
///
/// Fails if a flow was lost or altered, if a request for /healthz failed, if a process ended, or did not end in good
/// order when it was asked to, or if the usage of the client was not stored.
pub fn run(disturbance: Disturbance) -> Result<TrafficReport> {
    let disk = match disturbance {
        Disturbance::Disk(_) => Some(LoopDisk::new()?),
        _ => None,
    };
    let entry = match disturbance {
        Disturbance::Storm { entry, .. } => entry,
        _ => TunnelEntry::Forward,
    };
    let mut tunnel = StressTunnel::start(entry, disk.as_ref().map(LoopDisk::path))?;
    let report = TrafficReport::default();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let healths = tunnel.healths();
            report.run(tunnel.near(), tunnel.echo(), &healths, 1);
        });
        let disturbed = pause(AROUND, &report)
            .and_then(|()| disturb(disturbance, &tunnel, disk.as_ref(), &report))
            .and_then(|()| pause(AROUND, &report));
        report.stop();
        disturbed
    })?;
    report.check()?;
    end(&mut tunnel, disk.as_ref())?;
    let stored = tunnel.stored_usage()?;
    ensure!(
        stored >= report.bytes(),
        "{} bytes were carried, and {stored} are stored as used",
        report.bytes()
    );
    tunnel.silence();
    Ok(report)
}

fn disturb(
    disturbance: Disturbance,
    tunnel: &StressTunnel,
    disk: Option<&LoopDisk>,
    report: &TrafficReport,
) -> Result<()> {
    match disturbance {
        Disturbance::Storm {
            process,
            kind,
            count,
            seed,
            ..
        } => {
            let victim = tunnel.process(process)?;
            kind.send(victim, count, &mut Random::new(seed), || report.check())
        }
        Disturbance::StoppedKeeper(time) => {
            let keeper = tunnel.process(Process::ServerKeeper)?;
            kill_process(keeper, Signal::STOP)?;
            let hung_up = hang_up(tunnel, Instant::now() + time, report);
            kill_process(keeper, Signal::CONT)?;
            hung_up
        }
        Disturbance::Disk(fault) => {
            let disk = disk.context("invariant: there is a disk")?;
            let filler = match fault {
                DiskFault::Full => Some(disk.fill()?),
                DiskFault::Slow | DiskFault::Hang => None,
            };
            let lasts = if fault == DiskFault::Hang {
                fault.wait()
            } else {
                SLOW_FOR
            };
            let until = Instant::now() + lasts;
            std::thread::scope(|scope| {
                let frozen = scope.spawn(|| {
                    while filler.is_none() && Instant::now() < until {
                        disk.freeze(fault.wait())?;
                    }
                    anyhow::Ok(())
                });
                let hung_up = hang_up(tunnel, until, report);
                frozen
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
                hung_up
            })?;
            filler.map_or(Ok(()), |filler| Ok(std::fs::remove_file(filler)?))
        }
    }
}

/// Sends SIGHUP to both programs again and again, as a rotation of logs does.
fn hang_up(tunnel: &StressTunnel, until: Instant, report: &TrafficReport) -> Result<()> {
    while Instant::now() < until {
        for process in [Process::Server, Process::Client] {
            kill_process(tunnel.process(process)?, Signal::HUP)?;
        }
        pause(HUP_PAUSE, report)?;
    }
    Ok(())
}

/// Lets the traffic flow for a while.
fn pause(time: Duration, report: &TrafficReport) -> Result<()> {
    let until = Instant::now() + time;
    while let Some(left) = until.checked_duration_since(Instant::now()) {
        report.check()?;
        std::thread::park_timeout(left.min(GLANCE));
    }
    Ok(())
}

/// Ends both programs by SIGTERM, followed by SIGHUP. A disk stores the last usage slowly.
fn end(tunnel: &mut StressTunnel, disk: Option<&LoopDisk>) -> Result<()> {
    std::thread::scope(|scope| {
        let frozen = disk.map(|disk| scope.spawn(|| disk.freeze(DiskFault::Slow.wait())));
        let ended = tunnel.end(END);
        if let Some(frozen) = frozen {
            frozen
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        }
        ended
    })
}

/// A disturbance and its outcome.
#[derive(Debug)]
pub struct StressRow {
    /// The events that the tunnel met.
    pub disturbance: Disturbance,
    /// The traffic, or the reason why a rule was broken or the disturbance could not be made.
    pub outcome: Result<TrafficReport, String>,
}

impl StressRow {
    /// Disturbs a tunnel, and keeps the outcome or the error.
    pub fn run(disturbance: Disturbance) -> Self {
        let outcome = run(disturbance).map_err(|error| format!("{error:#}"));
        Self {
            disturbance,
            outcome,
        }
    }

    /// Returns what is wrong with the row, if anything is.
    pub fn finding(&self) -> Option<String> {
        match &self.outcome {
            Err(error) => Some(error.clone()),
            Ok(report) if report.slowest() > HEALTH_MAX => {
                Some(format!("/healthz took {:?}", report.slowest()))
            }
            Ok(_) => None,
        }
    }

    /// Returns the row as a line of a table.
    pub fn markdown(&self) -> String {
        let (process, disturbance) = self.disturbance.words();
        let outcome = match (&self.outcome, self.finding()) {
            (Ok(report), None) => {
                let ms = report.slowest().as_millis();
                format!("{} | 0 | {ms} ms", report.flows())
            }
            (_, finding) => format!("**FORBIDDEN**: {} | |", finding.unwrap_or_default()),
        };
        format!("| {process} | {disturbance} | {outcome} |\n")
    }
}

impl Disturbance {
    /// Returns the process and the disturbance in words.
    pub fn words(self) -> (String, String) {
        match self {
            Self::Storm {
                process,
                entry,
                kind,
                count,
                seed,
            } => {
                let kind = match kind {
                    StormKind::Hup => "SIGHUP",
                    StormKind::User => "SIGUSR1 or SIGUSR2",
                    StormKind::Stop => "SIGSTOP and SIGCONT",
                    StormKind::Mixed => "SIGHUP, SIGUSR1, SIGUSR2 or SIGSTOP and SIGCONT",
                };
                let behind = match entry {
                    TunnelEntry::Forward => "",
                    TunnelEntry::Device => " behind a device",
                    TunnelEntry::Command => " of `quictun run`",
                };
                let process = format!("{}{behind}", name(&process));
                (process, format!("{count} times {kind}, seed {seed}"))
            }
            Self::StoppedKeeper(time) => {
                let text = format!("stopped for {} s, and SIGHUP every 2 s", time.as_secs());
                (name(&Process::ServerKeeper), text)
            }
            Self::Disk(fault) => {
                let fault = match fault {
                    DiskFault::Slow => "every write takes up to 4 s",
                    DiskFault::Full => "full",
                    DiskFault::Hang => "hangs for 30 s",
                };
                (
                    "disk of state and logs".to_owned(),
                    format!("{fault}; SIGHUP every 2 s"),
                )
            }
        }
    }
}

/// Returns the disturbances of the document.
pub fn all(count: u32) -> Vec<Disturbance> {
    let mut all = Vec::new();
    for (process, entry) in PROCESSES {
        let kinds = [StormKind::Hup, StormKind::User, StormKind::Stop];
        for kind in kinds
            .into_iter()
            .filter(|kind| survives(process, entry, *kind))
        {
            let seed = all.len() as u64 + 1;
            all.push(Disturbance::Storm {
                process,
                entry,
                kind,
                count,
                seed,
            });
        }
    }
    all.push(Disturbance::StoppedKeeper(DiskFault::Hang.wait()));
    if LoopDisk::is_possible() {
        all.extend([DiskFault::Slow, DiskFault::Full, DiskFault::Hang].map(Disturbance::Disk));
    }
    all
}
