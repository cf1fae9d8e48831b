//! Cuts the connections under running flows repeatedly: measures time without progress, and verifies every byte.
//!
//! Each flow carries blocks at a steady rate. After a cut, a flow's time without progress is the longest time between
//! two arrivals during which a block was under way, if it ends after the cut. The slowest flow counts.

use std::collections::VecDeque;
use std::io::{self, Write as _};
use std::net::TcpStream;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::{Args, ValueEnum};
use quictun_lab::stats::quantile;
use quictun_testbed::connection::Endpoint;
use quictun_testbed::payload::Payload;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::bystander::{Bystander, EchoTimes, echo};
use super::measured::pause;
use super::processors::Division;
use super::relay::RelayFault;
use super::report::{LoadReport, figure};
use super::tunnel::{LoadOptions, LoadTunnel, allow_files};

/// The direction of the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CutDirection {
    /// The application at the client sends.
    Up,
    /// The application at the server sends.
    Down,
    /// The application at the server echoes what the one at the client sends.
    Echo,
}

/// The cuts to make, and their limits.
#[derive(Clone, Copy, Debug, Args)]
pub struct CutOptions {
    /// Fault that hits the connections.
    #[arg(long, value_enum, default_value = "connection")]
    pub fault: RelayFault,
    /// Seconds of an outage.
    #[arg(long, default_value_t = 3.0)]
    pub seconds: f64,
    /// Direction of the data.
    #[arg(long, value_enum, default_value = "echo")]
    pub way: CutDirection,
    /// Number of cuts to make.
    #[arg(long, default_value_t = 20)]
    pub times: usize,
    /// Number of flows per client.
    #[arg(long, default_value_t = 1)]
    pub flows: usize,
    /// Clients, each a separate process.
    #[arg(long, default_value_t = 1)]
    pub clients: usize,
    /// Blocks of 100 bytes that all flows together send per second, approximately. Each block costs a turn of every
    /// process on its path: many clients on few processors need a lower rate.
    #[arg(long, default_value_t = 10_000)]
    pub blocks: u32,
    /// Maximum of the median time without progress in milliseconds.
    #[arg(long)]
    pub max_median: Option<f64>,
    /// Maximum time without progress after any cut in milliseconds.
    #[arg(long)]
    pub max_worst: Option<f64>,
}

/// The size of a block in bytes.
const BLOCK: usize = 100;

/// The minimum interval between two blocks of a flow.
const TICK: Duration = Duration::from_millis(10);

/// The number of blocks that must arrive after a cut before a flow counts as carried again.
const CARRIED: usize = 5;

/// Blocks that arrive within this time after a cut were in flight when it occurred.
const ON_ITS_WAY: Duration = Duration::from_millis(30);

/// The maximum time without progress; a flow that takes longer fails the run.
pub(super) const FLOW_TIMEOUT: Duration = Duration::from_mins(1);

/// The pause before and after each cut, in which late losses of the last cut are repaired.
const REST: Duration = Duration::from_millis(1500);

/// The results of all cuts.
struct CutResults {
    /// Time without progress in milliseconds: of the slowest flow at each cut, and of every flow at every cut. Both
    /// sorted.
    slowest: Vec<f64>,
    each: Vec<f64>,
    /// For each cut, the time from when data may flow again until all flows are carried.
    back: Vec<Range<Instant>>,
}

impl CutResults {
    fn add_to(&self, report: &mut LoadReport, cut: &CutOptions, echoes: &EchoTimes) {
        let of_cuts = |share| quantile(&self.slowest, share);
        report.add("least", of_cuts(0.0), "ms");
        report.add_limited("median", of_cuts(0.5), "ms", cut.max_median);
        report.add_limited("worst", of_cuts(1.0), "ms", cut.max_worst);
        if cut.flows * cut.clients > 1 {
            for (share, percent) in [(0.5, "p50"), (0.9, "p90")] {
                let name = format!("of all flows, {percent}");
                report.add(name, quantile(&self.each, share), "ms");
            }
        }
        let (meanwhile, otherwise) = echoes.split(&self.back);
        for (when, delays) in [("otherwise", otherwise), ("meanwhile", meanwhile)] {
            for (share, percent) in [(0.5, "p50"), (0.99, "p99"), (1.0, "max")] {
                let name = format!("another client's echoes {when}, {percent}");
                report.add(name, quantile(&delays, share), "ms");
            }
        }
    }
}

