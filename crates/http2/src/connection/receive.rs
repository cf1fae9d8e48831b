//! Frames that arrive, and the rules for them.

use std::time::Instant;

use bytes::{Buf, Bytes};
use quictun_flow::StreamId;

use super::{Http2, Leaving, ReplyFrame, STREAMS_MAX, Stream, WAITING_HEADS_MAX, id_of};
use crate::credit::add_to;
use crate::error::{BrokenRule, ErrorCode};
use crate::event::Event;
use crate::frame::{
    self, ACK, END_HEADERS, END_STREAM, FrameHead, FrameType, HEAD_LEN, NUMBER_MASK, PADDED,
    WINDOW_MAX,
};
use crate::hpack::BlockError;
use crate::recv::{RecvPart, RecvState};
use crate::request::{Request, RequestHead};
use crate::send::SendPart;

/// The first bytes of a client (RFC 9113 section 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Maximum length of a block of fields, bytes: twice the longest list that is answered, so that a longer one still gets an
/// answer.
const BLOCK_MAX: usize = 16 * 1024;

/// Most frames of a block. A block of the greatest length fits one frame; common clients cut theirs at that length only.
const BLOCK_FRAMES_MAX: u32 = 16;

/// The part of the connection that the next bytes belong to.
#[derive(Debug)]
pub(super) enum FrameReader {
    /// The preface, of which this many bytes have arrived.
    Preface(usize),
    Head([u8; HEAD_LEN], usize),
    /// The payload of a frame that is handled as a whole.
    Payload(FrameHead, Vec<u8>),
    Data(DataFrame),
    /// The rest of a frame that is not needed.
    Skip(usize),
}

/// The part of a DATA frame that is still to arrive.
#[derive(Clone, Copy, Debug)]
pub(super) struct DataFrame {
    stream: u32,
    ends: bool,
    /// The length of the padding is still to arrive.
    padded: bool,
    padding: usize,
    left: usize,
}

impl Default for FrameReader {
    fn default() -> Self {
        Self::Preface(0)
    }
}

impl FrameReader {
    pub(super) fn held(&self) -> usize {
        match self {
            Self::Payload(_, payload) => payload.capacity(),
            _ => 0,
        }
    }
}

/// A block of fields, as far as it has arrived.
#[derive(Debug)]
pub(super) struct HeaderBlock {
    stream: u32,
    ends: bool,
    bytes: Vec<u8>,
    frames: u32,
}

impl HeaderBlock {
    pub(super) fn len(&self) -> usize {
        self.bytes.capacity()
    }
}

pub(super) type Handled = Result<(), BrokenRule>;

impl Http2 {
    /// Handles bytes of the transport, in pieces of any length. A closed connection drops them.
    pub fn handle_bytes(&mut self, now: Instant, mut input: Bytes) {
        while self.is_open() && !input.is_empty() {
            if let Err(violation) = self.handle_some(now, &mut input) {
                self.fail(violation);
            }
            // Before the next frame: how the bytes are split changes nothing.
            self.end_if_done();
        }
    }

    /// Handles the first bytes, up to the end of a frame's head or payload.
    fn handle_some(&mut self, now: Instant, input: &mut Bytes) -> Handled {
        match &mut self.reader {
            FrameReader::Preface(seen) => {
                let length = input.len().min(PREFACE.len() - *seen);
                if input[..length] != PREFACE[*seen..*seen + length] {
                    return Err(BrokenRule::protocol(
                        "the first bytes are not those of HTTP/2",
                    ));
                }
                input.advance(length);
                *seen += length;
                if *seen == PREFACE.len() {
                    self.reader = FrameReader::Head([0; HEAD_LEN], 0);
                }
            }
            FrameReader::Head(bytes, seen) => {
                let length = input.len().min(HEAD_LEN - *seen);
                input.copy_to_slice(&mut bytes[*seen..*seen + length]);
                *seen += length;
                if *seen == HEAD_LEN {
                    let head = FrameHead::decode(*bytes)?;
                    self.begin_frame(now, head)?;
                }
            }
            FrameReader::Payload(head, payload) => {
                let length = input.len().min(head.length - payload.len());
                payload.extend_from_slice(&input.split_to(length));
                if payload.len() == head.length {
                    let (head, payload) = (*head, std::mem::take(payload));
                    self.reader = FrameReader::Head([0; HEAD_LEN], 0);
                    self.handle_frame(now, head, &payload)?;
                }
            }
            FrameReader::Data(data) => {
                let data = *data;
                self.handle_data(now, data, input)?;
            }
            FrameReader::Skip(left) => {
                let length = input.len().min(*left);
                input.advance(length);
                *left -= length;
                if *left == 0 {
                    self.reader = FrameReader::Head([0; HEAD_LEN], 0);
                }
            }
        }
        Ok(())
    }

