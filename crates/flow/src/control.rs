//! The control stream of a connection (PROTOCOL section 5.6): it identifies the client, confirms what has arrived, and
//! asks the peer to pause flows.
//!
//! ```text
//! client: connected ─► HELLO ─► HELLO_ACK ─► open           server: HELLO ─► known ─► HELLO_ACK ─► open
//!                        └────► reset: an older server              └─► not known: the connection is closed
//! ```
//!
//! A peer without a control stream is still served, but it cannot confirm what has arrived.

use std::collections::BTreeMap;

use bytes::Bytes;
use quictun_wire::bond::{BondGrant, BondRequest};
use quictun_wire::code::FlowCode;
use quictun_wire::control::{FlowEnd, Frame, MAX_FLOWS, MAX_FRAME, Seen};
use quictun_wire::join::{Grant, Join};

use crate::inlet::Inlet;
use crate::stream::{ReadEnd, Stream, WriteEnd};

/// Limit on frames that wait for the peer's credit, in bytes. A peer that leaves more unread is stuck or hostile.
const PENDING_MAX: usize = 64 * 1024;

/// Ended flows that wait for the peer's confirmation are kept by number while they take less than this part of the free
/// memory. Beyond that the oldest are only counted, so a peer that never confirms costs little.
const UNSEEN_PART: u64 = 1024;
const UNSEEN_MIN: usize = 64;
const UNSEEN_MAX: usize = 16 * 1024;

/// Bytes of the control stream that are parsed together: a few of the longest frames.
const READ_MAX: usize = 4 * MAX_FRAME;

/// Memory of each unconfirmed flow, in bytes: an entry in a B-tree whose nodes are at least half full.
const UNSEEN_COST: usize = 40;

/// The control stream of one connection. A connection without one has the default value.
#[derive(Debug, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent facts: what the peer has said, and what has come"
)]
pub struct ControlStream {
    /// Id of the control stream.
    stream: Option<u64>,
    /// The peer's HELLO or `HELLO_ACK` has arrived.
    open: bool,
    answer: HelloAnswer,
    /// Server: the bond that the answer grants.
    bond: Option<BondGrant>,
    /// Reverse forwards: the client has asked for them, and the server has agreed.
    reverse: bool,
    readable: bool,
    /// Memory that `inlet` held, as counted in the connection.
    counted: usize,
    inlet: Inlet,
    pending: Bytes,
    outbox: Vec<u8>,
    seen: Vec<Seen>,
    gone: Vec<FlowEnd>,
    /// Flows of the bond that ended while they had no connection.
    ended: Vec<FlowEnd>,
    /// Flows that the peer should hold (`true`) or continue (`false`), in this order.
    holds: Vec<(u64, bool)>,
    /// Ended flows that the peer has not confirmed: the number of each, and the number that SEEN must name.
    unseen: BTreeMap<u64, u64>,
    /// Count of further unconfirmed flows, whose numbers were dropped to save memory.
    unseen_more: usize,
    /// The connection's control stream has ended. The peer may not begin another.
    over: bool,
}

/// Server: how HELLO is answered.
#[derive(Debug, Default)]
enum HelloAnswer {
    #[default]
    Plain,
    /// The client has sent JOIN, which has not been judged yet.
    AfterJoin,
    With(Grant),
    /// The answer has been sent.
    Sent,
}

impl ControlStream {
    /// Client: begins the stream with a HELLO that identifies this client.
    pub fn begin(
        &mut self,
        stream: u64,
        proof: Option<[u8; 32]>,
        join: Option<Join>,
        bond: Option<BondRequest>,
        reverse: bool,
    ) {
        self.stream = Some(stream);
        Frame::Hello {
            proof,
            join,
            bond,
            reverse,
        }
        .encode(&mut self.outbox);
    }

    /// Server: takes a stream that the peer began, whose bytes arrive in `inlet`. Returns false if there is or was
    /// another control stream.
    pub fn adopt(&mut self, stream: u64, inlet: Inlet) -> bool {
        if self.stream.is_some() || self.over {
            return false;
        }
        self.stream = Some(stream);
        self.inlet = inlet;
        true
    }

    /// Notes that the peer's HELLO or `HELLO_ACK` has arrived.
    pub fn open(&mut self) {
        self.open = true;
    }

    /// Returns whether the peer's HELLO or `HELLO_ACK` has arrived.
    pub fn is_open(&self) -> bool {
        self.open
    }

    /// Sets what the peer's HELLO or `HELLO_ACK` said about reverse forwards.
    pub fn set_reverse(&mut self, reverse: bool) {
        self.reverse = reverse;
    }