/// The blocks of a flow that have been sent and have not arrived: where each ends in the flow, and when it was sent.
type BlocksUnderWay = Arc<Mutex<VecDeque<(u64, Instant)>>>;

/// The receiving end of a flow.
struct FlowSink {
    stream: TcpStream,
    under_way: BlocksUnderWay,
    payload: Payload,
    received: u64,
    last: Instant,
    /// The longest time without progress that ended after the cut.
    pause: Duration,
    /// The number of arrivals after the cut.
    arrivals: usize,
}

impl FlowSink {
    /// Notes that bytes arrived at `now`. Returns the time without progress that this ends.
    fn advance(&mut self, read: u64, now: Instant) -> Duration {
        self.received += read;
        let mut under_way = locked(&self.under_way);
        let waited = under_way.front().map(|(_, sent)| self.last.max(*sent));
        let arrived = under_way.partition_point(|(end, _)| *end <= self.received);
        under_way.drain(..arrived);
        self.last = now;
        waited.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }
}

/// The sending end of a flow.
struct FlowSource {
    stream: TcpStream,
    under_way: BlocksUnderWay,
    payload: Payload,
    sent: u64,
}

impl FlowSource {
    fn send(&mut self, block: &mut [u8]) -> Result<()> {
        self.payload.fill(self.sent, block);
        // The lock keeps the block from arriving before it is noted.
        let mut under_way = locked(&self.under_way);
        match self.stream.write(block) {
            Ok(written) => {
                self.sent += written as u64;
                under_way.push_back((self.sent, Instant::now()));
            }
            // The flow accepts no data while its connection is gone.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error).context("a flow has ended"),
        }
        Ok(())
    }
}

/// Runs flows, cuts their connections, and measures.
///
/// # Errors
///
/// Fails if a flow ends, if a byte is wrong, or if a flow is not carried again within a minute.
pub fn run(plan: &LoadOptions, cut: &CutOptions) -> Result<LoadReport> {
    let count = cut.flows * cut.clients;
    ensure!(
        count > 0 && cut.times > 0 && cut.blocks > 0,
        "nothing to cut: flows, clients, cuts and blocks must be at least 1"
    );
    allow_files(8 * count as u64 + 256)?;
    let processors = (cut.clients > 1).then(Division::begin).transpose()?;
    let (accepted, far) = channel();
    let plan = LoadOptions {
        is_relayed: true,
        ..plan.clone()
    };
    let (mut site, _) = LoadTunnel::start(&plan, |listener| {
        std::thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                if accepted.send(stream).is_err() {
                    return;
                }
            }
        });
    })?;
    let mut delayed = 0;
    if let Some(processors) = &processors {
        delayed += processors.set_apart(&site.server.program)?;
    }
    site.add_clients(&plan, cut.clients - 1)?;
    let (mut sources, mut sinks) = (Vec::new(), Vec::new());
    for forward in site.forwards() {
        let Endpoint::Tcp(forward) = forward else {
            bail!("the client listens on a Unix socket");
        };
        for _ in 0..cut.flows {
            // One at a time, so that the two ends of a flow can be paired.
            let near = site.near(|_| Ok(TcpStream::connect(forward)?))?;
            let reached = far.recv_timeout(FLOW_TIMEOUT);
            let reached =
                reached.with_context(|| format!("flow {} did not arrive", sinks.len()))?;
            let (from, to) = match cut.way {
                CutDirection::Up => (near, reached),
                CutDirection::Down => (reached, near),
                CutDirection::Echo => {
                    let copy = near.try_clone()?;
                    std::thread::spawn(move || echo(reached));
                    (near, copy)
                }
            };
            for stream in [&from, &to] {
                stream.set_nodelay(true)?;
                stream.set_nonblocking(true)?;
            }
            let payload = Payload::new(sinks.len() as u64, u64::MAX);
            let under_way = BlocksUnderWay::default();
            sources.push(FlowSource {
                stream: from,
                under_way: under_way.clone(),
                payload,
                sent: 0,
            });
            sinks.push(FlowSink {
                stream: to,
                under_way,
                payload,
                received: 0,
                last: Instant::now(),
                pause: Duration::ZERO,
                arrivals: 0,
            });
        }
    }
    let start = || Bystander::start(&site, &plan, &far);
    let bystander = match &processors {
        Some(processors) => {
            let bystander = processors.start_apart(start)??;
            delayed += processors.set_apart(bystander.program())?;
            bystander
        }
        None => start()?,
    };
    let carried = carry(&site, cut, sources, sinks)?;
    let echoes = bystander.end()?;
    let mut report = LoadReport::new(format!(
        "{} cuts ({:?}, {:?}), {count} flows of {} clients: time without progress",
        cut.times, cut.fault, cut.way, cut.clients
    ));
    carried.add_to(&mut report, cut, &echoes);
    if processors.is_some() {
        let what = "threads of server and other client that are not real-time";
        report.add(what, figure(delayed as u64), "");
    }
    for (side, bytes) in ["server", "first client"].into_iter().zip(site.memory()?) {
        let mib = figure(bytes) / 1024.0 / 1024.0;
        report.add(format!("{side}: resident"), mib, "MiB");
    }
    site.end()?;
    Ok(report)
}

