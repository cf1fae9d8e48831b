//! Moves frames from the device to the flows.

use std::time::Instant;

use smoltcp::socket::tcp::State;

use crate::config::MAX_PACKET;
use crate::counters::PacketRefusal;
use crate::craft::{EmptySegment, ShortFrame, fill_tcp_checksum};
use crate::event::{Event, FlowEnding};
use crate::flow::{Flow, FlowState, FourTuple};
use crate::offload::{Checksum, HEADER, Offload};
use crate::segment::{ACK, FIN, RST, SYN, Segment, SynOptions};
use crate::socket_pool::BufferSize;
use crate::stack::Stack;
use crate::timers::FlowAlarm;
use crate::wire_state::{WireState, after};

impl Stack {
    pub(crate) fn inbound(&mut self, now: Instant, frame: &mut [u8]) -> Result<(), PacketRefusal> {
        if frame.len() > HEADER + MAX_PACKET {
            return Err(PacketRefusal::Oversized);
        }
        let (offload, packet) = Offload::split(frame)?;
        if crate::datagram::is_udp(packet) {
            return self.handle_datagram(now, offload, packet);
        }
        let segment = Segment::parse(packet)?;
        check_offload(offload, &segment)?;
        if offload.checksum == Checksum::Complete && !segment.checksum_holds(packet) {
            return Err(PacketRefusal::Checksum);
        }
        let packet = &mut packet[..segment.payload.end];
        let tuple = FourTuple::new(segment.from, segment.to);
        let Some(&index) = self.by_tuple.get(&tuple) else {
            return self.handle_stray(now, &segment, packet);
        };
        match self.flows[index].state {
            FlowState::Awake(_) => {
                self.deliver_awake(now, index, &segment, packet);
                Ok(())
            }
            FlowState::Asleep => self.deliver_asleep(now, index, &segment, packet),
            FlowState::Offered | FlowState::Lingering => {
                self.deliver_unserved(now, index, &segment, packet)
            }
        }
    }

    fn handle_stray(
        &mut self,
        now: Instant,
        segment: &Segment,
        packet: &[u8],
    ) -> Result<(), PacketRefusal> {
        if segment.flags & (SYN | ACK | RST | FIN) == SYN {
            return self.offer(now, segment, packet);
        }
        self.counters.strays += 1;
        if !segment.has(RST) {
            // The answer to a segment of no flow (RFC 9293 section 3.10.7.1).
            let answers = segment.has(ACK);
            let reply = EmptySegment {
                from: segment.to,
                to: segment.from,
                seq: if answers { segment.ack } else { 0 },
                ack: segment.seq.wrapping_add(segment.sequence_length()),
                flags: if answers { RST } else { RST | ACK },
                window: 0,
                options: SynOptions::default(),
            };
            self.reply(reply.frame());
        }
        Ok(())
    }

    /// Offers a new flow for a SYN. The application gets no answer until the user accepts the flow.
    fn offer(&mut self, now: Instant, syn: &Segment, packet: &[u8]) -> Result<(), PacketRefusal> {
        if self.flows.len() >= self.config.max_flows || self.opening >= self.config.max_opening {
            // Linux also drops the SYN when its backlog is full; TCP retransmits it.
            return Err(PacketRefusal::TooManyFlows);
        }
        let shift = self.config.window.trailing_zeros() - 16;
        let shift = u8::try_from(shift).unwrap_or(0);
        let mss = self.segment_size(syn.from.is_ipv6());
        let id = self.next_id();
        let mut flow = Flow {
            id,
            client: syn.from,
            target: syn.to,
            wire: WireState::new(syn, syn.syn_options(packet), mss, shift),
            state: FlowState::Offered,
            alarm: FlowAlarm::default(),
            dirty: false,
            heard: now,
            used: now,
            open: false,
            readable_reported: false,
            wants_room: false,
            read_end: false,
            finished: false,
            outgrown: false,
            taken: 0,
            last_empty: None,
            reset: None,
            doomed: None,
            size: BufferSize::Small,
        };
        let index = self.flows.vacant_key();
        let deadline = now + self.config.offer_timeout;
        self.timers.set(index, &mut flow.alarm, Some(deadline));
        self.flows.insert(flow);
        self.by_tuple
            .insert(FourTuple::new(syn.from, syn.to), index);
        self.opening += 1;
        self.counters.offered += 1;
        self.events.push_back(Event::Offered {
            flow: id,
            client: syn.from,
            target: syn.to,
        });
        Ok(())
    }

