//! Many flows at a time: the memory of an idle flow, its cost for the other flows, and the rate of new connections.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, ensure};
use quictun_lab::put;
use quictun_sys::{NetNamespace, raise_nofile_limit};
use rustix::net::sockopt::set_socket_linger;
use serde_json::{Value, json};

use super::answering::{Responder, RunningResponder};
use super::flags::Options;
use super::load;
use super::service::Service;
use crate::machine::{Machine, float, pause};
use crate::spread;

/// Number of flows in the comparison.
const FEW: usize = 10;

/// Number of echoes in flight, each on a different flow.
const AT_ONCE: usize = FEW;

const CALLERS: usize = 8;

/// Number of descriptors reserved for everything else.
const RESERVE: u64 = 256;

/// Time after which idle flows have released their buffers.
const IDLE: Duration = Duration::from_millis(2500);

#[derive(Clone, Copy, Debug, Default)]
struct CrowdSample {
    per_s: f64,
    kib_each: f64,
    /// Processor time of the stack per echo, us: on few flows, on few beside many idle ones, and on all in turns.
    echo_us: [f64; 3],
}

/// The result of one side's runs: medians, and the maximum of the memory.
pub(crate) struct CrowdRow {
    side: Responder,
    flows: usize,
    sample: CrowdSample,
}

pub(crate) fn measure(
    sides: &[Responder],
    options: &Options,
    machine: &Machine,
    network: &NetNamespace,
    mut say: impl FnMut(&str),
) -> Result<Vec<CrowdRow>> {
    let flows = options.crowd;
    if sides.is_empty() {
        return Ok(Vec::new());
    }
    let limit = raise_nofile_limit().context("raising the limit of open files")?;
    ensure!(
        limit >= flows as u64 + RESERVE,
        "{flows} flows need as many open files, but only {limit} are allowed: raise the hard limit (ulimit -Hn), or use \
         fewer flows with --crowd"
    );
    let mut rows = Vec::new();
    for &side in sides {
        let name = format!("{flows} flows, {}", side.name());
        say(&name);
        let mut samples = Vec::new();
        for _ in 0..options.repeats {
            let sample = once(side, flows, options.run, machine.cores, network);
            samples.push(sample.with_context(|| name.clone())?);
        }
        let all = |of: &dyn Fn(&CrowdSample) -> f64| samples.iter().map(of).collect::<Vec<_>>();
        let median = |of: &dyn Fn(&CrowdSample) -> f64| spread::of(&all(of))[0];
        let sample = CrowdSample {
            per_s: median(&|sample| sample.per_s),
            // Later runs reuse memory that the first one has left.
            kib_each: samples
                .iter()
                .map(|sample| sample.kib_each)
                .fold(0.0, f64::max),
            echo_us: std::array::from_fn(|at| median(&|sample| sample.echo_us[at])),
        };
        rows.push(CrowdRow {
            side,
            flows,
            sample,
        });
    }
    Ok(rows)
}

fn once(
    side: Responder,
    count: usize,
    run: Duration,
    cores: [usize; 2],
    network: &NetNamespace,
) -> Result<CrowdSample> {
    let answering = side.start(&[Service::Echo], false, cores, network)?;
    let target = answering.address(Service::Echo)?;
    let mut sample = CrowdSample::default();
    let mut flows = connect(network, target, FEW)?;
    flows.iter().try_for_each(prepare)?;
    sample.echo_us[0] = cost(&answering, &mut flows, run)?;
    pause(IDLE)?;
    let before = answering.resident()?;
    let began = Instant::now();
    flows.extend(connect(network, target, count)?);
    sample.per_s = float(count as u64) / began.elapsed().as_secs_f64();
    flows.iter().try_for_each(prepare)?;
    pause(IDLE)?;
    let resident = answering.resident()?.saturating_sub(before);
    sample.kib_each = float(resident) / 1024.0 / float(count as u64);
    sample.echo_us[1] = cost(&answering, &mut flows[..FEW], run)?;
    sample.echo_us[2] = cost(&answering, &mut flows, run)?;
    drop(flows);
    answering.stop()?;
    Ok(sample)
}