/// Sends blocks on all flows while their connections are cut.
fn carry(
    site: &LoadTunnel,
    cut: &CutOptions,
    mut sources: Vec<FlowSource>,
    sinks: Vec<FlowSink>,
) -> Result<CutResults> {
    let relay = site.relay.as_ref().context("no relay")?;
    let (over, outage) = (
        AtomicBool::new(false),
        Duration::try_from_secs_f64(cut.seconds)?,
    );
    let (sinks, cut_at) = (Mutex::new(sinks), Mutex::new(Instant::now()));
    std::thread::scope(|scope| {
        let sending = scope.spawn(|| send(&mut sources, cut.blocks, &over));
        let receiving = scope.spawn(|| receive(&sinks, &cut_at, &over));
        let measured = (0..cut.times)
            .map(|number| {
                pause(REST);
                let moment = relay.lose(cut.fault, outage)?;
                *locked(&cut_at) = moment;
                for sink in &mut *locked(&sinks) {
                    (sink.pause, sink.arrivals) = (Duration::ZERO, 0);
                    // No data can arrive during an outage, so only the time after it counts.
                    if cut.fault == RelayFault::Outage {
                        sink.last = moment;
                    }
                }
                let deadline = Instant::now() + FLOW_TIMEOUT;
                while locked(&sinks).iter().any(|sink| sink.arrivals < CARRIED) {
                    let alive = !sending.is_finished() && !receiving.is_finished();
                    ensure!(alive, "a flow ended after cut {number}");
                    ensure!(
                        Instant::now() < deadline,
                        "cut {number}: a flow is not carried again after {FLOW_TIMEOUT:?}"
                    );
                    pause(TICK);
                }
                pause(REST);
                let pauses: Vec<_> = locked(&sinks).iter().map(|sink| sink.pause).collect();
                let slowest = pauses.iter().max().copied().unwrap_or_default();
                Ok((pauses, moment..moment + slowest))
            })
            .collect::<Result<Vec<_>>>();
        over.store(true, Ordering::Relaxed);
        for thread in [sending, receiving] {
            thread
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        }
        let (pauses, back): (Vec<Vec<Duration>>, _) = measured?.into_iter().unzip();
        let slowest = pauses.iter().filter_map(|of_cut| of_cut.iter().max());
        Ok(CutResults {
            slowest: milliseconds(slowest),
            each: milliseconds(pauses.iter().flatten()),
            back,
        })
    })
}

