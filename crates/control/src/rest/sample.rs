//! Samples the workers, shares each sample between requests that arrive together, and computes rates between samples.
//!
//! One task owns the [`Sampler`]. A handler sends it a [`SampleRequest`] and waits. This has two effects. Requests that
//! arrive together are answered from one sample, so no number of HTTP clients causes more than one snapshot of the
//! workers every [`SHARE`]. A rate needs two samples a window apart, and costs nothing while no client looks at flows.
//! The first request for flows waits for a second sample. The task then takes a sample every window, until there has
//! been no such request for [`WATCH`].
//!
//! ```text
//!   unwatched --flows requested, some open--> warming --window over--> watched --no request for WATCH--> unwatched
//! ```

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use quictun_engine::report::{ClientReport, DurationHistograms, FlowReport, Histogram, Totals};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use crate::snapshot::{CollectedSnapshots, Detail, WorkerSnapshot, Workers};
use quictun_io::udp_port::UdpSocketReport;

/// Time limit for the workers' answers. A busy worker needs a millisecond, and probes give up after a second.
pub(crate) const DEADLINE: Duration = Duration::from_millis(500);

/// Requests within this time after a sample share it.
pub(super) const SHARE: Duration = Duration::from_millis(100);

/// Time for which rates are measured after the last request for flows: two periods of an ordinary dashboard.
const WATCH: Duration = Duration::from_mins(1);

#[derive(Debug)]
pub(crate) struct Sample {
    pub(crate) collected: CollectedSnapshots,
    /// The latest known counters of every worker that has ever answered, so that sums over the workers never decrease.
    pub(crate) counters: Vec<WorkerCounters>,
    pub(super) rates: Arc<Rates>,
}

impl Sample {
    /// Returns the times of flows' moves over all workers.
    pub(super) fn moves(&self) -> Histogram {
        let mut sum = DurationHistograms::default().moves;
        for counters in &self.counters {
            sum.add(&counters.totals.times.moves);
        }
        sum
    }
}

/// The values of a worker that only grow, and the state of its socket.
#[derive(Clone, Debug, Default)]
pub(crate) struct WorkerCounters {
    pub(crate) totals: Totals,
    pub(crate) clients: Vec<ClientReport>,
    pub(crate) udp: UdpSocketReport,
}

/// The rate of a flow over the last window, bytes per second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct FlowRate {
    pub(super) to_tunnel: f64,
    pub(super) to_app: f64,
}

#[derive(Debug, Default)]
pub(super) struct Rates {
    flows: HashMap<FlowKey, (ByteMark, FlowRate)>,
}

type FlowKey = (usize, u64);

#[derive(Clone, Copy, Debug)]
struct ByteMark {
    at: std::time::Instant,
    to_tunnel: u64,
    to_app: u64,
}

impl Rates {
    /// Returns the rates between the samples in `self` and `snapshots`. New flows have no rate yet; ended flows are
    /// removed.
    fn next(&self, snapshots: &[WorkerSnapshot]) -> Self {
        let mut flows = HashMap::new();
        for snapshot in snapshots {
            for flow in &snapshot.flows {
                let key = (snapshot.worker, flow.id.0);
                let mark = ByteMark {
                    at: snapshot.taken,
                    to_tunnel: flow.bytes_to_tunnel,
                    to_app: flow.bytes_to_app,
                };
                let rate = self
                    .flows
                    .get(&key)
                    .map_or_else(FlowRate::default, |(before, _)| mark.since(*before));
                flows.insert(key, (mark, rate));
            }
        }
        Self { flows }
    }

    pub(super) fn of(&self, worker: usize, flow: &FlowReport) -> FlowRate {
        self.flows
            .get(&(worker, flow.id.0))
            .map_or_else(FlowRate::default, |(_, rate)| *rate)
    }
}

impl ByteMark {
    #[expect(
        clippy::cast_precision_loss,
        reason = "a rate needs no more than 53 bits"
    )]
    fn since(self, before: Self) -> FlowRate {
        let seconds = self.at.saturating_duration_since(before.at).as_secs_f64();
        if seconds <= 0.0 {
            return FlowRate::default();
        }
        FlowRate {
            to_tunnel: self.to_tunnel.saturating_sub(before.to_tunnel) as f64 / seconds,
            to_app: self.to_app.saturating_sub(before.to_app) as f64 / seconds,
        }
    }
}

