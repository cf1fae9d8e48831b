//! What a client's or a server's worker does beyond carrying bytes.

use std::io;
use std::time::{Duration, Instant};

use quictun_engine::{Engine, Event, FlowId};
use tracing::debug;

use crate::app_socket::AppSocket;
use crate::mailbox::Message;
use quictun_io::poller::{Poller, Ready};
use quictun_io::udp_port::UdpPort;

pub(crate) trait Duty {
    /// Called once, before the first turn.
    fn start(&mut self, _: &mut Io<'_>) -> io::Result<()> {
        Ok(())
    }
    fn handle_event(&mut self, io: &mut Io<'_>, event: Event);
    /// A listener or a dial is ready.
    fn handle_ready(&mut self, io: &mut Io<'_>, ready: Ready);
    /// A message that is not for the loop itself.
    fn handle_message(&mut self, io: &mut Io<'_>, message: Message);
    /// The end of a turn: sends what is not the engine's to send. Tells whether the engine may have something to do.
    fn flush(&mut self, _: &mut Io<'_>) -> bool {
        false
    }
    /// Nothing of this process has run for so long after something was due: somebody has stopped it.
    fn handle_pause(&mut self, _: &mut Io<'_>, _: Duration) {}
    fn next_timeout(&self) -> Option<Instant>;
    fn handle_timeout(&mut self, io: &mut Io<'_>);
    fn stop_accepting(&mut self, _: &mut Io<'_>) {}
    /// Why it can do nothing any more, and the process had better end.
    fn failure(&self) -> Option<io::Error> {
        None
    }
    /// Whether what it runs for is over: the process drains and ends.
    fn is_over(&self) -> bool {
        false
    }
    /// The process ends, and a peer has not confirmed that all of some flow has arrived.
    fn handle_unconfirmed(&mut self) {}
    /// Whether something is under way that the engine does not know of yet.
    fn is_busy(&self) -> bool {
        false
    }
}

pub(crate) struct Io<'a> {
    pub(crate) now: Instant,
    pub(crate) engine: &'a mut Engine<AppSocket>,
    pub(crate) poller: &'a Poller,
    pub(crate) udp: &'a UdpPort,
}

impl Io<'_> {
    /// Resets a flow, as where its application's socket has failed.
    pub(crate) fn fail(&mut self, flow: FlowId) {
        self.engine
            .handle_socket(self.now, flow, false, false, true);
    }
}

/// How the controller sees the path, and what limits the sending: the words of `/v1/connections`.
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
