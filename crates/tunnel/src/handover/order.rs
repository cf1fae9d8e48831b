//! The order to a worker to hand its flows over.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError};
use std::time::Instant;

use quictun_sys::{PACKET_FDS_MAX, PacketStream};
use quictun_wire::handover::HandedBond;
use quictun_wire::handover::exchange::{HandoverMessage, SocketPurpose};

/// An order to a worker: once the flows of all workers have settled, it detaches its flows, sends their sockets, answers,
/// and waits for the verdict.
#[derive(Debug)]
pub(crate) struct HandoverOrder {
    /// The way to the new process. The messages of workers may mix.
    pub(super) stream: Arc<PacketStream>,
    /// Number of workers whose flows have not settled.
    pub(super) unsettled: Arc<AtomicUsize>,
    /// The time at which the worker detaches its flows at the latest.
    pub(super) settles_until: Instant,
    /// The time until which sockets may be sent.
    pub(super) until: Instant,
    pub(super) reply: SyncSender<(usize, io::Result<Vec<HandedBond>>)>,
    pub(super) verdict: Receiver<Verdict>,
}

/// The end of a hand-over for a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The worker goes on.
    Kept,
    /// The flows belong to the new process. The worker ends, and lets go of their sockets as they are.
    Released,
}

impl HandoverOrder {
    /// Returns whether the control plane has given the hand-over up before the worker came to it.
    pub(crate) fn is_over(&self) -> bool {
        Instant::now() >= self.until || self.verdict.try_recv() != Err(TryRecvError::Empty)
    }

    /// Returns the time at which the worker detaches its flows at the latest.
    pub(crate) fn settles_until(&self) -> Instant {
        self.settles_until
    }

    /// Notes that the flows of one more worker have settled. All workers begin at once: no flow stands still while those of
    /// other workers settle.
    pub(crate) fn note_settled(&self) {
        // The counter guards no other memory, so `Relaxed` suffices, here and below.
        self.unsettled.fetch_sub(1, Ordering::Relaxed);
    }

    /// Returns whether it is time to detach all flows.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        now >= self.settles_until || self.unsettled.load(Ordering::Relaxed) == 0
    }

    /// Sends the worker's UDP socket, if it goes over, and the sockets of its flows in their order.
    pub(crate) fn send_sockets(
        &self,
        worker: usize,
        udp: Option<BorrowedFd<'_>>,
        flows: &[BorrowedFd<'_>],
    ) -> io::Result<()> {
        let worker = worker as u64;
        if let Some(udp) = udp {
            let purpose = SocketPurpose::Udp { worker };
            self.send(&HandoverMessage::Sockets(purpose), &[udp])?;
        }
        for some in flows.chunks(PACKET_FDS_MAX) {
            self.send(&HandoverMessage::Flows { worker }, some)?;
        }
        Ok(())
    }

    fn send(&self, message: &HandoverMessage, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        self.stream.send(&message.encode(), fds, self.until)
    }

    /// Answers with the worker's bonds, and waits for the verdict. The control plane has a time limit for the new process,
    /// so this wait has an end; without a control plane, the worker goes on.
    pub(crate) fn answer(self, worker: usize, bonds: io::Result<Vec<HandedBond>>) -> Verdict {
        let Self { reply, verdict, .. } = self;
        if reply.send((worker, bonds)).is_err() {
            return Verdict::Kept;
        }
        // The control plane learns of a worker that has ended once no other one can answer any more.
        drop(reply);
        verdict.recv().unwrap_or(Verdict::Kept)
    }
}