fn connect(network: &NetNamespace, target: SocketAddr, count: usize) -> Result<Vec<TcpStream>> {
    let caller = |number: usize| {
        let part = count / CALLERS + usize::from(number < count % CALLERS);
        network.within(|| {
            (0..part)
                .map(|_| TcpStream::connect(target))
                .collect::<io::Result<Vec<_>>>()
        })
    };
    thread::scope(|scope| {
        let callers: Vec<_> = (0..CALLERS)
            .map(|number| scope.spawn(move || caller(number)))
            .collect();
        let mut all = Vec::with_capacity(count);
        for caller in callers {
            let some = caller.join().map_err(|_| anyhow!("a thread panicked"))?;
            all.extend(some.context("connecting")?);
        }
        Ok(all)
    })
}

/// Disables Nagle's delay and makes the flow end with a reset. Otherwise the ports would soon run out.
fn prepare(flow: &TcpStream) -> Result<()> {
    flow.set_nodelay(true)?;
    flow.set_read_timeout(Some(load::TIMEOUT))?;
    Ok(set_socket_linger(flow, Some(Duration::ZERO))?)
}

/// Sends a byte and waits for its echo, on one group of flows after another. Returns the stack's processor time per
/// echo, in us.
fn cost(answering: &RunningResponder, flows: &mut [TcpStream], run: Duration) -> Result<f64> {
    let end = Instant::now() + run;
    let (busy, mut echoes) = (answering.busy()?, 0);
    let mut byte = [7];
    // Each flow is used at least once.
    for (number, some) in (0..).zip(rounds(flows.len())) {
        if Instant::now() >= end && number * AT_ONCE >= flows.len() {
            break;
        }
        let some = &mut flows[some];
        for flow in &mut *some {
            flow.write_all(&byte).context("sending one byte")?;
        }
        for flow in &mut *some {
            flow.read_exact(&mut byte).context("receiving its echo")?;
        }
        echoes += some.len() as u64;
    }
    Ok(float(answering.busy()? - busy) / 1000.0 / float(echoes))
}

fn rounds(count: usize) -> impl Iterator<Item = std::ops::Range<usize>> {
    let starts = (0..count).step_by(AT_ONCE).cycle();
    starts.map(move |start| start..count.min(start + AT_ONCE))
}

pub(crate) fn table(rows: &[CrowdRow]) -> String {
    let mut text = String::new();
    for row in rows {
        let ([few, idle, all], name) = (row.sample.echo_us, row.side.name());
        let (many, few_flows) = (
            format!("{} flows, {name}", row.flows),
            format!("{FEW} flows, {name}"),
        );
        put!(
            text,
            "{many:<54} {:.0} connections/s, {:.1} KiB each when idle\n{few_flows:<54} {few:.2} us of the stack for an \
             echo; beside them idle {:.2} times; all in turns {:.2} times\n",
            row.sample.per_s,
            row.sample.kib_each,
            idle / few,
            all / few,
        );
    }
    text
}

pub(crate) fn to_json(rows: &[CrowdRow]) -> Vec<Value> {
    let one = |row: &CrowdRow| {
        let CrowdSample {
            per_s,
            kib_each,
            echo_us: [few, idle, all],
        } = row.sample;
        json!({
            "side": row.side.name(),
            "flows": row.flows,
            "connections_per_s": per_s,
            "idle_kib_each": kib_each,
            "echo_us": few,
            "echo_beside_idle_us": idle,
            "echo_of_all_us": all,
        })
    };
    rows.iter().map(one).collect()
}

pub(crate) const SIDES: [Responder; 2] = [Responder::Stack { offload: true }, Responder::Apart];
