//! `quictun-faults`: ends or stops each process of a tunnel in each state of a connection, and shows what the
//! applications see.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "the output")]

use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Parser, ValueEnum};
use quictun_e2e::faults::cell::{Phase, Process, ProcessFault, Sockets};
use quictun_e2e::faults::matrix::{Matrix, MatrixFilter};
use quictun_e2e::faults::oom;
use quictun_e2e::faults::run::FaultOptions;
use quictun_testbed::isolation;

/// Starts a tunnel for each cell of the matrix, with two applications that verify every byte. Applies the fault to one
/// process and prints what each application saw. The exit code is 1 if a TCP connection ends cleanly although bytes are
/// missing, or if anything is lost after SIGTERM.
///
///   cargo run -p quictun-e2e --bin quictun-faults -- --write docs/FAULTS.md
#[derive(Parser)]
#[command(name = "quictun-faults", version, verbatim_doc_comment)]
struct Args {
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
    /// Writes the tables to this file.
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
}

fn main() -> Result<ExitCode> {
    let args = Args::parse();
    let choice = choice(&args);
    if choice.sockets.contains(&Sockets::Tun)
        && let Some(code) = isolation::rerun_inside()
            .context("TUN devices need namespaces, which are not permitted here: use --sockets tcp --sockets unix")?
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
    let cells = choice.cells();
    let matrix = Matrix::run(&cells, &plan, args.parallel, |row| {
        let findings = row.findings();
        let verdict = if findings.is_empty() {
            "ok"
        } else {
            "FORBIDDEN"
        };
        eprintln!("{}: {verdict}", row.cell);
    });
    if let Some(path) = &args.write {
        let text = document(&plan, &matrix)?;
        std::fs::write(path, text).with_context(|| path.display().to_string())?;
    }
    if args.json {
        println!("{}", matrix.json());
    } else {
        print!("{}", matrix.markdown());
    }
    let findings = matrix.findings();
    for finding in &findings {
        eprintln!("forbidden: {finding}");
    }
    Ok(if findings.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
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

/// Returns the tables as a document that also says how they were produced.
fn document(plan: &FaultOptions, matrix: &Matrix) -> Result<String> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let git = Command::new("git")
        .args(["rev-parse", "--short=12", "HEAD"])
        .output()?;
    let commit = String::from_utf8_lossy(&git.stdout).trim().to_owned();
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
        arguments = arguments.join(" "),
        commit = commit,
        verdict = verdict,
        oom = oom,
        stop = plan.stop.as_secs(),
        idle = plan.idle_timeout.as_secs(),
        drain = plan.drain.as_secs(),
        tables = matrix.markdown(),
    ))
}