    /// Checks a frame against those before it, and decides what is done with its payload.
    fn begin_frame(&mut self, now: Instant, head: FrameHead) -> Handled {
        let continues = match &self.block {
            Some(block) => head.kind == FrameType::Continuation && head.stream == block.stream,
            None => head.kind != FrameType::Continuation,
        };
        if !continues {
            let rule = "a block of fields is interrupted, or has no beginning";
            return Err(BrokenRule::protocol(rule));
        }
        let greets = head.kind == FrameType::Settings && !head.has(ACK);
        if !self.greeted && !greets {
            return Err(BrokenRule::protocol("the first frame is not SETTINGS"));
        }
        self.greeted = true;
        let ignored = matches!(head.kind, FrameType::Priority | FrameType::Unknown);
        if !ignored && head.stream != 0 && head.stream & 1 == 0 {
            return Err(BrokenRule::protocol("a frame names a stream of the server"));
        }
        match head.kind {
            FrameType::Data => return self.begin_data(now, head),
            FrameType::Unknown => {
                self.count_idle_frame(now)?;
                self.reader = FrameReader::Skip(head.length);
            }
            FrameType::Headers | FrameType::Continuation => {
                let before = self.block.as_ref().map_or(0, |block| block.bytes.len());
                if before + head.length > BLOCK_MAX {
                    return Err(BrokenRule::calm("a block of fields is too long"));
                }
                self.reader = FrameReader::Payload(head, Vec::with_capacity(head.length));
            }
            _ => self.reader = FrameReader::Payload(head, Vec::with_capacity(head.length)),
        }
        if head.length == 0 {
            let payload = matches!(self.reader, FrameReader::Payload(..));
            self.reader = FrameReader::Head([0; HEAD_LEN], 0);
            if payload {
                return self.handle_frame(now, head, &[]);
            }
        }
        Ok(())
    }

    fn handle_frame(&mut self, now: Instant, head: FrameHead, mut payload: &[u8]) -> Handled {
        match head.kind {
            FrameType::Headers => {
                let Some(bytes) = frame::unpadded(&head, payload) else {
                    return Err(BrokenRule::protocol(
                        "a frame has more padding than content",
                    ));
                };
                let block = HeaderBlock {
                    stream: head.stream,
                    ends: head.has(END_STREAM),
                    bytes: bytes.to_vec(),
                    frames: 1,
                };
                self.handle_block(now, block, head.has(END_HEADERS))
            }
            FrameType::Continuation => {
                let Some(mut block) = self.block.take() else {
                    return Ok(());
                };
                if payload.is_empty() {
                    self.count_idle_frame(now)?;
                }
                block.bytes.extend_from_slice(payload);
                block.frames += 1;
                if block.frames > BLOCK_FRAMES_MAX {
                    return Err(BrokenRule::calm("a block of fields has too many frames"));
                }
                self.handle_block(now, block, head.has(END_HEADERS))
            }
            FrameType::RstStream => self.handle_reset(now, head.stream),
            FrameType::Settings => self.handle_settings(now, &head, payload),
            FrameType::Ping => self.handle_ping(now, &head, payload),
            FrameType::Goaway => {
                self.count_idle_frame(now)?;
                self.leaving = self.leaving.or(Some(Leaving::ByPeer));
                Ok(())
            }
            FrameType::WindowUpdate => {
                let more = payload.get_u32() & NUMBER_MASK;
                self.handle_window_update(now, head.stream, more)
            }
            FrameType::Priority => self.count_idle_frame(now),
            // These have no payload that is handled as a whole.
            FrameType::Data | FrameType::PushPromise | FrameType::Unknown => Ok(()),
        }
    }

    fn handle_settings(&mut self, now: Instant, head: &FrameHead, payload: &[u8]) -> Handled {
        self.count_idle_frame(now)?;
        if head.has(ACK) {
            if let Some(at) = self.settings_sent.take() {
                let time = now.saturating_duration_since(at);
                self.events.push(Event::RoundTrip(time));
            }
            return Ok(());
        }
        let settings = frame::settings(payload)?;
        self.table_reduced |= settings.reduces_table;
        if let Some(most) = settings.max_frame_size {
            self.peer_payload_max = most;
        }
        if let Some(window) = settings.initial_window_size {
            let more = i64::from(window) - i64::from(self.peer_window);
            self.peer_window = window;
            for id in self.ids() {
                if let Some(stream) = self.streams.get_mut(&id) {
                    stream.send.window += more;
                    if stream.send.window > i64::from(WINDOW_MAX) {
                        return Err(TOO_MUCH_CREDIT);
                    }
                }
                self.note_credit(id);
            }
        }
        self.reply(ReplyFrame::Settings)
    }

