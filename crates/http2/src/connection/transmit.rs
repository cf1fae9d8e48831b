//! Frames that leave: those of the connection first, then those of streams, then data.

use std::time::Instant;

use bytes::BufMut;
use quictun_flow::StreamId;

use super::{Http2, Leaving, ReplyFrame, State, number_of};
use crate::error::ErrorCode;
use crate::frame::{ACK, END_HEADERS, END_STREAM, FrameHead, FrameType, HEAD_LEN, WINDOW_MAX};
use crate::hpack::{EMPTY_TABLE, put_status};
use crate::request::LIST_MAX;
use crate::send::{AnswerState, SendPart, SendState};

/// Length below which a slot takes no frames, bytes. The longest frame without data, an answer, fits.
pub const SLOT_MIN: usize = 2048;

/// Room below which the end of a slot is left empty rather than filled with a part of a stream's data, bytes. The next
/// slot takes the data in one piece.
const FRAGMENT_MIN: usize = 256;

/// The settings that this side announces (RFC 9113 section 6.5.2).
const MAX_CONCURRENT_STREAMS: u16 = 0x3;
const MAX_HEADER_LIST_SIZE: u16 = 0x6;

/// Frames in a slot.
struct FrameWriter<'a> {
    slot: &'a mut [u8],
    used: usize,
}

impl FrameWriter<'_> {
    fn room(&self) -> usize {
        self.slot.len() - self.used
    }

    /// Writes a frame, with what `payload` writes. Returns false if it does not fit.
    fn put(&mut self, head: FrameHead, payload: impl FnOnce(&mut [u8])) -> bool {
        let length = HEAD_LEN + head.length;
        let Some(mut out) = self.slot.get_mut(self.used..self.used + length) else {
            return false;
        };
        head.encode(&mut out);
        payload(out);
        self.used += length;
        true
    }

    fn put_bytes(&mut self, kind: FrameType, flags: u8, stream: u32, payload: &[u8]) -> bool {
        let head = FrameHead {
            length: payload.len(),
            kind,
            flags,
            stream,
        };
        self.put(head, |mut out| out.put_slice(payload))
    }

    fn put_u32(&mut self, kind: FrameType, stream: u32, value: u32) -> bool {
        self.put_bytes(kind, 0, stream, &value.to_be_bytes())
    }

    /// Writes a block of fields. After a reduction of the table, the block begins with the size of the table in use (RFC
    /// 9113 section 4.3.1).
    fn put_block(&mut self, flags: u8, stream: u32, block: &[u8], reduced: &mut bool) -> bool {
        let update = if *reduced { EMPTY_TABLE } else { &[] };
        let (flags, block) = (END_HEADERS | flags, [update, block].concat());
        let written = self.put_bytes(FrameType::Headers, flags, stream, &block);
        *reduced &= !written;
        written
    }

    fn put_goaway(&mut self, last: u32, code: ErrorCode, text: &[u8]) -> bool {
        let numbers = [last.to_be_bytes(), code.0.to_be_bytes()].concat();
        let payload = [&numbers[..], text].concat();
        self.put_bytes(FrameType::Goaway, 0, 0, &payload)
    }
}

impl Http2 {
    /// Writes frames to the start of `slot`, and returns their length. 0 means that there is nothing to write, or that the
    /// slot is shorter than [`SLOT_MIN`].
    ///
    /// The frames count as sent: the caller writes all of them to the transport before anything else.
    pub fn poll_transmit(&mut self, now: Instant, slot: &mut [u8]) -> usize {
        if slot.len() < SLOT_MIN || self.is_idle() {
            return 0;
        }
        let mut out = FrameWriter { slot, used: 0 };
        if self.put_control(now, &mut out) {
            match &self.state {
                State::Open => self.put_data(now, &mut out),
                State::Closing(code, text) => {
                    if out.put_goaway(self.served_last(), *code, text) {
                        self.state = State::Closed;
                    }
                }
                State::Closed => {}
            }
        }
        let used = out.used;
        self.end_if_done();
        used
    }

    /// Returns whether a frame is due.
    pub(super) fn has_frames(&self) -> bool {
        self.settings_due
            || !self.replies.is_empty()
            || !self.control.is_empty()
            || !self.ready.is_empty()
            || self.leaving == Some(Leaving::Due)
            || self.receive_credit.wanted().is_some()
    }