/// Converts durations to milliseconds and sorts them.
fn milliseconds<'a>(times: impl Iterator<Item = &'a Duration>) -> Vec<f64> {
    let mut times: Vec<_> = times.map(|time| time.as_secs_f64() * 1e3).collect();
    times.sort_by(f64::total_cmp);
    times
}

/// Sends blocks on all flows repeatedly, a few flows at a time. If all clients sent at once, they would also all probe
/// their silent server at once.
fn send(sources: &mut [FlowSource], blocks: u32, over: &AtomicBool) -> Result<()> {
    let round = TICK.max(Duration::from_secs(1) * u32::try_from(sources.len())? / blocks);
    let ticks = usize::try_from(round.as_nanos() / TICK.as_nanos())?;
    let at_a_time = sources.len().div_ceil(ticks);
    let mut block = [0; BLOCK];
    let mut next = Instant::now();
    while !over.load(Ordering::Relaxed) {
        for sources in sources.chunks_mut(at_a_time) {
            next = Instant::now().max(next + TICK);
            for source in sources {
                source.send(&mut block)?;
            }
            pause(next.saturating_duration_since(Instant::now()));
        }
    }
    Ok(())
}

/// Verifies received data and records the times of arrival.
fn receive(sinks: &Mutex<Vec<FlowSink>>, cut_at: &Mutex<Instant>, over: &AtomicBool) -> Result<()> {
    let polled: Vec<_> = locked(sinks)
        .iter()
        .map(|sink| sink.stream.try_clone())
        .collect::<io::Result<_>>()?;
    let wait = Timespec::try_from(TICK)?;
    let mut block = vec![0; 64 * 1024];
    while !over.load(Ordering::Relaxed) {
        let mut ready: Vec<_> = polled
            .iter()
            .map(|stream| PollFd::new(stream, PollFlags::IN))
            .collect();
        poll(&mut ready, Some(&wait))?;
        let (now, cut_at) = (Instant::now(), *locked(cut_at));
        let mut sinks = locked(sinks);
        for (number, (sink, ready)) in sinks.iter_mut().zip(&ready).enumerate() {
            if ready.revents().is_empty() {
                continue;
            }
            let read = sink
                .payload
                .read_block(&mut sink.stream, sink.received, &mut block)
                .with_context(|| format!("flow {number}"))?;
            ensure!(read > 0, "flow {number} ended");
            let pause = sink.advance(read as u64, now);
            if now > cut_at + ON_ITS_WAY {
                sink.arrivals += 1;
            }
            if now > cut_at {
                sink.pause = sink.pause.max(pause);
            }
        }
    }
    Ok(())
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_flow_that_has_nothing_under_way_makes_no_pause() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let at = listener.local_addr().expect("it is bound");
        let start = Instant::now();
        let ms = |ms| start + Duration::from_millis(ms);
        let mut sink = FlowSink {
            stream: TcpStream::connect(at).expect("it listens"),
            under_way: BlocksUnderWay::default(),
            payload: Payload::new(0, u64::MAX),
            received: 0,
            last: start,
            pause: Duration::ZERO,
            arrivals: 0,
        };
        let sent = |sink: &FlowSink, end, at| locked(&sink.under_way).push_back((end, at));
        let pause = |ms| Duration::from_millis(ms);
        sent(&sink, 100, ms(1000));
        assert_eq!(sink.advance(40, ms(1020)), pause(20), "since it was sent");
        assert_eq!(
            sink.advance(60, ms(1050)),
            pause(30),
            "since the last arrival"
        );
        sent(&sink, 200, ms(3000));
        sent(&sink, 300, ms(4000));
        assert_eq!(
            sink.advance(200, ms(4500)),
            pause(1500),
            "the first one counts"
        );
        assert!(locked(&sink.under_way).is_empty());
    }
}
