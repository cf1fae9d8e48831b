//! `quictun-attack`: starts a server of this workspace, attacks it, and checks the cost to the server.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "the output")]

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use quictun_e2e::attack::matrix::{self, Attack};
use quictun_e2e::attack::outcome::AttackOutcome;
use quictun_e2e::attack::run::AttackOptions;
use quictun_e2e::attack::targets;
use quictun_testbed::{binaries, isolation};

/// Starts a server with a memory budget and an honest client, and attacks the server. Prints its memory growth, the
/// flows that it served, and the waiting times of honest clients. The exit code is 1 if a limit is exceeded: growth of
/// the budget plus 8 MiB, 2 s until an honest flow's first byte, and nothing left of flows that were reset.
///
/// The columns: connections established out of all started; flows answered, refused and opened; bytes sent on streams;
/// the longest wait for a first byte and the flows served out of all, for the client that existed before the attack and
/// for new ones; the peak number of descriptors. A growth with > means that the attack was stopped early.
///
///   cargo run --release -p quictun-e2e --bin quictun-attack -- first-byte-missing --memory-budget 4M
#[derive(Parser)]
#[command(name = "quictun-attack", version, verbatim_doc_comment)]
struct Args {
    #[command(subcommand)]
    what: AttackChoice,
    /// Prints one JSON object per line instead of a table.
    #[arg(long, global = true)]
    json: bool,
    /// Directory of quictun, quictun-server and quictun-client; if not given, cargo builds them.
    #[arg(long, global = true, value_name = "DIR")]
    bin_dir: Option<PathBuf>,
    /// The server's memory budget, such as 4M or 1G; if not given, the server's default.
    #[arg(long, global = true, value_name = "SIZE", value_parser = size)]
    memory_budget: Option<u64>,
    /// The allowed memory growth of the server, such as 512M; if not given, its budget plus 8 MiB.
    #[arg(long, global = true, value_name = "SIZE", value_parser = size)]
    limit: Option<u64>,
    /// Maximum duration of an attack in seconds.
    #[arg(long, global = true, default_value_t = 30)]
    seconds: u64,
    /// Seconds for which honest clients are observed after the attack has reached its full effect.
    #[arg(long, global = true, default_value_t = 3)]
    hold: u64,
    /// An additional argument for the server, such as --server-arg=--workers=1. Repeatable.
    #[arg(
        long,
        global = true,
        value_name = "ARGUMENT",
        allow_hyphen_values = true
    )]
    server_arg: Vec<String>,
}

#[derive(Subcommand)]
enum AttackChoice {
    #[command(flatten)]
    One(Attack),
    /// Runs every attack with every budget, and 10 000 strangers against the default budget with a limit of 512 MiB.
    All {
        /// Memory budgets, separated by commas.
        #[arg(long, value_delimiter = ',', default_value = "4M,64M,1G", value_parser = size)]
        budgets: Vec<u64>,
    },
    /// Runs the targets of downloads.
    #[command(hide = true)]
    Feed {
        /// Number of addresses to listen on.
        listeners: usize,
    },
}

fn main() -> Result<ExitCode> {
    let args = Args::parse();
    if let AttackChoice::Feed { listeners } = args.what {
        targets::feed(listeners, |line| println!("{line}"))?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(directory) = &args.bin_dir
        && std::env::var_os(binaries::DIRECTORY).is_none()
    {
        return again(directory);
    }
    if let Some(code) = isolation::rerun_inside()? {
        return Ok(code);
    }
    let terms = AttackOptions {
        budget: args.memory_budget,
        limit: args.limit,
        most: Duration::from_secs(args.seconds),
        hold: Duration::from_secs(args.hold),
        descriptors: None,
        server: args.server_arg,
        tcp_sources: 0,
    };
    let mut tell = |outcome: &AttackOutcome| {
        if args.json {
            println!("{}", outcome.json());
        } else {
            println!("{outcome}");
        }
    };
    if !args.json {
        println!("{}", AttackOutcome::heading());
    }
    let outcomes = match &args.what {
        AttackChoice::One(attack) => attack.run(&terms, &mut tell)?,
        AttackChoice::All { budgets } => matrix::all(&terms, budgets, &mut tell)?,
        AttackChoice::Feed { .. } => Vec::new(),
    };
    let kept = outcomes.iter().all(|outcome| outcome.exceeded().is_empty());
    Ok(if kept {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Runs this program again, with the environment variable in place of the flag: a process cannot safely change its own
/// environment.
fn again(directory: &Path) -> Result<ExitCode> {
    let directory = directory
        .canonicalize()
        .with_context(|| format!("resolving the directory {}", directory.display()))?;
    let status = Command::new(std::env::current_exe()?)
        .args(std::env::args_os().skip(1))
        .env(binaries::DIRECTORY, directory)
        .status()?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(code.map_or(ExitCode::FAILURE, ExitCode::from))
}

/// Parses a size in bytes: `4M`, `64M`, `1G`, `512K`.
fn size(text: &str) -> Result<u64, String> {
    let (digits, unit) = text.split_at(text.trim_end_matches(char::is_alphabetic).len());
    let shift = match unit {
        "" => 0,
        "K" | "KiB" => 10,
        "M" | "MiB" => 20,
        "G" | "GiB" => 30,
        _ => return Err(format!("{unit:?} is not a unit: use K, M or G")),
    };
    let number: u64 = digits.parse().map_err(|_| format!("bad size {text:?}"))?;
    number
        .checked_mul(1 << shift)
        .ok_or_else(|| format!("{text} is too large"))
}
