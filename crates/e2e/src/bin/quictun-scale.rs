//! `quictun-scale`: puts load on a pair of quictun programs that it starts itself, and checks limits.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "its report")]

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::{Parser, Subcommand, ValueEnum};
use quictun_e2e::load::churn::{self, Churn};
use quictun_e2e::load::cut::{self, Cut};
use quictun_e2e::load::idle::{self, Idle};
use quictun_e2e::load::pairs::{self, Measure, Pairs};
use quictun_e2e::load::proxy;
use quictun_e2e::load::report::Report;
use quictun_e2e::load::site::{Link, Path, Plan};
use quictun_e2e::load::stalled::{self, Direction, Stalled};
use quictun_e2e::load::{cost, rr, verify};
use quictun_link::units::{Delay, Rate, Share};
use quictun_testbed::isolation;

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
    /// Where the programs run: on loopback, in two network namespaces joined by a veth pair (or by one that carries single
    /// packets, without offloads), or behind an emulated link.
    #[arg(long, global = true, value_enum, default_value = "loopback")]
    link: LinkName,
    /// Rate of the emulated link.
    #[arg(long, global = true, default_value = "600mbit")]
    rate: Rate,
    /// Round-trip time of the emulated link.
    #[arg(long, global = true, default_value = "20ms")]
    rtt: Delay,
    /// Share of packets that the emulated link loses.
    #[arg(long, global = true, default_value = "0%")]
    loss: Share,
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
    Packets,
    Emulated,
}

