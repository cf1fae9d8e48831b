//! `quictun-scale`: starts a pair of quictun programs, puts load on them, and checks limits.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "the output")]

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::{Parser, Subcommand, ValueEnum};
use quictun_e2e::load::carriers::{self, CarriersLoad, CarriersPlan};
use quictun_e2e::load::churn::{self, Churn};
use quictun_e2e::load::cut::{self, CutOptions};
use quictun_e2e::load::datagrams::{self, DatagramsLoad};
use quictun_e2e::load::https::{self, HttpsOptions};
use quictun_e2e::load::idle::{self, Idle};
use quictun_e2e::load::kinds::{self, Kinds};
use quictun_e2e::load::machines::{EmulatedPath, LinkKind};
use quictun_e2e::load::pairs::{self, Measure, Pairs};
use quictun_e2e::load::proxy;
use quictun_e2e::load::report::LoadReport;
use quictun_e2e::load::socks::{self, Socks};
use quictun_e2e::load::stalled::{self, Stalled, StalledDirection};
use quictun_e2e::load::tunnel::LoadOptions;
use quictun_e2e::load::{cost, rr, verify};
use quictun_link::units::{Delay, Rate, Share};
use quictun_testbed::isolation;

/// Starts quictun-server, quictun-client and an application, puts load on them, and prints a table. The exit code is 1
/// if a limit is exceeded.
///
///   cargo run --release -p quictun-e2e --bin quictun-scale -- idle --flows 10000
#[derive(Parser)]
#[command(name = "quictun-scale", version, verbatim_doc_comment)]
struct Args {
    #[command(subcommand)]
    load: Load,
    /// Prints one JSON object instead of a table.
    #[arg(long, global = true)]
    json: bool,
    /// Link between the programs: loopback, two network namespaces connected by a veth pair (or by one that carries
    /// single packets, without offloads), or an emulated link.
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
    /// An additional argument for quictun-server, such as --server-arg=--workers=1. Repeatable.
    #[arg(
        long,
        global = true,
        value_name = "ARGUMENT",
        allow_hyphen_values = true
    )]
    server_arg: Vec<String>,
    /// An additional argument for quictun-client. Repeatable.
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
    /// Holds idle flows: measures resident memory per flow, processor time and wake-ups.
    Idle {
        /// Number of idle flows to hold.
        #[arg(long, default_value_t = 10_000)]
        flows: usize,
        /// Resident KiB that a flow may cost at each end.
        #[arg(long, default_value_t = 12.0)]
        max_kib: f64,
        /// Seconds for which both programs are observed.
        #[arg(long, default_value_t = 10.0)]
        seconds: f64,
        /// Percent of a processor that each end may use meanwhile.
        #[arg(long)]
        max_processor: Option<f64>,
        /// Wake-ups per second that the threads of each end may have meanwhile.
        #[arg(long)]
        max_wakes: Option<f64>,
    },
    /// Opens and closes flows: memory must stay flat, and no descriptor or stream may be left.
    Churn {
        /// Total number of flows.
        #[arg(long, default_value_t = 200_000)]
        flows: u64,
        /// Number of concurrent flows.
        #[arg(long, default_value_t = 100)]
        parallel: u64,
        /// Percent by which memory may grow after the first tenth of the flows.
        #[arg(long, default_value_t = 5.0)]
        max_growth: f64,
        /// Maximum number of additional descriptors that each program may hold after the flows.
        #[arg(long, default_value_t = 4.0)]
        max_descriptors: f64,
    },
    /// Transfers data on many concurrent flows in both directions, and verifies every byte.
    Verify {
        /// Number of concurrent flows.
        #[arg(long, default_value_t = 1000)]
        flows: usize,
        /// Bytes per flow and direction.
        #[arg(long, default_value_t = 1_000_000)]
        bytes: u64,
    },
    /// Measures one active flow alone and beside flows whose applications do not read, all on one connection.
    Stalled {
        /// Number of flows that are not read.
        #[arg(long, default_value_t = 1000)]
        flows: usize,
        /// Direction of the flows that are not read.
        #[arg(long, value_enum, default_value = "downloads")]
        direction: StalledDirection,
        /// Number of measurements alone and beside them, in turn.
        #[arg(long, default_value_t = 5)]
        repetitions: usize,
        /// Seconds that each transfer takes.
        #[arg(long, default_value_t = 4.0)]
        seconds: f64,
        /// Number of round trips of one byte.
        #[arg(long, default_value_t = 1000)]
        echoes: usize,
        /// Minimum rate beside them, as a share of the rate alone.
        #[arg(long, default_value_t = 0.9)]
        least_rate: f64,
        /// Maximum 99th percentile of the delay beside them, as a multiple of that alone.
        #[arg(long, default_value_t = 2.0)]
        most_delay: f64,
    },
    /// Measures two builds in turn: the ratio of their figures, with an exact 95 % interval.
    Pairs {
        /// Directory of the earlier build's quictun-server and quictun-client. If not given, the earlier build is the
        /// same build with --before-arg.
        #[arg(long, value_name = "DIR", required_unless_present = "before_arg")]
        before: Option<PathBuf>,
        /// An additional argument for both programs of the earlier build, such as --before-arg=--bond-ttl=0s.
        /// Repeatable.
        #[arg(long, value_name = "ARGUMENT", allow_hyphen_values = true)]
        before_arg: Vec<String>,
        /// The quantity to measure.
        #[arg(long, value_enum, default_value = "throughput")]
        measure: Measure,
        /// Number of pairs to measure.
        #[arg(long, default_value_t = 20)]
        pairs: usize,
        /// Seconds per measurement of a rate.
        #[arg(long, default_value_t = 3.0)]
        seconds: f64,
        /// Minimum ratio of this build to the earlier one that the interval may reach.
        #[arg(long, default_value_t = 0.97)]
        least: f64,
    },
    /// Samples both programs with perf during an upload: the cost of a packet by cost centre.
    Cost {
        /// Seconds that each sampling takes.
        #[arg(long, default_value_t = 5.0)]
        seconds: f64,
        /// Directory of the programs, if they are not the ones under test.
        #[arg(long, value_name = "DIR")]
        programs: Option<PathBuf>,
        /// Directory of an earlier build's programs: prints docs/COST.md, for four links, instead of a table for one.
        #[arg(long, value_name = "DIR")]
        before: Option<PathBuf>,
    },
    /// Cuts the connections under running flows repeatedly: measures time without progress.
    Cut(CutOptions),
    /// Opens connections through `-L` and `-D` of one client in turn: measures the time that the proxy adds to the
    /// first byte.
    Proxy {
        /// Number of connections through each.
        #[arg(long, default_value_t = 5000)]
        count: usize,
        /// Milliseconds that the proxy may add to the median.
        #[arg(long, default_value_t = 0.2)]
        max_added_ms: f64,
        /// Percent by which the client's memory may grow after the first tenth.
        #[arg(long, default_value_t = 5.0)]
        max_growth: f64,
    },
    /// Opens connections through `-D` and `-L` of one client at a fixed rate, in turns of one second: measures the time
    /// to the first byte of a 64-byte answer, and the memory of both programs.
    Socks(Socks),
    /// Measures another kind of forward and `-L` in turn, on two network namespaces with a cable: the ratio of their
    /// throughputs, with an exact 95 % interval.
    Kinds(Kinds),
    /// Measures the server's HTTPS proxy, and stunnel and the stream module of nginx beside it, in turn: the ratios of
    /// their throughputs, with exact 95 % intervals.
    Https(HttpsOptions),
    /// Measures both carriers of a native tunnel, QUIC and TLS over TCP.
    #[command(subcommand)]
    Carriers(CarriersLoad),
    /// Measures datagrams through `-L udp:`.
    #[command(subcommand)]
    Datagrams(DatagramsLoad),
    /// Runs the application of `idle`.
    #[command(hide = true)]
    Hold {
        /// Address to listen on.
        address: SocketAddr,
    },
    /// Sends one byte to an echo and back: measures the time that the tunnel adds to a round trip.
    Rr {
        /// Number of round trips.
        #[arg(long, default_value_t = 20_000)]
        count: usize,
        /// Microseconds that the tunnel may add to the median.
        #[arg(long, default_value_t = 40.0)]
        max_added_us: f64,
    },
}

