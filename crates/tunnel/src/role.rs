//! The part of a worker that differs between client and server.

use std::io;
use std::time::Instant;

use quictun_engine::{Engine, Event, FlowId};
use tracing::debug;

use crate::app_socket::AppSocket;
use crate::mailbox::Message;
use quictun_io::poller::{Poller, ReadyEvent};
use quictun_io::udp_port::UdpPort;

/// A part of a worker with listeners, sockets or times of its own.
pub(crate) trait WorkerPart {
    /// Starts the part: the worker calls this once, before the first turn.
    fn start(&mut self, _: &mut WorkerContext<'_>) -> io::Result<()> {
        Ok(())
    }
    /// Handles a listener, a dial or another socket that is ready. It may belong to another part.
    fn handle_ready(&mut self, _: &mut WorkerContext<'_>, _: ReadyEvent) {}
    /// Sends output that does not belong to the engine, at the end of a turn. Returns whether the engine may have work.
    fn flush(&mut self, _: &mut WorkerContext<'_>) -> bool {
        false
    }
    fn next_timeout(&self) -> Option<Instant> {
        None
    }
    fn handle_timeout(&mut self, _: &mut WorkerContext<'_>) {}
    fn stop_accepting(&mut self, _: &mut WorkerContext<'_>) {}
    /// Returns an error if the worker can do nothing more and the process should end.
    fn failure(&self) -> Option<io::Error> {
        None
    }
    /// Returns whether the worker's purpose is fulfilled, so that the process drains and ends.
    fn is_over(&self) -> bool {
        false
    }
    /// Handles that the process ends while a peer has not confirmed all bytes of a flow.
    fn handle_unconfirmed(&mut self) {}
    /// Returns whether work is under way that the engine does not know of yet.
    fn is_busy(&self) -> bool {
        false
    }
}

pub(crate) trait WorkerRole: WorkerPart {
    fn handle_event(&mut self, cx: &mut WorkerContext<'_>, event: Event);
    /// Handles a message that the loop itself does not consume.
    fn handle_message(&mut self, cx: &mut WorkerContext<'_>, message: Message);
    /// Handles a pause: the process has not run since this time, although work was due. For example, it was stopped.
    fn handle_pause(&mut self, _: &mut WorkerContext<'_>, _since: Instant) {}
}

pub(crate) struct WorkerContext<'a> {
    pub(crate) now: Instant,
    pub(crate) engine: &'a mut Engine<AppSocket>,
    pub(crate) poller: &'a Poller,
    pub(crate) udp: &'a UdpPort,
}

impl WorkerContext<'_> {
    /// Resets a flow, for example because its application's socket failed.
    pub(crate) fn fail(&mut self, flow: FlowId) {
        self.engine
            .handle_socket(self.now, flow, false, false, true);
    }
}

/// Logs the controller's view of the path, and the limit on sending, under the names of `/v1/connections`.
pub(crate) fn log_congestion(event: &Event) {
    let Event::Congestion {
        connection,
        remote,
        controller: view,
        limit,
    } = event
    else {
        return;
    };
    debug!(
        target: "quictun",
        connection = connection.0,
        %remote,
        congestion_control = view.mode,
        congestion_phase = view.phase,
        limited_by = limit.name(),
        bandwidth_bytes_per_second = view.bandwidth_known(),
        min_rtt_ms = view.min_rtt.map(|rtt| rtt.as_secs_f64() * 1000.0),
        loss_floor = view.loss_floor,
        loss_trust = view.trust,
        "congestion control"
    );
}