    /// Returns the last stream that is, or was, served.
    fn served_last(&self) -> u32 {
        match self.leaving {
            Some(Leaving::After(last)) => last,
            _ => self.last_stream,
        }
    }

    /// Writes the frames that are no data. Returns false if they do not all fit.
    fn put_control(&mut self, now: Instant, out: &mut FrameWriter<'_>) -> bool {
        self.put_of_connection(now, out) && self.put_of_streams(now, out)
    }

    fn put_of_connection(&mut self, now: Instant, out: &mut FrameWriter<'_>) -> bool {
        if self.settings_due {
            let list = u32::try_from(LIST_MAX).unwrap_or(u32::MAX);
            let mut payload = Vec::with_capacity(12);
            for (id, value) in [
                (MAX_CONCURRENT_STREAMS, self.config.streams),
                (MAX_HEADER_LIST_SIZE, list),
            ] {
                payload.put_u16(id);
                payload.put_u32(value);
            }
            if !out.put_bytes(FrameType::Settings, 0, 0, &payload) {
                return false;
            }
            self.settings_due = false;
            self.settings_sent.get_or_insert(now);
        }
        while let Some(&reply) = self.replies.front() {
            if !put_reply(reply, &mut self.table_reduced, out) {
                return false;
            }
            self.replies.pop_front();
        }
        if let Some(more) = self.receive_credit.wanted() {
            // A window, and so its growth, has at most 31 bits.
            let growth = u32::try_from(more).unwrap_or(WINDOW_MAX);
            if !out.put_u32(FrameType::WindowUpdate, 0, growth) {
                return false;
            }
            self.receive_credit.note_announced(growth.into());
        }
        if self.leaving == Some(Leaving::Due) {
            if !out.put_goaway(self.last_stream, ErrorCode::NO_ERROR, b"the server ends") {
                return false;
            }
            self.leaving = Some(Leaving::After(self.last_stream));
        }
        true
    }

    fn put_of_streams(&mut self, now: Instant, out: &mut FrameWriter<'_>) -> bool {
        while let Some(&id) = self.control.front() {
            if !self.put_of_stream(now, id, out) {
                return false;
            }
            self.control.pop_front();
            if let Some(stream) = self.streams.get_mut(&id) {
                stream.has_control = false;
            }
        }
        true
    }

    /// Writes the frames of a stream that are no data. Returns false if they do not all fit.
    fn put_of_stream(&mut self, now: Instant, id: StreamId, out: &mut FrameWriter<'_>) -> bool {
        let (number, most) = (number_of(id), self.stream_window());
        let closing = !self.is_open();
        let Some(stream) = self.streams.get_mut(&id) else {
            return true;
        };
        if let SendState::Resetting(code) = stream.send.state {
            if !out.put_u32(FrameType::RstStream, number, code.0) {
                return false;
            }
            stream.recv.peer_ended = true;
            self.remember_reset(number);
            self.end_sending(now, id);
            return true;
        }
        if let AnswerState::Due(block) = &stream.send.answer {
            // A closed connection sends no data.
            let finishing = stream.send.state == SendState::Finishing;
            let ends = finishing && (stream.send.holds(0) || closing);
            let flags = if ends { END_STREAM } else { 0 };
            if !out.put_block(flags, number, block, &mut self.table_reduced) {
                return false;
            }
            stream.send.answer = AnswerState::Sent;
            if ends {
                self.send_credit
                    .note_discarded(stream.send.queue.truncate(0));
                self.end_sending(now, id);
            } else {
                self.schedule(id);
            }
        }
        let Some(stream) = self.streams.get_mut(&id) else {
            return true;
        };
        if let Some(code) = stream
            .stopped
            .filter(|_| stream.local_ended && !stream.recv.peer_ended)
        {
            if !out.put_u32(FrameType::RstStream, number, code.0) {
                return false;
            }
            stream.recv.peer_ended = true;
            self.remember_reset(number);
            self.settle(now, id);
            return true;
        }
        if let Some(limit) = stream.recv.wanted_limit(most) {
            let more = limit - stream.recv.limit();
            let more = u32::try_from(more).unwrap_or(WINDOW_MAX);
            if !out.put_u32(FrameType::WindowUpdate, number, more) {
                return false;
            }
            stream.recv.note_announced(more);
        }
        true
    }

