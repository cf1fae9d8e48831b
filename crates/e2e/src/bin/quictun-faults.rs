//! `quictun-faults`: ends or stops each process of a tunnel in each state of a connection, and shows what the
//! applications see. Disturbs each process under load by signals and bad disks, and shows that no flow is lost.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "the output")]

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Parser, ValueEnum};
use quictun_e2e::faults::cell::{Phase, Process, ProcessFault, Sockets};
use quictun_e2e::faults::matrix::{Matrix, MatrixFilter};
use quictun_e2e::faults::oom;
use quictun_e2e::faults::run::FaultOptions;
use quictun_e2e::faults::stress::{self, StressRow};
use quictun_testbed::isolation;

/// Starts a tunnel for each cell of the matrix, with two applications that verify every byte. Applies the fault to one
/// process and prints what each application saw. The exit code is 1 if a TCP connection ends cleanly although bytes are
/// missing, or if anything is lost after SIGTERM.
///
/// The second part disturbs tunnels under load by signals at random moments, and by disks that are slow, full or hang. The
/// exit code is 1 if a flow is lost, or if /healthz takes longer than a second. Bad disks need root.
///
///   cargo run -p quictun-e2e --bin quictun-faults -- --write docs/FAULTS.md
#[derive(Parser)]
#[command(name = "quictun-faults", version, verbatim_doc_comment)]
struct Args {
    /// Runs only this part.
    #[arg(long, value_enum)]
    part: Option<DocumentPart>,
    /// Number of signals to each process under load.
    #[arg(long, default_value_t = 1000)]
    signals: u32,
    /// Tests only this process. Repeatable, as are the next three options.
    #[arg(long, value_enum)]
    process: Vec<Process>,
    /// Tests only this fault.
    #[arg(long, value_enum)]
    fault: Vec<ProcessFault>,
    /// Tests only this phase of the connection.
    #[arg(long, value_enum)]
    phase: Vec<Phase>,
    /// Tests only these sockets.
    #[arg(long, value_enum)]
    sockets: Vec<Sockets>,
    /// Tests a few cells, with short deadlines.
    #[arg(long)]
    quick: bool,
    /// Seconds for which a stopped process stays stopped.
    #[arg(long, value_name = "SECONDS")]
    stop: Option<u64>,
    /// Seconds of silence after which a process considers its peer dead.
    #[arg(long, value_name = "SECONDS")]
    idle_timeout: Option<u64>,
    /// Number of cells that run in parallel.
    #[arg(long, default_value_t = 12)]
    parallel: usize,
    /// Prints one JSON object instead of tables.
    #[arg(long)]
    json: bool,
    /// Writes the tables to this file. The part that was not run stays as it is.
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
}

/// The parts of the document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum DocumentPart {
    /// One connection, and the end of a process.
    Ends,
    /// A tunnel under load, and disturbances without an end.
    Load,
}

/// The heading of the second part of the document.
const LOAD: &str = "## Under load: signals and bad disks";

/// Number of disturbances that run in parallel. Each tunnel carries traffic, which must not fill the machine.
const LOADED: usize = 4;

