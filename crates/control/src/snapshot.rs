//! What workers answer when the control plane asks how they are doing.
//!
//! Each worker thread gives the control plane one [`Ask`]: a function that puts a [`SnapshotRequest`] into the worker's
//! bounded queue and wakes it. The worker answers between two batches of packets; [`Workers::collect`] asks all of them
//! at once and goes on without those that are late, so a stuck worker is seen and holds nobody up.

use std::fmt;
use std::time::{Duration, Instant};

use quictun_engine::report::{
    BondReport, ClientReport, ConnectionReport, FlowReport, ServerReport, Totals,
};
use quictun_io::udp_port::UdpSocketReport;
use tokio::sync::oneshot;

/// One worker at one moment.
#[derive(Clone, Debug)]
pub struct WorkerSnapshot {
    /// Number of the worker, from 0; its place in [`Workers::new`].
    pub worker: usize,
    /// When it was taken, by the worker's clock; rates are computed from it.
    pub taken: Instant,
    /// Open flows; empty where only [`Detail::Counters`] were asked for.
    pub flows: Vec<FlowReport>,
    /// Open connections.
    pub connections: Vec<ConnectionReport>,
    /// Bonds, also those without a connection.
    pub bonds: Vec<BondReport>,
    /// Client: its servers, in the order in which they were given.
    pub servers: Vec<ServerReport>,
    /// The engine's counters.
    pub totals: Totals,
    /// Server: every named client, for whose number the engine has a bound.
    pub clients: Vec<ClientReport>,
    /// The worker's UDP socket.
    pub udp: UdpSocketReport,
}

/// How much a snapshot holds. Flows are many: what can do without them asks for counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Detail {
    /// Connections, bonds, totals and the socket.
    Counters,
    /// Every open flow besides.
    Flows,
}

/// What is put into a worker's queue.
#[derive(Debug)]
pub struct SnapshotRequest {
    /// What the snapshot must hold; more does no harm.
    pub detail: Detail,
    /// Where it goes. The asker may have stopped waiting: a failed send is no error.
    pub reply: oneshot::Sender<WorkerSnapshot>,
}

/// Puts a request into one worker's queue without blocking; false where the queue is full or the worker is gone.
pub type Ask = Box<dyn Fn(SnapshotRequest) -> bool + Send + Sync>;

/// The workers of this process, as the control plane sees them.
pub struct Workers {
    asks: Vec<Ask>,
}

/// What [`Workers::collect`] got.
#[derive(Clone, Debug, Default)]
pub struct Collected {
    /// The answers, in the order of the workers.
    pub snapshots: Vec<WorkerSnapshot>,
    /// The workers that did not answer in time.
    pub silent: Vec<usize>,
}

impl WorkerSnapshot {
    pub(crate) fn age(&self, opened: Instant) -> Duration {
        self.taken.saturating_duration_since(opened)
    }
}

impl Collected {
    pub(crate) fn connections(&self) -> impl Iterator<Item = &ConnectionReport> {
        let snapshots = self.snapshots.iter();
        snapshots.flat_map(|snapshot| &snapshot.connections)
    }

    pub(crate) fn bonds(&self) -> impl Iterator<Item = &BondReport> {
        self.snapshots.iter().flat_map(|snapshot| &snapshot.bonds)
    }

    /// Count of open flows, with those that wait for another connection.
    pub(crate) fn flow_count(&self) -> usize {
        let carried: usize = self.connections().map(|report| report.flows).sum();
        carried + self.detached_count()
    }

    /// Count of flows that wait for another connection.
    pub(crate) fn detached_count(&self) -> usize {
        self.bonds().map(|report| report.detached).sum()
    }

    /// Bytes that flows keep until their peers have them.
    pub(crate) fn retained(&self) -> u64 {
        self.bonds().map(|report| report.retained).sum()
    }