    /// Returns whether the client may ask the server to listen for it.
    pub fn may_listen(&self) -> bool {
        self.open && self.reverse
    }

    /// Queues a frame, if there is a control stream.
    pub fn send_frame(&mut self, frame: &Frame) {
        if self.stream.is_some() {
            frame.encode(&mut self.outbox);
        }
    }

    /// Server: notes that the peer's HELLO has a JOIN. It is answered once the JOIN is judged.
    pub fn begin_join(&mut self) {
        self.answer = HelloAnswer::AfterJoin;
    }

    /// Server: sets the grant for a client that sent JOIN. Returns false if the client sent no JOIN, or was already
    /// answered.
    pub fn end_join(&mut self, grant: Option<Grant>) -> bool {
        let waited = matches!(self.answer, HelloAnswer::AfterJoin);
        if waited {
            self.answer = grant.map_or(HelloAnswer::Plain, HelloAnswer::With);
        }
        waited
    }

    /// Server: answers HELLO, unless its JOIN has not been judged yet. `bond` is the bond that the answer grants.
    pub fn answer_hello(&mut self, bond: Option<BondGrant>) {
        self.bond = bond.or(self.bond.take());
        let grant = match std::mem::replace(&mut self.answer, HelloAnswer::Sent) {
            HelloAnswer::Plain => None,
            HelloAnswer::With(grant) => Some(grant),
            HelloAnswer::AfterJoin => {
                self.answer = HelloAnswer::AfterJoin;
                return;
            }
            HelloAnswer::Sent => return,
        };
        let bond = self.bond.take();
        Frame::HelloAck {
            grant,
            bond,
            reverse: self.reverse,
        }
        .encode(&mut self.outbox);
    }

    /// Server: returns whether HELLO has been answered.
    pub fn is_answered(&self) -> bool {
        matches!(self.answer, HelloAnswer::Sent)
    }

    /// Returns the id of the control stream, if there is one.
    pub fn stream(&self) -> Option<u64> {
        self.stream
    }

    /// Notes that data has arrived on the stream.
    pub fn handle_readable(&mut self) {
        self.readable = true;
    }

    /// Returns whether data has arrived on the stream since the last call.
    pub fn take_readable(&mut self) -> bool {
        std::mem::take(&mut self.readable)
    }

    /// Takes in what has arrived on `stream`. The peer's packets have at most `packet_max` bytes. Returns whether the
    /// stream has ended.
    pub fn take_in<T: Stream>(&mut self, stream: &mut T, packet_max: usize) -> bool {
        self.inlet.handle_readable(packet_max);
        self.inlet.take_in(stream, usize::MAX) != ReadEnd::Blocked
    }

    /// Copies the first received bytes, as many as are parsed together.
    ///
    /// The bytes are copied once for all of their frames. A frame may have two bytes, so copying the longest frame's
    /// length for each frame would cost the server 2000 times what it costs the peer.
    pub fn unparsed(&self) -> Vec<u8> {
        self.inlet.header(READ_MAX)
    }

    /// Removes `consumed` bytes of complete frames, out of the `of` bytes that were parsed. Returns whether more frames
    /// may have arrived behind those that were parsed.
    pub fn consume(&mut self, consumed: usize, of: usize) -> bool {
        self.inlet.skip_header(consumed);
        consumed > 0 && of == READ_MAX
    }

    /// Packs the bytes that do not form a complete frame yet. Returns the memory that they took at the last count, and
    /// the memory that they take now.
    pub fn count_received(&mut self) -> (usize, usize) {
        self.inlet.pack();
        let now = self.inlet.held();
        (std::mem::replace(&mut self.counted, now), now)
    }

    /// Ends the stream: the peer is then served like one without a control stream. Returns the memory held at the last
    /// count.
    pub fn end(&mut self) -> usize {
        let counted = self.counted;
        *self = Self {
            over: true,
            ..Self::default()
        };
        counted
    }

    /// Returns whether there is something to write.
    pub fn has_frames(&self) -> bool {
        let ended = !self.seen.is_empty() || !self.gone.is_empty() || !self.ended.is_empty();
        ended || !self.holds.is_empty() || !self.outbox.is_empty() || !self.pending.is_empty()
    }