#[derive(Subcommand)]
enum Load {
    /// Holds idle flows: resident memory of each, processor time and wake-ups of all.
    Idle {
        /// How many.
        #[arg(long, default_value_t = 10_000)]
        flows: usize,
        /// KiB resident that a flow may cost at each end.
        #[arg(long, default_value_t = 12.0)]
        max_kib: f64,
        /// Seconds for which both programs are watched.
        #[arg(long, default_value_t = 10.0)]
        seconds: f64,
        /// Percent of a processor that each end may take meanwhile.
        #[arg(long)]
        max_processor: Option<f64>,
        /// Times a second that threads of each end may be woken meanwhile.
        #[arg(long)]
        max_wakes: Option<f64>,
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
    /// Measures one active flow alone and beside flows whose applications do not read, all on one connection.
    Stalled {
        /// How many do not read.
        #[arg(long, default_value_t = 1000)]
        flows: usize,
        /// Which ones.
        #[arg(long, value_enum, default_value = "downloads")]
        direction: Direction,
        /// Measurements alone and beside them, in turns.
        #[arg(long, default_value_t = 5)]
        repetitions: usize,
        /// Seconds of each transfer.
        #[arg(long, default_value_t = 4.0)]
        seconds: f64,
        /// Round trips of one byte.
        #[arg(long, default_value_t = 1000)]
        echoes: usize,
        /// Least rate beside them, as a share of the rate alone.
        #[arg(long, default_value_t = 0.9)]
        least_rate: f64,
        /// Largest 99th percentile of the delay beside them, as a multiple of the one alone.
        #[arg(long, default_value_t = 2.0)]
        most_delay: f64,
    },
    /// Measures two builds in turns: the ratio of their figures, with an exact interval of 95 %.
    Pairs {
        /// Directory of the earlier build's quictun-server and quictun-client. Without it, the same build with --before-arg is
        /// the earlier one.
        #[arg(long, value_name = "DIR", required_unless_present = "before_arg")]
        before: Option<PathBuf>,
        /// One more argument for both of the earlier build's programs, as --before-arg=--bond-ttl=0s. Repeatable.
        #[arg(long, value_name = "ARGUMENT", allow_hyphen_values = true)]
        before_arg: Vec<String>,
        /// What is measured.
        #[arg(long, value_enum, default_value = "throughput")]
        measure: Measure,
        /// How many pairs.
        #[arg(long, default_value_t = 20)]
        pairs: usize,
        /// Seconds of each measurement of a rate.
        #[arg(long, default_value_t = 3.0)]
        seconds: f64,
        /// Least ratio that the interval may reach: this build over the earlier one.
        #[arg(long, default_value_t = 0.97)]
        least: f64,
    },
    /// Samples both programs with perf during an upload: what a packet costs, by cost centre.
    Cost {
        /// Seconds of each sampling.
        #[arg(long, default_value_t = 5.0)]
        seconds: f64,
        /// Directory of the programs, where they are not those under test.
        #[arg(long, value_name = "DIR")]
        programs: Option<PathBuf>,
        /// Directory of an earlier build's programs: writes docs/COST.md, for four links, instead of a table for one.
        #[arg(long, value_name = "DIR")]
        before: Option<PathBuf>,
    },
    /// Cuts the connections under running flows again and again: time without progress.
    Cut(Cut),
    /// Opens connections through `-L` and `-D` of one client in turns: what the proxy adds to the first byte.
    Proxy {
        /// How many each way.
        #[arg(long, default_value_t = 5000)]
        count: usize,
        /// Milliseconds that the proxy may add to the median.
        #[arg(long, default_value_t = 0.2)]
        max_added_ms: f64,
        /// Percent by which the client's memory may grow after the first tenth.
        #[arg(long, default_value_t = 5.0)]
        max_growth: f64,
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
    let document = matches!(
        args.load,
        Load::Cost {
            before: Some(_),
            ..
        }
    );
    if (document || !matches!(args.link, LinkName::Loopback))
        && let Some(code) = isolation::rerun_inside()?
    {
        return Ok(code);
    }
    let link = match args.link {
        LinkName::Loopback => Link::Loopback,
        LinkName::Veth => Link::Veth,
        LinkName::Packets => Link::Packets,
        LinkName::Emulated => Link::Emulated(Path {
            rate: args.rate.0,
            round_trip: args.rtt.0,
            loss: args.loss.0,
        }),
    };
    let plan = Plan {
        link,
        server: args.server_arg,
        client: args.client_arg,
        programs: None,
        is_relayed: false,
    };
    let Some(report) = run(args.load, &plan)? else {
        return Ok(ExitCode::SUCCESS);
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

/// Runs a load; `None`: there is no table to print.
fn run(load: Load, plan: &Plan) -> Result<Option<Report>> {
    Ok(Some(match load {
        Load::Idle {
            flows,
            max_kib,
            seconds,
            max_processor,
            max_wakes,
        } => idle::run(
            plan,
            Idle {
                flows,
                time: Duration::try_from_secs_f64(seconds)?,
                kib: Some(max_kib),
                processor: max_processor,
                wakes: max_wakes,
            },
        )?,
        Load::Churn {
            flows,
            parallel,
            max_growth,
            max_descriptors,
        } => churn::run(
            plan,
            Churn {
                flows,
                parallel,
                growth_percent: Some(max_growth),
                descriptors: Some(max_descriptors),
            },
        )?,
        Load::Verify { flows, bytes } => verify::run(plan, flows, bytes)?,
        Load::Rr {
            count,
            max_added_us,
        } => rr::run(plan, count, Some(max_added_us))?,
        Load::Proxy {
            count,
            max_added_ms,
            max_growth,
        } => {
            let limits = proxy::Limits {
                added_ms: max_added_ms,
                growth_percent: max_growth,
            };
            proxy::run(count, limits)?
        }
        Load::Stalled {
            flows,
            direction,
            repetitions,
            seconds,
            echoes,
            least_rate,
            most_delay,
        } => {
            let mut plan = plan.clone();
            plan.client.push("--connections=1".to_owned());
            let load = Stalled {
                flows,
                direction,
                repetitions,
                time: Duration::try_from_secs_f64(seconds)?,
                echoes,
                least_rate,
                most_delay,
            };
            stalled::run(&plan, load)?
        }
        Load::Pairs {
            before,
            before_arg,
            measure,
            pairs,
            seconds,
            least,
        } => {
            let load = Pairs {
                before: before.map(|before| before.canonicalize()).transpose()?,
                before_arguments: before_arg,
                measure,
                pairs,
                time: Duration::try_from_secs_f64(seconds)?,
                least,
            };
            pairs::run(plan, &load)?
        }
        Load::Cost {
            seconds,
            programs,
            before,
        } => {
            let programs = programs
                .map(|programs| programs.canonicalize())
                .transpose()?;
            let plan = Plan {
                programs,
                ..plan.clone()
            };
            let time = Duration::try_from_secs_f64(seconds)?;
            let Some(before) = before else {
                return cost::run(&plan, time).map(Some);
            };
            print!("{}", cost::document(&plan, &before.canonicalize()?, time)?);
            return Ok(None);
        }
        Load::Cut(load) => cut::run(plan, &load)?,
        Load::Hold { address } => {
            idle::hold(address, |line| println!("{line}"))?;
            return Ok(None);
        }
    }))
}