/// A handler's request. The answer is a sample that contains at least `detail`.
#[derive(Debug)]
pub(super) struct SampleRequest {
    pub(super) detail: Detail,
    pub(super) reply: oneshot::Sender<Arc<Sample>>,
}

pub(super) struct Sampler<'a> {
    workers: &'a Workers,
    window: Duration,
    counters: Vec<Option<WorkerCounters>>,
    recent: Option<(Instant, Detail, Arc<Sample>)>,
    rates: Arc<Rates>,
    watch: Option<FlowWatch>,
}

struct FlowWatch {
    next_window: Instant,
    last_asked: Instant,
    /// True once a whole window has been measured.
    warm: bool,
    /// Handlers that wait for the first window to end, at most as many as there are HTTP connections.
    waiting: Vec<oneshot::Sender<Arc<Sample>>>,
}

impl<'a> Sampler<'a> {
    pub(super) fn new(workers: &'a Workers, window: Duration) -> Self {
        Self {
            workers,
            window,
            counters: vec![None; workers.count()],
            recent: None,
            rates: Arc::default(),
            watch: None,
        }
    }

    /// Answers requests until every sender of `requests` is dropped.
    pub(super) async fn run(mut self, mut requests: mpsc::Receiver<SampleRequest>) {
        loop {
            let next_window = self.watch.as_ref().map(|watch| watch.next_window);
            tokio::select! {
                request = requests.recv() => match request {
                    Some(request) => self.answer(request).await,
                    None => return,
                },
                () = sleep_until(next_window) => self.end_window().await,
            }
        }
    }

    async fn answer(&mut self, request: SampleRequest) {
        let now = Instant::now();
        if request.detail == Detail::Flows {
            if let Some(watch) = &mut self.watch {
                watch.last_asked = now;
                if !watch.warm {
                    watch.waiting.push(request.reply);
                    return;
                }
            } else {
                let sample = self.sample(Detail::Flows).await;
                if sample
                    .collected
                    .snapshots
                    .iter()
                    .any(|snapshot| !snapshot.flows.is_empty())
                {
                    self.begin_watch(&sample, request.reply);
                    return;
                }
            }
        }
        let sample = self.sample(request.detail).await;
        // Sending fails only if the HTTP handler has ended, and then no client waits for the sample.
        request.reply.send(sample).ok();
    }

    fn begin_watch(&mut self, sample: &Sample, reply: oneshot::Sender<Arc<Sample>>) {
        self.rates = Arc::new(Rates::default().next(&sample.collected.snapshots));
        let now = Instant::now();
        self.watch = Some(FlowWatch {
            next_window: now + self.window,
            last_asked: now,
            warm: false,
            waiting: vec![reply],
        });
    }

    async fn end_window(&mut self) {
        let collected = self.workers.collect(Detail::Flows, DEADLINE).await;
        self.rates = Arc::new(self.rates.next(&collected.snapshots));
        let sample = self.keep(Detail::Flows, collected);
        let Some(watch) = &mut self.watch else { return };
        watch.warm = true;
        for reply in watch.waiting.drain(..) {
            reply.send(Arc::clone(&sample)).ok();
        }
        let now = Instant::now();
        watch.next_window = now + self.window;
        if now.duration_since(watch.last_asked) > WATCH {
            self.watch = None;
            self.rates = Arc::default();
        }
    }

    /// Returns a sample with at least `detail`: the latest one if it is recent enough, else a new one.
    async fn sample(&mut self, detail: Detail) -> Arc<Sample> {
        if let Some((at, has, sample)) = &self.recent
            && *has >= detail
            && at.elapsed() < SHARE
        {
            return Arc::clone(sample);
        }
        let collected = self.workers.collect(detail, DEADLINE).await;
        self.keep(detail, collected)
    }

    fn keep(&mut self, detail: Detail, collected: CollectedSnapshots) -> Arc<Sample> {
        for snapshot in &collected.snapshots {
            if let Some(counters) = self.counters.get_mut(snapshot.worker) {
                *counters = Some(WorkerCounters {
                    totals: snapshot.totals,
                    clients: snapshot.clients.clone(),
                    udp: snapshot.udp,
                });
            }
        }
        let counters = self.counters.iter().flatten().cloned().collect();
        let sample = Arc::new(Sample {
            collected,
            counters,
            rates: Arc::clone(&self.rates),
        });
        self.recent = Some((Instant::now(), detail, Arc::clone(&sample)));
        sample
    }
}

async fn sleep_until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