    /// Returns the largest payload in bytes that fits into a packet of the device.
    pub(crate) fn segment_size(&self, v6: bool) -> u16 {
        let headers = if v6 { 60 } else { 40 };
        u16::try_from(self.config.mtu - headers).unwrap_or(u16::MAX)
    }

    pub(crate) fn deliver_awake(
        &mut self,
        now: Instant,
        index: usize,
        segment: &Segment,
        packet: &mut [u8],
    ) {
        let flow = &mut self.flows[index];
        if flow.reset.is_some() {
            return self.refuse_after_reset(index, segment.has(RST));
        }
        if flow.open && !flow.wire.is_plausible(segment) {
            if !segment.has(RST) {
                self.acknowledge(index);
            }
            return;
        }
        let FlowState::Awake(socket) = &mut flow.state else {
            return;
        };
        if segment.has(ACK) {
            if !segment.has(SYN) {
                flow.wire.peer_window = segment.window;
            }
            let ack = flow.wire.inbound(segment.ack);
            packet[segment.tcp + 8..segment.tcp + 12].copy_from_slice(&ack.to_be_bytes());
        }
        let finished = matches!(
            socket.tcp().state(),
            State::CloseWait | State::Closing | State::LastAck | State::TimeWait
        );
        let mut scratch = [0; ShortFrame::CAPACITY];
        let sent = self
            .interface
            .ingress(now, socket, packet, &mut scratch[HEADER..]);
        let state = socket.tcp().state();
        flow.used = now;
        if flow.open {
            flow.heard = now;
        }
        let opened =
            !flow.open && !matches!(state, State::Listen | State::SynReceived | State::Closed);
        if opened {
            flow.open = true;
            flow.heard = now;
            self.opening -= 1;
            self.counters.opened += 1;
            let id = flow.id;
            self.events.push_back(Event::Open(id));
        }
        if sent > 0 {
            let length = self.translate(index, &mut scratch[..HEADER + sent]);
            if let Some(reply) = length.and_then(|length| ShortFrame::new(&scratch[..length])) {
                self.reply(reply);
            }
        }
        let reset = state == State::Listen || state == State::Closed && segment.has(RST);
        if reset {
            self.handle_reset(now, index, finished);
            return;
        }
        self.notify(index);
        self.mark(index);
    }

    /// Handles a segment for a flow without traffic. Most such segments need no socket.
    fn deliver_asleep(
        &mut self,
        now: Instant,
        index: usize,
        segment: &Segment,
        packet: &mut [u8],
    ) -> Result<(), PacketRefusal> {
        let flow = &mut self.flows[index];
        let expected = flow.wire.receive_next;
        if segment.has(RST) && segment.seq == expected {
            self.end(index, FlowEnding::Reset, false);
            return Ok(());
        }
        if segment.flags & (SYN | RST) != 0 || !segment.has(ACK) {
            // RFC 5961 sections 3.2 and 4.2: a genuine sender repeats the segment with a valid number after the ACK.
            if !segment.has(RST) || after(segment.seq, expected) {
                self.acknowledge(index);
            }
            return Ok(());
        }
        let fresh = after(
            segment.seq.wrapping_add(segment.sequence_length()),
            expected,
        );
        if !fresh {
            if segment.seq == expected {
                flow.wire.peer_window = segment.window;
            } else {
                // The segment is a keep-alive probe or a retransmission.
                self.acknowledge(index);
            }
            return Ok(());
        }
        if !self.wake(now, index) {
            return Err(PacketRefusal::NoMemory);
        }
        self.deliver_awake(now, index, segment, packet);
        Ok(())
    }

