//! `quictun-scale`: puts load on a pair of quictun programs that it starts itself, and checks limits.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "its report")]

use std::net::SocketAddr;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand, ValueEnum};
use quictun_e2e::isolation;
use quictun_e2e::load::churn::{self, Churn};
use quictun_e2e::load::site::{Link, Plan};
use quictun_e2e::load::{idle, rr, verify};

/// Starts quictun-server, quictun-client and an application, puts load on them, and prints a table.
/// Ends with 1 where a limit is exceeded.
///
///   cargo run --release -p quictun-e2e --bin quictun-scale -- idle --flows 10000
#[derive(Parser)]
#[command(name = "quictun-scale", version, verbatim_doc_comment)]
struct Args {
    #[command(subcommand)]
    load: Load,
    /// One JSON object instead of a table.
    #[arg(long, global = true)]
    json: bool,
    /// Where the programs run: on loopback, or in two network namespaces joined by a veth pair.
    #[arg(long, global = true, value_enum, default_value = "loopback")]
    link: LinkName,
    /// One more argument for quictun-server, as --server-arg=--workers=1. Repeatable.
    #[arg(
        long,
        global = true,
        value_name = "ARGUMENT",
        allow_hyphen_values = true
    )]
    server_arg: Vec<String>,
    /// One more argument for quictun-client. Repeatable.
    #[arg(
        long,
        global = true,
        value_name = "ARGUMENT",
        allow_hyphen_values = true
    )]
    client_arg: Vec<String>,
}

#[derive(Clone, Copy, ValueEnum)]
enum LinkName {
    Loopback,
    Veth,
}

#[derive(Subcommand)]
enum Load {
    /// Holds idle flows: resident memory of each.
    Idle {
        /// How many.
        #[arg(long, default_value_t = 10_000)]
        flows: usize,
        /// KiB resident that a flow may cost at each end.
        #[arg(long, default_value_t = 12.0)]
        max_kib: f64,
    },
    /// Opens and closes flows: memory stays flat, no descriptor and no stream is left.
    Churn {
        /// How many in all.
        #[arg(long, default_value_t = 200_000)]
        flows: u64,
        /// How many at once.
        #[arg(long, default_value_t = 100)]
        parallel: u64,
        /// Percent by which memory may grow after the first tenth of the flows.
        #[arg(long, default_value_t = 5.0)]
        max_growth: f64,
        /// Descriptors that may be left.
        #[arg(long, default_value_t = 4.0)]
        max_descriptors: f64,
    },
    /// Moves data on many flows at once, both ways, and verifies every byte.
    Verify {
        /// How many at once.
        #[arg(long, default_value_t = 1000)]
        flows: usize,
        /// Bytes each way on each.
        #[arg(long, default_value_t = 1_000_000)]
        bytes: u64,
    },
    /// The application of `idle`.
    #[command(hide = true)]
    Hold {
        /// Where to listen.
        address: SocketAddr,
    },
    /// Sends one byte there and back: what the tunnel adds to a round trip.
    Rr {
        /// How often.
        #[arg(long, default_value_t = 20_000)]
        count: usize,
        /// Microseconds that the tunnel may add to the median.
        #[arg(long, default_value_t = 40.0)]
        max_added_us: f64,
    },
}

fn main() -> Result<ExitCode> {
    let args = Args::parse();
    let link = match args.link {
        LinkName::Loopback => Link::Loopback,
        LinkName::Veth => {
            if let Some(code) = isolation::rerun_inside()? {
                return Ok(code);
            }
            Link::Veth
        }
    };
    let plan = Plan {
        link,
        server: args.server_arg,
        client: args.client_arg,
    };
    let report = match args.load {
        Load::Idle { flows, max_kib } => idle::run(&plan, flows, Some(max_kib))?,
        Load::Churn {
            flows,
            parallel,
            max_growth,
            max_descriptors,
        } => churn::run(
            &plan,
            Churn {
                flows,
                parallel,
                growth_percent: Some(max_growth),
                descriptors: Some(max_descriptors),
            },
        )?,
        Load::Verify { flows, bytes } => verify::run(&plan, flows, bytes)?,
        Load::Rr {
            count,
            max_added_us,
        } => rr::run(&plan, count, Some(max_added_us))?,
        Load::Hold { address } => {
            idle::hold(address, |line| println!("{line}"))?;
            return Ok(ExitCode::SUCCESS);
        }
    };
    if args.json {
        println!("{}", report.json());
    } else {
        print!("{report}");
    }
    Ok(if report.is_kept() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