fn main() -> Result<ExitCode> {
    let args = Args::parse();
    let choice = choice(&args);
    let ends = args.part != Some(DocumentPart::Load);
    let load = args
        .part
        .map_or(is_whole(&args), |part| part == DocumentPart::Load);
    let hosts = [Sockets::Tun, Sockets::Tls];
    if (load || hosts.iter().any(|it| choice.sockets.contains(it)))
        && let Some(code) = isolation::rerun_inside()
            .context("hosts of their own need namespaces, which are not permitted here: use --sockets tcp --sockets unix")?
    {
        return Ok(code);
    }
    // A test checks what applications see, not how long a busy machine takes to drain.
    let [stop, idle_timeout, drain] = if args.quick { [1, 5, 60] } else { [20, 30, 10] };
    let plan = FaultOptions {
        stop: Duration::from_secs(args.stop.unwrap_or(stop)),
        idle_timeout: Duration::from_secs(args.idle_timeout.unwrap_or(idle_timeout)),
        drain: Duration::from_secs(drain),
    };
    let cells = if ends { choice.cells() } else { Vec::new() };
    let matrix = Matrix::run(&cells, &plan, args.parallel, |row| {
        let findings = row.findings();
        let verdict = if findings.is_empty() {
            "ok"
        } else {
            "FORBIDDEN"
        };
        eprintln!("{}: {verdict}", row.cell);
    });
    let rows = if load { under_load(&args) } else { Vec::new() };
    if let Some(path) = &args.write {
        let old = std::fs::read_to_string(path).unwrap_or_default();
        let (old_ends, old_load) = old.split_once(LOAD).unwrap_or((&old, ""));
        let ends = if ends {
            document(&plan, &matrix)? + "\n"
        } else {
            old_ends.to_owned()
        };
        let load = if load {
            load_document(&rows)?
        } else {
            format!("{LOAD}{old_load}")
        };
        std::fs::write(path, ends + &load).with_context(|| path.display().to_string())?;
    }
    if args.json {
        println!("{}", matrix.json());
    } else {
        print!("{}", matrix.markdown());
        print!("{}", table(&rows));
    }
    let mut findings = matrix.findings();
    findings.extend(rows.iter().filter_map(StressRow::finding));
    for finding in &findings {
        eprintln!("forbidden: {finding}");
    }
    Ok(if findings.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Returns whether everything is to run.
fn is_whole(args: &Args) -> bool {
    let filters = [
        args.process.len(),
        args.fault.len(),
        args.phase.len(),
        args.sockets.len(),
    ];
    !args.quick && filters == [0; 4]
}

fn choice(args: &Args) -> MatrixFilter {
    fn or<T: ValueEnum + Clone>(given: &[T], quick: Option<&[T]>) -> Vec<T> {
        match quick {
            _ if !given.is_empty() => given.to_vec(),
            Some(few) => few.to_vec(),
            None => T::value_variants().to_vec(),
        }
    }
    let quick = args.quick;
    MatrixFilter {
        processes: or(
            &args.process,
            quick.then_some(&[Process::Server, Process::Client]),
        ),
        faults: or(
            &args.fault,
            quick.then_some(&[ProcessFault::Term, ProcessFault::Kill, ProcessFault::Stop]),
        ),
        phases: or(&args.phase, quick.then_some(&[Phase::Up, Phase::Down])),
        sockets: or(
            &args.sockets,
            quick.then_some(&[Sockets::Tcp, Sockets::Unix]),
        ),
    }
}

/// Disturbs tunnels under load.
fn under_load(args: &Args) -> Vec<StressRow> {
    let all = stress::all(args.signals);
    let next = AtomicUsize::new(0);
    let rows = Mutex::new(BTreeMap::new());
    std::thread::scope(|scope| {
        for _ in 0..LOADED.min(args.parallel) {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(disturbance) = all.get(index) else {
                        return;
                    };
                    let row = StressRow::run(*disturbance);
                    eprint!("{}", row.markdown());
                    let mut rows = rows.lock().unwrap_or_else(PoisonError::into_inner);
                    rows.insert(index, row);
                }
            });
        }
    });
    let rows = rows.into_inner().unwrap_or_else(PoisonError::into_inner);
    rows.into_values().collect()
}

fn table(rows: &[StressRow]) -> String {
    rows.iter().map(StressRow::markdown).collect()
}

/// Returns the arguments of this program, and the commit.
fn provenance() -> Result<(String, String)> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let git = Command::new("git")
        .args(["rev-parse", "--short=12", "HEAD"])
        .output()?;
    let commit = String::from_utf8_lossy(&git.stdout).trim().to_owned();
    Ok((arguments.join(" "), commit))
}

fn load_document(rows: &[StressRow]) -> Result<String> {
    let (arguments, commit) = provenance()?;
    Ok(format!(
        include_str!("quictun-faults-load.md"),
        heading = LOAD,
        arguments = arguments,
        commit = commit,
        rows = table(rows),
    ))
}

/// Returns the tables as a document that also says how they were produced.
fn document(plan: &FaultOptions, matrix: &Matrix) -> Result<String> {
    let (arguments, commit) = provenance()?;
    let oom = if oom::is_possible() {
        "a control group's memory is used up, and the kernel kills the process"
    } else {
        "no control group could be made there: the process got SIGKILL, which is what the kernel sends"
    };
    let findings = matrix.findings();
    let verdict = if findings.is_empty() {
        "No cell is forbidden.".to_owned()
    } else {
        format!(
            "{} ends of connections saw what is forbidden.",
            findings.len()
        )
    };
    Ok(format!(
        include_str!("quictun-faults.md"),
        arguments = arguments,
        commit = commit,
        verdict = verdict,
        oom = oom,
        stop = plan.stop.as_secs(),
        idle = plan.idle_timeout.as_secs(),
        drain = plan.drain.as_secs(),
        outlive = plan.bond_ttl().as_secs(),
        tables = matrix.markdown(),
    ))
}