    /// Writes queued frames to `stream` until it takes no more. Returns how many bytes it took, and whether more than
    /// `PENDING_MAX` bytes then wait for the peer's credit.
    pub fn write<T: Stream>(&mut self, stream: &mut T) -> (usize, bool) {
        self.encode();
        let mut written = 0;
        loop {
            if self.pending.is_empty() {
                self.pending = Bytes::from(std::mem::take(&mut self.outbox));
            }
            if self.pending.is_empty() {
                return (written, false);
            }
            let before = self.pending.len();
            let end = stream.write(&mut self.pending);
            written += before - self.pending.len();
            match end {
                WriteEnd::Taken => {}
                WriteEnd::Blocked => {
                    let left = self.pending.len() + self.outbox.len();
                    return (written, left > PENDING_MAX);
                }
                // The peer has stopped the stream. The peer's end of the stream will show what follows.
                WriteEnd::Stopped(_) | WriteEnd::Gone => {
                    self.pending = Bytes::new();
                    self.outbox.clear();
                    return (written, false);
                }
            }
        }
    }

    /// Queues a SEEN: everything of a flow has arrived.
    pub fn note_seen(&mut self, flow: u64, next: u64) {
        // HELLO may still be in transit, overtaken by flows.
        if self.stream.is_some() || self.seen.len() < MAX_FLOWS {
            self.seen.push(Seen { flow, next });
        }
    }

    /// Queues a GONE: a flow has ended before everything of it arrived.
    pub fn note_gone(&mut self, flow: u64, code: FlowCode) {
        if self.stream.is_some() || self.gone.len() < MAX_FLOWS {
            self.gone.push(FlowEnd {
                flow,
                code: code.to_peer(),
            });
        }
    }

    /// Queues an ENDED: a flow of the bond has ended while it had no connection. It is named by its number in the bond.
    pub fn note_ended(&mut self, gone: FlowEnd) {
        self.ended.push(gone);
    }

    /// Queues a HOLD (`true`) or GO (`false`): the peer should send no more on the flow, or send again.
    pub fn hold(&mut self, flow: u64, hold: bool) {
        self.holds.push((flow, hold));
    }

    /// Notes that a flow has ended here and that the peer has not confirmed all of it. `free` is the free memory, in
    /// bytes.
    pub fn await_seen(&mut self, flow: u64, next: u64, free: u64) {
        if self.stream.is_some() {
            self.unseen.insert(flow, next);
            let room = usize::try_from(free / UNSEEN_PART).unwrap_or(usize::MAX) / UNSEEN_COST;
            if self.unseen.len() > room.clamp(UNSEEN_MIN, UNSEEN_MAX) {
                self.unseen.pop_first();
                self.unseen_more += 1;
            }
        }
    }

    /// Returns the number of ended flows that the peer has not confirmed.
    pub fn unconfirmed(&self) -> usize {
        self.unseen.len() + self.unseen_more
    }

    /// Removes an ended flow that the peer has confirmed (`next`) or given up (`None`). Returns false if the flow was
    /// not awaited, or if the peer has not confirmed all of it.
    pub fn confirm(&mut self, flow: u64, next: Option<u64>) -> bool {
        match self.unseen.get(&flow) {
            Some(wanted) if next.is_none_or(|next| next == *wanted) => {
                self.unseen.remove(&flow);
                true
            }
            _ => false,
        }
    }

    /// Counts a confirmation of a flow whose number was dropped.
    pub fn confirm_forgotten(&mut self) {
        self.unseen_more = self.unseen_more.saturating_sub(1);
    }

    /// Returns the memory of frames that wait to be sent, and of flows that wait for the peer's confirmation, in bytes.
    pub fn kept(&self) -> u64 {
        let frames = self.pending.len() + self.outbox.capacity();
        let said = self.seen.capacity() * size_of::<Seen>()
            + (self.gone.capacity() + self.ended.capacity()) * size_of::<FlowEnd>()
            + self.holds.capacity() * size_of::<(u64, bool)>();
        (frames + said + self.unseen.len() * UNSEEN_COST) as u64
    }

    /// Returns the memory of received bytes that do not form a complete frame yet, in bytes.
    pub fn received(&self) -> u64 {
        self.inlet.held() as u64
    }

    /// Returns the part of [`ControlStream::received`] that is not data: the overhead of pieces, in bytes.
    pub fn overhead(&self) -> u64 {
        (self.inlet.held() - self.inlet.buffered()) as u64
    }

    /// Returns the number of streams that do not belong to flows: 1 if there is a control stream, otherwise 0.
    pub fn streams(&self) -> usize {
        usize::from(self.stream.is_some())
    }