    /// Fills the slot with data of the streams, in turn.
    fn put_data(&mut self, now: Instant, out: &mut FrameWriter<'_>) {
        while let Some(&id) = self.ready.front() {
            let Some(stream) = self.streams.get_mut(&id) else {
                self.ready.pop_front();
                continue;
            };
            let mut ended = false;
            if stream.send.wants_frame() {
                let most = self.peer_payload_max;
                let Some(written) = put_data_frame(number_of(id), &mut stream.send, most, out)
                else {
                    return;
                };
                self.send_credit.note_sent(written.bytes);
                ended = written.ends;
            }
            self.ready.pop_front();
            stream.scheduled = false;
            if ended {
                self.end_sending(now, id);
            } else {
                self.schedule(id);
            }
        }
    }

    /// Puts a stream that has data or an end into its queue. Its answer precedes them.
    pub(super) fn schedule(&mut self, id: StreamId) {
        if let Some(stream) = self.streams.get_mut(&id)
            && stream.send.answer == AnswerState::Sent
            && stream.send.wants_frame()
            && !std::mem::replace(&mut stream.scheduled, true)
        {
            self.ready.push_back(id);
        }
    }

    /// Puts a stream that has a frame other than DATA into the queue of such streams.
    pub(super) fn schedule_control(&mut self, id: StreamId) {
        if let Some(stream) = self.streams.get_mut(&id)
            && !std::mem::replace(&mut stream.has_control, true)
        {
            self.control.push_back(id);
        }
    }

    /// Notes that this side sends no more on a stream.
    pub(super) fn end_sending(&mut self, now: Instant, id: StreamId) {
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        stream.send.state = SendState::Done;
        stream.local_ended = true;
        let stops = stream.stopped.is_some() && !stream.recv.peer_ended;
        if std::mem::take(&mut stream.send.waits) {
            // A peer that gives no credit could fill the queue with streams that have ended.
            self.waiting.retain(|other| *other != id);
        }
        if std::mem::take(&mut stream.scheduled) {
            self.ready.retain(|other| *other != id);
        }
        if stops {
            self.schedule_control(id);
        }
        self.settle(now, id);
    }
}

fn put_reply(reply: ReplyFrame, table_reduced: &mut bool, out: &mut FrameWriter<'_>) -> bool {
    match reply {
        ReplyFrame::Settings => out.put_bytes(FrameType::Settings, ACK, 0, &[]),
        ReplyFrame::Ping(content) => out.put_bytes(FrameType::Ping, ACK, 0, &content),
        ReplyFrame::Reset(stream, code) => out.put_u32(FrameType::RstStream, stream, code.0),
        ReplyFrame::TooLarge(stream) => {
            let mut block = Vec::new();
            put_status(&mut block, 431);
            let length = 2 * HEAD_LEN + EMPTY_TABLE.len() + block.len() + 4;
            out.room() >= length
                && out.put_block(END_STREAM, stream, &block, table_reduced)
                && out.put_u32(FrameType::RstStream, stream, ErrorCode::NO_ERROR.0)
        }
    }
}

/// The contents of a DATA frame that was written.
struct Written {
    bytes: u64,
    ends: bool,
}

/// Writes a DATA frame with as much data as fits. `None` if the slot is full.
fn put_data_frame(
    stream: u32,
    send: &mut SendPart,
    most: usize,
    out: &mut FrameWriter<'_>,
) -> Option<Written> {
    let room = out.room().checked_sub(HEAD_LEN)?;
    let sendable = usize::try_from(send.sendable()).unwrap_or(usize::MAX);
    let length = sendable.min(room).min(most);
    if length < sendable && length < FRAGMENT_MIN {
        return None;
    }
    let ends = send.state == SendState::Finishing && send.holds(length);
    let head = FrameHead {
        length,
        kind: FrameType::Data,
        flags: if ends { END_STREAM } else { 0 },
        stream,
    };
    out.put(head, |mut out| send.pull(length, &mut out));
    let bytes = length as u64;
    Some(Written { bytes, ends })
}