fn main() -> Result<ExitCode> {
    let args = Args::parse();
    let isolates = matches!(
        args.load,
        Load::Kinds(_)
            | Load::Carriers(_)
            | Load::Datagrams(_)
            | Load::Cost {
                before: Some(_),
                ..
            }
    );
    if (isolates || !matches!(args.link, LinkName::Loopback))
        && let Some(code) = isolation::rerun_inside()?
    {
        return Ok(code);
    }
    let path = EmulatedPath {
        rate: args.rate.0,
        round_trip: args.rtt.0,
        jitter: Duration::ZERO,
        loss: args.loss.0,
    };
    let link = match args.link {
        LinkName::Loopback => LinkKind::Loopback,
        LinkName::Veth => LinkKind::Veth,
        LinkName::Packets => LinkKind::Packets,
        LinkName::Emulated => LinkKind::Emulated(path.clone()),
    };
    let plan = LoadOptions {
        link,
        server: args.server_arg,
        client: args.client_arg,
        programs: None,
        is_relayed: false,
    };
    let Some(report) = run(args.load, &plan, path)? else {
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

/// Runs a load; returns `None` if there is no table to print.
fn run(load: Load, plan: &LoadOptions, path: EmulatedPath) -> Result<Option<LoadReport>> {
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
        Load::Socks(load) => socks::run(load)?,
        Load::Kinds(load) => kinds::run(&load)?,
        Load::Https(load) => https::run(&plan.link, &load)?,
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
            let plan = LoadOptions {
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
        Load::Carriers(load) => carriers::run(&carriers_plan(plan, path), &load)?,
        Load::Datagrams(load) => datagrams::run(plan, path, &load)?,
        Load::Hold { address } => {
            idle::hold(address, |line| println!("{line}"))?;
            return Ok(None);
        }
    }))
}

fn carriers_plan(plan: &LoadOptions, path: EmulatedPath) -> CarriersPlan {
    let cables = match &plan.link {
        LinkKind::Loopback => vec![LinkKind::Veth, LinkKind::Packets],
        one => vec![one.clone()],
    };
    CarriersPlan {
        path,
        cables,
        server: plan.server.clone(),
        client: plan.client.clone(),
    }
}
