//! `quictun-attack`: attacks a server of ours that it starts itself, and checks what that costs the server.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "its report")]

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use quictun_e2e::attack::matrix::{self, Attack};
use quictun_e2e::attack::outcome::Outcome;
use quictun_e2e::attack::stage::Terms;
use quictun_e2e::attack::targets;
use quictun_testbed::{binaries, isolation};

/// Starts a server with a memory budget and an honest client, attacks the server, and prints by how much it grew,
/// whom it served, and how long honest clients waited. Ends with 1 where a limit is exceeded: the budget and
/// 8 MiB, 2 s until an honest flow's first byte, and nothing left of flows that were reset.
///
/// The columns: connections established of all begun; flows answered, refused, and all; bytes sent on streams; the
/// longest wait for a first byte and flows served of all, for the client that was there before and for new ones; the
/// most descriptors. A growth with > was still going on when the attack was broken off.
///
///   cargo run --release -p quictun-e2e --bin quictun-attack -- first-byte-missing --memory-budget 4M
#[derive(Parser)]
#[command(name = "quictun-attack", version, verbatim_doc_comment)]
struct Args {
    #[command(subcommand)]
    what: What,
    /// One JSON object per line instead of a table.
    #[arg(long, global = true)]
    json: bool,
    /// Directory of quictun, quictun-server and quictun-client; without it they are built.
    #[arg(long, global = true, value_name = "DIR")]
    bin_dir: Option<PathBuf>,
    /// The server's budget, as 4M or 1G; without it the server's default.
    #[arg(long, global = true, value_name = "SIZE", value_parser = size)]
    memory_budget: Option<u64>,
    /// How far the server may grow, as 512M; without it by its budget and 8 MiB.
    #[arg(long, global = true, value_name = "SIZE", value_parser = size)]
    limit: Option<u64>,
    /// Seconds that an attack may take, at most.
    #[arg(long, global = true, default_value_t = 30)]
    seconds: u64,
    /// Seconds that honest clients are looked at when the attack has all that it can have.
    #[arg(long, global = true, default_value_t = 3)]
    hold: u64,
    /// One more argument for the server, as --server-arg=--workers=1. Repeatable.
    #[arg(
        long,
        global = true,
        value_name = "ARGUMENT",
        allow_hyphen_values = true
    )]
    server_arg: Vec<String>,
}

#[derive(Subcommand)]
enum What {
    #[command(flatten)]
    One(Attack),
    /// Every attack for every budget, and 10 000 strangers against the default budget and 512 MiB.
    All {
        /// Budgets, separated by commas.
        #[arg(long, value_delimiter = ',', default_value = "4M,64M,1G", value_parser = size)]
        budgets: Vec<u64>,
    },
    /// The targets of downloads.
    #[command(hide = true)]
    Feed {
        /// On how many addresses to listen.
        listeners: usize,
    },
}

fn main() -> Result<ExitCode> {
    let args = Args::parse();
    if let What::Feed { listeners } = args.what {
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
    let terms = Terms {
        budget: args.memory_budget,
        limit: args.limit,
        most: Duration::from_secs(args.seconds),
        hold: Duration::from_secs(args.hold),
        server: args.server_arg,
    };
    let mut tell = |outcome: &Outcome| {
        if args.json {
            println!("{}", outcome.json());
        } else {
            println!("{outcome}");
        }
    };
    if !args.json {
        println!("{}", Outcome::heading());
    }
    let outcomes = match &args.what {
        What::One(attack) => attack.run(&terms, &mut tell)?,
        What::All { budgets } => matrix::all(&terms, budgets, &mut tell)?,
        What::Feed { .. } => Vec::new(),
    };
    let kept = outcomes.iter().all(|outcome| outcome.exceeded().is_empty());
    Ok(if kept {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Runs this program again, with the environment variable in place of the flag: this process may not change its own.
fn again(directory: &Path) -> Result<ExitCode> {
    let directory = directory
        .canonicalize()
        .with_context(|| format!("{}", directory.display()))?;
    let status = Command::new(std::env::current_exe()?)
        .args(std::env::args_os().skip(1))
        .env(binaries::DIRECTORY, directory)
        .status()?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(code.map_or(ExitCode::FAILURE, ExitCode::from))
}

/// Bytes of `4M`, `64M`, `1G`, `512K`.
fn size(text: &str) -> Result<u64, String> {
    let (digits, unit) = text.split_at(text.trim_end_matches(char::is_alphabetic).len());
    let shift = match unit {
        "" => 0,
        "K" | "KiB" => 10,
        "M" | "MiB" => 20,
        "G" | "GiB" => 30,
        _ => return Err(format!("{unit:?} is no unit: K, M or G")),
    };
    let number: u64 = digits.parse().map_err(|_| format!("{text:?} is no size"))?;
    number
        .checked_mul(1 << shift)
        .ok_or_else(|| format!("{text} is too large"))
}