    fn handle_ping(&mut self, now: Instant, head: &FrameHead, payload: &[u8]) -> Handled {
        self.count_idle_frame(now)?;
        let content = payload.first_chunk().copied().unwrap_or_default();
        // This side sends none.
        if head.has(ACK) {
            return Ok(());
        }
        self.reply(ReplyFrame::Ping(content))
    }

    fn handle_window_update(&mut self, now: Instant, stream: u32, more: u32) -> Handled {
        if stream == 0 {
            if more == 0 {
                return Err(BrokenRule::protocol("WINDOW_UPDATE adds nothing"));
            }
            return self
                .send_credit
                .add(more)
                .then_some(())
                .ok_or(TOO_MUCH_CREDIT);
        }
        let Some(known) = self.live_stream(stream) else {
            self.check_opened(stream)?;
            return self.count_idle_frame(now);
        };
        if more == 0 {
            return self.fail_stream(now, stream, ErrorCode::PROTOCOL_ERROR);
        }
        if known.local_ended {
            return self.count_idle_frame(now);
        }
        if !add_to(&mut known.send.window, more) {
            return self.fail_stream(now, stream, ErrorCode::FLOW_CONTROL_ERROR);
        }
        self.note_credit(id_of(stream));
        Ok(())
    }

    /// Handles a block of fields, if it is `complete`.
    fn handle_block(&mut self, now: Instant, block: HeaderBlock, complete: bool) -> Handled {
        if !complete {
            self.block = Some(block);
            return Ok(());
        }
        let mut request = Request::default();
        let decoded = self
            .decoder
            .decode(&block.bytes, |name, value| request.push(name, value));
        decoded.map_err(|error| match error {
            BlockError::Malformed => {
                let rule = "a block of fields is malformed";
                BrokenRule::new(ErrorCode::COMPRESSION_ERROR, rule)
            }
            BlockError::TooLarge => BrokenRule::calm("the fields of a request are too large"),
        })?;
        let is_new = block.stream > self.last_stream;
        self.last_stream = self.last_stream.max(block.stream);
        if self.ignores(block.stream) {
            return self.count_idle_frame(now);
        }
        if !is_new {
            return match self.live_stream(block.stream) {
                // RFC 9113 section 8.5: only data follows the request.
                Some(stream) if !stream.recv.peer_ended => {
                    self.fail_stream(now, block.stream, ErrorCode::PROTOCOL_ERROR)
                }
                _ => {
                    let rule = "a request follows the end of its stream";
                    Err(BrokenRule::new(ErrorCode::STREAM_CLOSED, rule))
                }
            };
        }
        match request.finish() {
            RequestHead::Malformed => self.refuse(now, block.stream, ErrorCode::PROTOCOL_ERROR),
            RequestHead::TooLarge => {
                self.count_reset(now)?;
                self.remember_reset(block.stream);
                self.reply(ReplyFrame::TooLarge(block.stream))
            }
            RequestHead::Whole { text, .. } if !self.has_room_for(text.len()) => {
                self.refuse(now, block.stream, ErrorCode::REFUSED_STREAM)
            }
            RequestHead::Whole { text, is_head } => {
                self.open_stream(id_of(block.stream), text, is_head);
                if block.ends {
                    self.end_receiving(now, block.stream);
                }
                Ok(())
            }
        }
    }

    /// Returns whether a request with a head of this length is taken. The connection may have few streams now and more soon:
    /// a peer that has not acknowledged the limit may send more requests, which wait (RFC 9113 section 5.1.2).
    fn has_room_for(&self, head: usize) -> bool {
        let knows_limit = !self.settings_due && self.settings_sent.is_none();
        let waits = self.open >= self.config.streams;
        let fits = self.opened_heads + head <= WAITING_HEADS_MAX && !knows_limit;
        self.open < STREAMS_MAX && (!waits || fits)
    }

    fn open_stream(&mut self, id: StreamId, head: Vec<u8>, is_head: bool) {
        self.opened_heads += head.len();
        let stream = Stream {
            recv: RecvPart::new(head),
            send: SendPart::new(self.peer_window.into()),
            is_head,
            is_refused: false,
            local_ended: false,
            closed: false,
            stopped: None,
            scheduled: false,
            has_control: false,
        };
        self.streams.insert(id, stream);
        self.open += 1;
        self.idle_since = None;
        self.opened.push_back(id);
        self.events.note_opened();
    }