    fn encode(&mut self) {
        for flows in std::mem::take(&mut self.seen).chunks(MAX_FLOWS) {
            Frame::Seen(flows.to_vec()).encode(&mut self.outbox);
        }
        for flows in std::mem::take(&mut self.gone).chunks(MAX_FLOWS) {
            Frame::Gone(flows.to_vec()).encode(&mut self.outbox);
        }
        for flows in std::mem::take(&mut self.ended).chunks(MAX_FLOWS) {
            Frame::Ended(flows.to_vec()).encode(&mut self.outbox);
        }
        let holds = std::mem::take(&mut self.holds);
        // The peer obeys the last frame that names a flow, so HOLD and GO keep their order.
        for same in holds.chunk_by(|one, other| one.1 == other.1) {
            for flows in same.chunks(MAX_FLOWS) {
                let hold = flows[0].1;
                let flows = flows.iter().map(|&(flow, _)| flow).collect();
                let frame = if hold {
                    Frame::Hold(flows)
                } else {
                    Frame::Go(flows)
                };
                frame.encode(&mut self.outbox);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use quictun_wire::open::Decoded;

    use super::*;

    /// Returns the id of the stream that a client opens at `index`.
    fn stream(index: u64) -> u64 {
        index * 4
    }

    fn frames(control: &mut ControlStream) -> Vec<Frame> {
        control.encode();
        let bytes = std::mem::take(&mut control.outbox);
        let mut rest = bytes.as_slice();
        let mut frames = Vec::new();
        while let Ok(Decoded::Done { frame, consumed }) = Frame::decode(rest) {
            rest = &rest[consumed..];
            frames.push(frame);
        }
        frames
    }

    // PROTOCOL CONTROL-7.
    #[test]
    fn the_latest_hold_or_go_of_a_flow_is_sent_last() {
        let mut control = ControlStream::default();
        for (index, hold) in [(0, true), (1, true), (0, false), (0, true)] {
            control.hold(stream(index), hold);
        }
        let expected = [
            Frame::Hold(vec![0, 4]),
            Frame::Go(vec![0]),
            Frame::Hold(vec![0]),
        ];
        assert_eq!(frames(&mut control), expected);
    }

    #[test]
    fn one_more_flow_than_a_frame_may_name_takes_a_second_frame() {
        let mut control = ControlStream::default();
        for index in 0..=MAX_FLOWS as u64 {
            control.hold(stream(index), true);
        }
        let named = frames(&mut control).into_iter().map(|frame| match frame {
            Frame::Hold(flows) => flows.len(),
            other => panic!("{other:?}"),
        });
        assert_eq!(named.collect::<Vec<_>>(), [MAX_FLOWS, 1]);
    }

    // PROTOCOL CODE-2.
    #[test]
    fn gone_does_not_name_a_lost_connection() {
        let mut control = ControlStream::default();
        for code in [FlowCode::ConnectionLost, FlowCode::Limit] {
            control.note_gone(stream(1), code);
        }
        let end = |code: FlowCode| FlowEnd {
            flow: stream(1),
            code: code.to_u64(),
        };
        let expected = Frame::Gone(vec![end(FlowCode::AppReset), end(FlowCode::Limit)]);
        assert_eq!(frames(&mut control), [expected]);
    }

    // PROTOCOL JOIN-5, CONTROL-2: the client must receive one HELLO_ACK, whatever completes first.
    #[test]
    fn a_join_is_answered_once_and_not_before_it_is_judged() {
        let grant = || Some(Grant::new("laptop", ["a:1".to_owned()]));
        let mut control = ControlStream::default();
        control.begin_join();
        // The certificate identified the client in the same turn.
        control.answer_hello(None);
        assert_eq!(frames(&mut control), []);
        assert!(control.end_join(grant()));
        control.answer_hello(None);
        let answer = |grant| Frame::HelloAck {
            grant,
            bond: None,
            reverse: false,
        };
        assert_eq!(frames(&mut control), [answer(grant())]);
        assert!(!control.end_join(grant()), "HELLO was already answered");
        let mut plain = ControlStream::default();
        assert!(!plain.end_join(grant()), "the client sent no JOIN");
        plain.answer_hello(None);
        assert_eq!(frames(&mut plain), [answer(None)]);
    }

    // PROTOCOL CLOSE-13, MEMORY-1.
    #[test]
    fn flows_with_dropped_numbers_still_await_confirmation() {
        let mut control = ControlStream {
            stream: Some(stream(0)),
            ..ControlStream::default()
        };
        let flows = 3 * UNSEEN_MIN as u64;
        for index in 1..=flows {
            control.await_seen(stream(index), 7, 0);
        }
        assert_eq!(control.unseen.len(), UNSEEN_MIN);
        assert!(control.kept() <= (UNSEEN_MIN * UNSEEN_COST) as u64);
        for index in 1..=flows {
            assert_eq!(control.unconfirmed() as u64, flows + 1 - index);
            if !control.confirm(index * 4, Some(7)) {
                control.confirm_forgotten();
            }
        }
        assert_eq!(control.unconfirmed(), 0);
    }
}