    /// Handles a segment for a flow without a socket that was not accepted yet or is lingering. A reset or the SYN of a
    /// new connection ends such a flow.
    fn deliver_unserved(
        &mut self,
        now: Instant,
        index: usize,
        segment: &Segment,
        packet: &[u8],
    ) -> Result<(), PacketRefusal> {
        let flow = &self.flows[index];
        let expected = flow.wire.receive_next;
        let offered = matches!(flow.state, FlowState::Offered);
        let begins_again = segment.has(SYN)
            && if offered {
                // The application has given up and tries again from the same port.
                segment.seq.wrapping_add(1) != expected
            } else {
                // RFC 6191: the application reuses the port.
                after(segment.seq, expected)
            };
        let ends = if segment.has(RST) {
            segment.seq == expected
        } else {
            begins_again
        };
        if ends && offered {
            self.end(index, FlowEnding::Reset, false);
        } else if ends {
            self.remove(index);
        }
        if segment.has(RST) {
            return Ok(());
        }
        if begins_again {
            return self.handle_stray(now, segment, packet);
        }
        if !offered && segment.sequence_length() > 0 {
            self.acknowledge(index);
        }
        Ok(())
    }

    fn acknowledge(&mut self, index: usize) {
        let flow = &self.flows[index];
        let window = self.pool.window(flow.size);
        let reply = flow.empty_segment(ACK, window);
        self.reply(reply);
    }

    /// Translates a packet that a socket has written into a frame for the wire. Returns the frame's length.
    pub(crate) fn translate(&mut self, index: usize, frame: &mut [u8]) -> Option<usize> {
        let packet = &mut frame[HEADER..];
        let Ok(segment) = Segment::parse(packet) else {
            debug_assert!(false, "smoltcp wrote an invalid packet");
            return None;
        };
        let offload = self.config.offload;
        let our_mss = self.segment_size(segment.from.is_ipv6());
        let flow = &mut self.flows[index];
        let seq = flow.wire.outbound(segment.seq);
        if !segment.has(RST) {
            flow.wire.sent(seq, &segment);
        }
        if segment.has(SYN) {
            let bare = EmptySegment {
                from: segment.from,
                to: segment.to,
                seq,
                ack: segment.ack,
                flags: segment.flags,
                window: segment.window,
                options: flow.wire.our_options(our_mss),
            };
            let short = bare.frame();
            frame
                .get_mut(..short.frame().len())?
                .copy_from_slice(short.frame());
            return Some(short.frame().len());
        }
        let bytes = usize::from(segment.window)
            << self
                .pool
                .shift(flow.size, flow.wire.peer.window_scale.is_some());
        let window = flow.wire.window(bytes);
        let tcp = HEADER + segment.tcp;
        frame[tcp + 4..tcp + 8].copy_from_slice(&seq.to_be_bytes());
        frame[tcp + 14..tcp + 16].copy_from_slice(&window.to_be_bytes());
        let cut = segment.payload.len() > usize::from(flow.wire.mss);
        let what = crate::outbound::offload(offload, cut.then_some(flow.wire.mss), &segment);
        frame[..HEADER].copy_from_slice(&what.to_bytes());
        fill_tcp_checksum(frame, tcp, segment.from.ip(), segment.to.ip(), offload);
        Some(frame.len())
    }
}

/// Checks that the header of a frame is consistent with its packet.
fn check_offload(offload: Offload, segment: &Segment) -> Result<(), PacketRefusal> {
    if let Some(cut) = offload.segment
        && (cut.v6 != segment.from.is_ipv6() || cut.size == 0)
    {
        return Err(PacketRefusal::Malformed);
    }
    if let Checksum::Partial { start, offset } = offload.checksum
        && (usize::from(start) != segment.tcp || offset != 16)
    {
        return Err(PacketRefusal::Malformed);
    }
    Ok(())
}
