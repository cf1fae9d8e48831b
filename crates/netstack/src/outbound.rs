//! Moves segments from the flows to the device, and handles flows that have nothing left to send.

use std::time::{Duration, Instant};

use smoltcp::socket::tcp::State;

use crate::craft::{ShortFrame, partial};
use crate::event::{Event, FlowEnding};
use crate::flow::FlowState;
use crate::offload::{FRAME_MAX, HEADER, Offload, Segmentation};
use crate::segment::Segment;
use crate::socket_pool::BufferSize;
use crate::stack::Stack;

impl Stack {
    pub(crate) fn outbound(
        &mut self,
        now: Instant,
        index: usize,
        frame: &mut [u8; FRAME_MAX],
    ) -> Option<usize> {
        let FlowState::Awake(socket) = &mut self.flows[index].state else {
            return None;
        };
        let sent = self.interface.egress(now, socket, &mut frame[HEADER..]);
        if sent == 0 {
            return None;
        }
        if let Ok(segment) = Segment::parse(&frame[HEADER..HEADER + sent])
            && segment.sequence_length() == 0
        {
            let says = (now, segment.seq, segment.ack, segment.window);
            let flow = &mut self.flows[index];
            if flow.last_empty.replace(says) == Some(says) {
                self.stop_probe_timer(now, index);
                return None;
            }
        }
        self.translate(index, &mut frame[..HEADER + sent])
    }

    /// Silences a socket that repeats the same segment.
    ///
    /// smoltcp 0.14 sends the rest of its data, and its FIN, as a probe of a closed window. If the probe is
    /// acknowledged while the window stays closed, the probe timer is never stopped. Simulating an open window stops
    /// the timer, and does no harm because nothing is left to send.
    fn stop_probe_timer(&mut self, now: Instant, index: usize) {
        let flow = &mut self.flows[index];
        let mut ack = flow.client_acknowledgement();
        let FlowState::Awake(socket) = &mut flow.state else {
            return;
        };
        if socket.tcp().state() == State::FinWait2 {
            ack.window = ack.window.max(1);
            let ack = ack.frame();
            let mut scratch = [0; ShortFrame::CAPACITY];
            self.interface
                .ingress(now, socket, ack.packet(), &mut scratch);
        }
    }

    /// Handles a flow with nothing left to send. The flow may be at its end, or need other buffers or none.
    pub(crate) fn settle(&mut self, now: Instant, index: usize) {
        if self.end_doomed(now, index) {
            return;
        }
        let flow = &self.flows[index];
        let FlowState::Awake(socket) = &flow.state else {
            return;
        };
        let tcp = socket.tcp();
        let state = tcp.state();
        if matches!(state, State::TimeWait | State::Closed)
            && tcp.recv_queue() == 0
            && flow.read_end
            && flow.reset.is_none()
        {
            self.conclude(now, index, state == State::TimeWait);
            return;
        }
        let idle = now >= flow.idle_at(&self.config);
        if socket.is_quiet() && idle {
            self.sleep(index);
            return;
        }
        if flow.outgrown && flow.size == BufferSize::Small {
            self.grow(now, index);
        }
        self.notify(index);
        self.set_alarm(now, index);
    }

    /// Ends a flow after both sides have finished and everything has been read.
    fn conclude(&mut self, now: Instant, index: usize, linger: bool) {
        if !linger {
            self.end(index, FlowEnding::Finished, false);
            return;
        }
        let flow = &mut self.flows[index];
        let state = std::mem::replace(&mut flow.state, FlowState::Lingering);
        let deadline = now + self.config.linger;
        self.timers.set(index, &mut flow.alarm, Some(deadline));
        let ended = Event::Ended {
            flow: flow.id,
            ending: FlowEnding::Finished,
        };
        self.events.push_back(ended);
        if let FlowState::Awake(socket) = state {
            self.give_back(socket);
        }
    }

    pub(crate) fn notify(&mut self, index: usize) {
        let flow = &mut self.flows[index];
        let FlowState::Awake(socket) = &flow.state else {
            return;
        };
        if flow.doomed.is_some() {
            // The flow no longer exists for the user.
            return;
        }
        let tcp = socket.tcp();
        let ended = flow.open && !tcp.may_recv() && !flow.read_end;
        if (tcp.recv_queue() > 0 || ended) && !flow.readable_reported {
            flow.readable_reported = true;
            self.events.push_back(Event::Readable(flow.id));
        }
        // At least half of the buffer is free, so that a bulk writer is not notified for every segment.
        let room = tcp.can_send() && tcp.send_queue() <= tcp.send_capacity() / 2;
        if flow.wants_room && room && !flow.is_held() {
            flow.wants_room = false;
            self.events.push_back(Event::Writable(flow.id));
        }
    }

    fn set_alarm(&mut self, now: Instant, index: usize) {
        let flow = &mut self.flows[index];
        let FlowState::Awake(socket) = &flow.state else {
            return;
        };
        let timer = self.interface.poll_at(now, socket);
        // The socket was just polled, and cannot do at once what it could not do then.
        let timer = timer.map(|at| at.max(now + PAUSE));
        let timer = timer.or_else(|| flow.awaits_fin_ack().then_some(now + REPEAT_END));
        let patience = if !flow.open {
            Some(flow.heard + self.config.open_timeout)
        } else if socket.tcp().send_queue() > 0 || flow.awaits_fin_ack() {
            Some(flow.heard + self.config.stall_timeout)
        } else {
            None
        };
        let idle = socket.is_quiet().then_some(flow.idle_at(&self.config));
        let reset = flow.reset.map(|reset| reset.until);
        let deadlines = [timer, patience, idle, reset, flow.doomed];
        let deadline = deadlines.into_iter().flatten().min();
        self.timers.set(index, &mut flow.alarm, deadline);
    }
}

pub(crate) fn offload(allowed: bool, cut: Option<u16>, segment: &Segment) -> Offload {
    if !allowed {
        return Offload::default();
    }
    Offload {
        checksum: partial(HEADER + segment.tcp),
        segment: cut.map(|size| Segmentation {
            v6: segment.from.is_ipv6(),
            size,
            // The headers have at most 40 and 60 bytes.
            headers: u16::try_from(segment.payload.start).unwrap_or(u16::MAX),
        }),
    }
}

/// Pause of a flow that reports pending work but does nothing; chosen arbitrarily, to keep such a flow from using all
/// the time.
const PAUSE: Duration = Duration::from_millis(1);

/// Interval for repeating a FIN that smoltcp fails to repeat: smoltcp's minimum retransmission timeout.
const REPEAT_END: Duration = Duration::from_secs(1);