    /// Every flow of every worker that answered, oldest first.
    pub(crate) fn flows(&self) -> Vec<(&WorkerSnapshot, &FlowReport)> {
        let flows = self.snapshots.iter().flat_map(|snapshot| {
            let flows = snapshot.flows.iter();
            flows.map(move |flow| (snapshot, flow))
        });
        let mut flows: Vec<_> = flows.collect();
        flows.sort_by_key(|(snapshot, flow)| (flow.opened, snapshot.worker, flow.id.0));
        flows
    }
}

impl Workers {
    /// Takes one [`Ask`] for each worker, worker 0 first.
    pub fn new(asks: Vec<Ask>) -> Self {
        Self { asks }
    }

    /// Number of workers.
    pub fn count(&self) -> usize {
        self.asks.len()
    }

    /// Asks every worker and waits at most `deadline` for all of them together.
    ///
    /// # Cancel safety
    ///
    /// Safe to drop: workers find nobody waiting for their answers.
    pub async fn collect(&self, detail: Detail, deadline: Duration) -> Collected {
        let end = tokio::time::Instant::now() + deadline;
        let replies: Vec<_> = self
            .asks
            .iter()
            .map(|ask| send_request(ask, detail))
            .collect();
        let mut collected = Collected::default();
        for (worker, reply) in replies.into_iter().enumerate() {
            let answer = match reply {
                Some(reply) => tokio::time::timeout_at(end, reply)
                    .await
                    .ok()
                    .and_then(Result::ok),
                None => None,
            };
            match answer {
                Some(snapshot) => collected.snapshots.push(snapshot),
                None => collected.silent.push(worker),
            }
        }
        collected
    }
}

fn send_request(ask: &Ask, detail: Detail) -> Option<oneshot::Receiver<WorkerSnapshot>> {
    let (reply, answer) = oneshot::channel();
    ask(SnapshotRequest { detail, reply }).then_some(answer)
}

impl fmt::Debug for Workers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workers")
            .field("count", &self.asks.len())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    fn snapshot(worker: usize) -> WorkerSnapshot {
        WorkerSnapshot {
            worker,
            taken: Instant::now(),
            flows: Vec::new(),
            connections: Vec::new(),
            bonds: Vec::new(),
            servers: Vec::new(),
            totals: Totals::default(),
            clients: Vec::new(),
            udp: UdpSocketReport::default(),
        }
    }

    fn answers(worker: usize) -> Ask {
        Box::new(move |request| request.reply.send(snapshot(worker)).is_ok())
    }

    /// A worker that takes the request and never answers it.
    fn hangs() -> Ask {
        let kept = Mutex::new(Vec::new());
        Box::new(move |request| {
            kept.lock().expect("not poisoned").push(request);
            true
        })
    }

    fn collect(asks: Vec<Ask>, deadline: Duration) -> (Vec<usize>, Vec<usize>) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .expect("a runtime");
        let workers = Workers::new(asks);
        let collected = runtime.block_on(workers.collect(Detail::Flows, deadline));
        (
            collected
                .snapshots
                .iter()
                .map(|snapshot| snapshot.worker)
                .collect(),
            collected.silent,
        )
    }

    #[test]
    fn every_worker_is_asked_and_answers_are_in_order() {
        let asks = vec![answers(0), answers(1), answers(2)];
        assert_eq!(
            collect(asks, Duration::from_mins(1)),
            (vec![0, 1, 2], vec![])
        );
    }

    #[test]
    fn a_worker_that_hangs_is_left_out_at_the_deadline_and_the_others_are_not() {
        let asks = vec![hangs(), answers(1), hangs(), answers(3)];
        assert_eq!(
            collect(asks, Duration::from_millis(20)),
            (vec![1, 3], vec![0, 2])
        );
    }

    #[test]
    fn a_full_queue_and_a_dropped_request_are_silence_at_once() {
        let full: Ask = Box::new(|_| false);
        let gone: Ask = Box::new(|request| {
            drop(request);
            true
        });
        // An hour: the test would not end if either were waited for.
        assert_eq!(
            collect(vec![full, gone, answers(2)], Duration::from_hours(1)),
            (vec![2], vec![0, 1])
        );
    }
}