    fn begin_data(&mut self, now: Instant, head: FrameHead) -> Handled {
        let length = head.length as u64;
        if !self.receive_credit.note_received(length) {
            let rule = "the connection has more data than it has credit for";
            return Err(BrokenRule::new(ErrorCode::FLOW_CONTROL_ERROR, rule));
        }
        if head.length == 0 && !head.has(END_STREAM) {
            self.count_idle_frame(now)?;
        }
        self.check_opened(head.stream)?;
        let known = self.live_stream(head.stream);
        let known = known.map(|it| (it.recv.peer_ended, it.recv.note_received(length)));
        match known {
            Some((false, true)) => {}
            Some((false, false)) => {
                self.fail_stream(now, head.stream, ErrorCode::FLOW_CONTROL_ERROR)?;
            }
            _ if self.ignores(head.stream) => {}
            Some((true, _)) => self.fail_stream(now, head.stream, ErrorCode::STREAM_CLOSED)?,
            None => self.refuse(now, head.stream, ErrorCode::STREAM_CLOSED)?,
        }
        let data = DataFrame {
            stream: head.stream,
            ends: head.has(END_STREAM),
            padded: head.has(PADDED),
            padding: 0,
            left: head.length,
        };
        self.reader = FrameReader::Data(data);
        if head.length == 0 {
            return self.handle_data(now, data, &mut Bytes::new());
        }
        Ok(())
    }

    /// Handles a part of a DATA frame. The frame's length has used credit already.
    fn handle_data(&mut self, now: Instant, mut data: DataFrame, input: &mut Bytes) -> Handled {
        if data.padded {
            let Some(padding) = input.first().copied() else {
                let rule = "a frame has no room for the length of its padding";
                return Err(BrokenRule::new(ErrorCode::FRAME_SIZE_ERROR, rule));
            };
            input.advance(1);
            data.padded = false;
            data.left -= 1;
            data.padding = usize::from(padding);
            if data.padding > data.left {
                return Err(BrokenRule::protocol(
                    "a frame has more padding than content",
                ));
            }
            if data.padding == data.left && !data.ends {
                self.count_idle_frame(now)?;
            }
            self.drop_padding(data.stream, 1);
        }
        let content = input.len().min(data.left - data.padding);
        if content > 0 {
            data.left -= content;
            self.deliver(data.stream, input.split_to(content));
        }
        if data.left == data.padding {
            let padding = input.len().min(data.padding);
            input.advance(padding);
            data.left -= padding;
            data.padding -= padding;
            self.drop_padding(data.stream, padding);
        }
        if data.left > 0 {
            self.reader = FrameReader::Data(data);
            return Ok(());
        }
        self.reader = FrameReader::Head([0; HEAD_LEN], 0);
        if data.ends {
            self.end_receiving(now, data.stream);
        }
        Ok(())
    }

    /// Gives data to its stream, or drops it if the stream takes none.
    fn deliver(&mut self, stream: u32, data: Bytes) {
        let id = id_of(stream);
        match self.streams.get_mut(&id) {
            Some(stream) if stream.recv.state == RecvState::Open => {
                stream.recv.insert(data);
                self.note_readable(id);
            }
            _ => self.receive_credit.note_taken(data.len() as u64),
        }
    }

    /// Gives back the credit of padding.
    fn drop_padding(&mut self, stream: u32, bytes: usize) {
        self.receive_credit.note_taken(bytes as u64);
        let id = id_of(stream);
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.recv.note_padding(bytes as u64);
            self.announce(id);
        }
    }

    /// Ends the peer's part of a stream (`END_STREAM`).
    fn end_receiving(&mut self, now: Instant, stream: u32) {
        let id = id_of(stream);
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        if !stream.recv.peer_ended {
            stream.recv.peer_ended = true;
            if stream.recv.state == RecvState::Open {
                stream.recv.state = RecvState::Finished;
                self.note_readable(id);
            }
            self.settle(now, id);
        }
    }

    pub(super) fn note_readable(&mut self, id: StreamId) {
        if let Some(stream) = self.streams.get_mut(&id)
            && !std::mem::replace(&mut stream.recv.noted, true)
        {
            self.events.push(Event::Readable(id));
        }
    }
}

const TOO_MUCH_CREDIT: BrokenRule = BrokenRule::new(
    ErrorCode::FLOW_CONTROL_ERROR,
    "a side has more credit than the protocol permits",
);
