//! Snapshots of the workers, which the control plane requests.
//!
//! Each worker thread gives the control plane one [`RequestSender`]: a function that puts a [`SnapshotRequest`] into
//! the worker's bounded queue and wakes it. The worker answers between two batches of packets. [`Workers::collect`]
//! asks all workers at once and continues without those that are late. A stuck worker is therefore noticed, and delays
//! no caller.

use std::fmt;
use std::time::{Duration, Instant};

use quictun_engine::report::{
    BondReport, ClientReport, ConnectionReport, FlowReport, RestartCost, ServerReport, Totals,
};
use quictun_io::udp_port::UdpSocketReport;
use tokio::sync::oneshot;

/// The state of one worker at one moment.
#[derive(Clone, Debug)]
pub struct WorkerSnapshot {
    /// Number of the worker, from 0, which is its index in [`Workers::new`].
    pub worker: usize,
    /// Time of the snapshot by the worker's clock, from which rates are computed.
    pub taken: Instant,
    /// Open flows. It is empty if the request asked only for [`Detail::Counters`].
    pub flows: Vec<FlowReport>,
    /// Open connections of the worker.
    pub connections: Vec<ConnectionReport>,
    /// Bonds of the worker, including those without a connection.
    pub bonds: Vec<BondReport>,
    /// Client: the servers, in the order of the settings.
    pub servers: Vec<ServerReport>,
    /// Counters of the worker's engine.
    pub totals: Totals,
    /// Server: every named client; the engine bounds their number.
    pub clients: Vec<ClientReport>,
    /// Server: the flows by their fate if another process took over now.
    pub restart_cost: RestartCost,
    /// State of the worker's UDP socket.
    pub udp: UdpSocketReport,
}

/// The extent of a snapshot. Flows may be many, so a caller that does not need them asks for counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Detail {
    /// Connections, bonds, totals and the socket, without flows.
    Counters,
    /// The same and every open flow.
    Flows,
}

/// A request in a worker's queue.
#[derive(Debug)]
pub struct SnapshotRequest {
    /// The detail that the snapshot must have. It may have more.
    pub detail: Detail,
    /// Receives the snapshot. The caller may have stopped waiting, so a failed send is not an error.
    pub reply: oneshot::Sender<WorkerSnapshot>,
}

/// Puts a request into one worker's queue without blocking. Returns false if the queue is full or the worker has ended.
pub type RequestSender = Box<dyn Fn(SnapshotRequest) -> bool + Send + Sync>;

/// The workers of this process, as the control plane sees them.
pub struct Workers {
    senders: Vec<RequestSender>,
}

/// The answers to [`Workers::collect`].
#[derive(Clone, Debug, Default)]
pub struct CollectedSnapshots {
    /// The snapshots, in the order of the workers.
    pub snapshots: Vec<WorkerSnapshot>,
    /// The workers that did not answer in time.
    pub silent: Vec<usize>,
}

impl WorkerSnapshot {
    pub(crate) fn age(&self, opened: Instant) -> Duration {
        self.taken.saturating_duration_since(opened)
    }
}

impl CollectedSnapshots {
    pub(crate) fn connections(&self) -> impl Iterator<Item = &ConnectionReport> {
        let snapshots = self.snapshots.iter();
        snapshots.flat_map(|snapshot| &snapshot.connections)
    }

    pub(crate) fn bonds(&self) -> impl Iterator<Item = &BondReport> {
        self.snapshots.iter().flat_map(|snapshot| &snapshot.bonds)
    }

    /// Returns the number of open flows, including those that wait for another connection.
    pub(crate) fn flow_count(&self) -> usize {
        let carried: usize = self.connections().map(|report| report.flows).sum();
        carried + self.detached_count()
    }

    /// Returns the number of flows that wait for another connection.
    pub(crate) fn detached_count(&self) -> usize {
        self.bonds().map(|report| report.detached).sum()
    }

    /// Returns the bytes that flows keep until their peers have received them.
    pub(crate) fn retained(&self) -> u64 {
        self.bonds().map(|report| report.retained).sum()
    }

    /// Returns every flow of every worker that answered, oldest first.
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
    /// Creates the set of workers from one [`RequestSender`] for each, worker 0 first.
    pub fn new(senders: Vec<RequestSender>) -> Self {
        Self { senders }
    }

    /// Returns the number of workers.
    pub fn count(&self) -> usize {
        self.senders.len()
    }

    /// Asks every worker and waits at most `deadline` for all of them together.
    ///
    /// # Cancel safety
    ///
    /// Safe to drop: the workers' answers are discarded.
    pub async fn collect(&self, detail: Detail, deadline: Duration) -> CollectedSnapshots {
        let end = tokio::time::Instant::now() + deadline;
        let replies: Vec<_> = self
            .senders
            .iter()
            .map(|ask| send_request(ask, detail))
            .collect();
        let mut collected = CollectedSnapshots::default();
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

fn send_request(ask: &RequestSender, detail: Detail) -> Option<oneshot::Receiver<WorkerSnapshot>> {
    let (reply, answer) = oneshot::channel();
    ask(SnapshotRequest { detail, reply }).then_some(answer)
}

impl fmt::Debug for Workers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workers")
            .field("count", &self.senders.len())
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
            restart_cost: RestartCost::default(),
            udp: UdpSocketReport::default(),
        }
    }

    fn answers(worker: usize) -> RequestSender {
        Box::new(move |request| request.reply.send(snapshot(worker)).is_ok())
    }

    /// Returns a worker that takes the request and never answers it.
    fn hangs() -> RequestSender {
        let kept = Mutex::new(Vec::new());
        Box::new(move |request| {
            kept.lock().expect("not poisoned").push(request);
            true
        })
    }

    fn collect(senders: Vec<RequestSender>, deadline: Duration) -> (Vec<usize>, Vec<usize>) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .expect("a runtime");
        let workers = Workers::new(senders);
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
        let senders = vec![answers(0), answers(1), answers(2)];
        assert_eq!(
            collect(senders, Duration::from_mins(1)),
            (vec![0, 1, 2], vec![])
        );
    }

    #[test]
    fn a_hanging_worker_is_left_out_at_the_deadline() {
        let senders = vec![hangs(), answers(1), hangs(), answers(3)];
        assert_eq!(
            collect(senders, Duration::from_millis(20)),
            (vec![1, 3], vec![0, 2])
        );
    }

    #[test]
    fn a_full_queue_and_a_dropped_request_count_as_silence_at_once() {
        let full: RequestSender = Box::new(|_| false);
        let gone: RequestSender = Box::new(|request| {
            drop(request);
            true
        });
        // With this deadline of an hour, the test would not end if it waited for either of them.
        assert_eq!(
            collect(vec![full, gone, answers(2)], Duration::from_hours(1)),
            (vec![2], vec![0, 1])
        );
    }
}
