//! Streams, and the credit for them, as the application uses them.

use std::time::Instant;

use bytes::Bytes;
use quictun_flow::{ReadEnd, StreamId, WriteEnd};
use quictun_wire::code::FlowCode;

use super::{Http2, STREAMS_MAX, Stream};
use crate::answer::{self, ParsedAnswer};
use crate::error::ErrorCode;
use crate::recv::RecvState;
use crate::send::{AnswerState, SendState};

/// Accepting, writing and reading streams.
impl Http2 {
    /// Returns the next stream that the peer has opened. Its first bytes are a head in the form of HTTP/1.1.
    pub fn accept(&mut self) -> Option<StreamId> {
        if self.accepted() >= self.config.streams {
            return None;
        }
        let id = self.opened.pop_front()?;
        if let Some(stream) = self.streams.get(&id) {
            self.opened_heads -= stream.recv.head_len();
        }
        Some(id)
    }

    /// Returns the number of streams that were accepted and have not ended.
    fn accepted(&self) -> u32 {
        let waiting = u32::try_from(self.opened.len()).unwrap_or(u32::MAX);
        self.open.saturating_sub(waiting)
    }

    /// Hands over as much of `chunk` as credit allows, and advances it past the bytes that were taken. The first bytes are
    /// the head of an answer in the form of HTTP/1.1, for which no credit is needed. The content of a refusal is dropped if
    /// there is no credit for it.
    ///
    /// An empty chunk asks whether there is credit for one byte. On a closed connection every write is blocked.
    pub fn write(&mut self, id: StreamId, chunk: &mut Bytes) -> WriteEnd {
        if !self.is_open() {
            return WriteEnd::Blocked;
        }
        let Some(stream) = self.streams.get_mut(&id) else {
            return WriteEnd::Gone;
        };
        if stream.recv.state == RecvState::Reset {
            return WriteEnd::Stopped(FlowCode::AppReset.to_u64());
        }
        if stream.send.state != SendState::Open {
            return WriteEnd::Gone;
        }
        if let AnswerState::Awaited(head) = &mut stream.send.answer
            && !chunk.is_empty()
        {
            let before = head.len();
            head.extend_from_slice(chunk);
            match answer::read(head) {
                ParsedAnswer::Incomplete => *chunk = Bytes::new(),
                ParsedAnswer::Invalid => {
                    self.reset(id, ErrorCode::INTERNAL_ERROR);
                    return WriteEnd::Gone;
                }
                ParsedAnswer::Whole {
                    status,
                    block,
                    length,
                } => {
                    *chunk = chunk.split_off(length - before);
                    stream.is_refused = !(200..300).contains(&status);
                    stream.send.answer = AnswerState::Due(block);
                    self.schedule_control(id);
                }
            }
            if chunk.is_empty() {
                return WriteEnd::Taken;
            }
        }
        self.write_content(id, chunk)
    }

    fn write_content(&mut self, id: StreamId, chunk: &mut Bytes) -> WriteEnd {
        let Some(stream) = self.streams.get_mut(&id) else {
            return WriteEnd::Gone;
        };
        let room = stream.send.room().min(self.send_credit.room());
        if stream.is_refused && (stream.is_head || room < chunk.len() as u64) {
            *chunk = Bytes::new();
            return WriteEnd::Taken;
        }
        let taken = chunk.split_to(chunk.len().min(usize::try_from(room).unwrap_or(usize::MAX)));
        let all = chunk.is_empty() && room > 0;
        stream.send.blocked &= !all;
        if !taken.is_empty() {
            self.send_credit.note_queued(taken.len() as u64);
            stream.send.queue.push(taken, 0);
            self.schedule(id);
        }
        if all {
            return WriteEnd::Taken;
        }
        self.note_refused(id);
        WriteEnd::Blocked
    }

    fn note_refused(&mut self, id: StreamId) {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.send.blocked = true;
            if stream.send.room() > 0 && !std::mem::replace(&mut stream.send.waits, true) {
                self.waiting.push_back(id);
            }
        }
    }

    /// Returns the next stream that was blocked and has credit.
    pub(super) fn next_writable(&mut self) -> Option<StreamId> {
        while self.is_open() && self.send_credit.room() > 0 {
            let id = self.waiting.pop_front()?;
            let Some(stream) = self.streams.get_mut(&id) else {
                continue;
            };
            stream.send.waits = false;
            let can_write = stream.send.state == SendState::Open && stream.send.room() > 0;
            if can_write && std::mem::take(&mut stream.send.blocked) {
                return Some(id);
            }
        }
        None
    }

    /// Notes that a stream has more credit of the peer.
    pub(super) fn note_credit(&mut self, id: StreamId) {
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        if stream.send.blocked
            && stream.send.room() > 0
            && !std::mem::replace(&mut stream.send.waits, true)
        {
            self.waiting.push_back(id);
        }
        self.schedule(id);
    }

    /// Ends the sending part after the bytes written so far (`END_STREAM`), of which the head of an answer is the first.
    pub fn finish(&mut self, id: StreamId) {
        let unanswered = |stream: &Stream| !stream.send.is_answered();
        if self.streams.get(&id).is_some_and(unanswered) {
            return self.reset(id, ErrorCode::INTERNAL_ERROR);
        }
        if self.is_open()
            && let Some(stream) = self.streams.get_mut(&id)
            && stream.send.state == SendState::Open
        {
            stream.send.state = SendState::Finishing;
            self.schedule(id);
        }
    }

    /// Abandons the stream (`RST_STREAM`), and drops its queued bytes. Nothing happens if the sending part has ended: see
    /// [`Self::stop`].
    pub fn reset(&mut self, id: StreamId, code: ErrorCode) {
        if !self.is_open() {
            return;
        }
        if let Some(stream) = self.streams.get_mut(&id)
            && !stream.local_ended
            && !matches!(stream.send.state, SendState::Resetting(_))
        {
            self.send_credit
                .note_discarded(stream.send.queue.truncate(0));
            // A request that nothing was done for may be repeated elsewhere.
            let is_new = stream.recv.is_unread() && !stream.send.is_answered();
            let code = if is_new {
                ErrorCode::REFUSED_STREAM
            } else {
                code
            };
            stream.send.state = SendState::Resetting(code);
            self.schedule_control(id);
        }
    }

    /// Takes at most `max` bytes that have arrived, and gives each piece to `sink` with its offset.
    pub fn read(&mut self, id: StreamId, max: usize, sink: &mut dyn FnMut(u64, Bytes)) -> ReadEnd {
        let Some(stream) = self.streams.get_mut(&id) else {
            return ReadEnd::Gone;
        };
        let recv = &mut stream.recv;
        if matches!(recv.state, RecvState::Stopped | RecvState::Done) {
            return ReadEnd::Gone;
        }
        let (mut left, mut taken) = (max, 0);
        while left > 0
            && let Some((offset, piece, used)) = recv.pull(left)
        {
            left -= piece.len();
            taken += used;
            sink(offset, piece);
        }
        self.receive_credit.note_taken(taken);
        let end = match recv.state {
            _ if left == 0 => ReadEnd::More,
            RecvState::Finished => ReadEnd::Finished,
            RecvState::Reset => ReadEnd::Reset(FlowCode::AppReset.to_u64()),
            RecvState::Open | RecvState::Stopped | RecvState::Done => ReadEnd::Blocked,
        };
        if matches!(end, ReadEnd::Finished | ReadEnd::Reset(_)) {
            recv.state = RecvState::Done;
            self.remove_if_done(id);
        } else {
            self.announce(id);
        }
        end
    }

    /// Drops what arrives from now on. HTTP/2 cannot say that, so a stream whose sending part has ended, or ends later, is
    /// reset then: with this code, or with none if the request was refused.
    pub fn stop(&mut self, id: StreamId, code: ErrorCode) {
        let is_open = self.is_open();
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        if stream.recv.state != RecvState::Done {
            stream.recv.state = RecvState::Stopped;
            self.receive_credit.note_taken(stream.recv.discard());
        }
        let code = if stream.is_refused {
            ErrorCode::NO_ERROR
        } else {
            code
        };
        stream.stopped = Some(code);
        if is_open && stream.local_ended && !stream.recv.peer_ended {
            self.schedule_control(id);
        }
        self.remove_if_done(id);
    }

    /// Removes a stream that neither side needs.
    pub(super) fn remove_if_done(&mut self, id: StreamId) {
        if let Some(stream) = self.streams.get(&id)
            && stream.closed
            && matches!(stream.recv.state, RecvState::Stopped | RecvState::Done)
        {
            self.streams.remove(&id);
        }
    }

    /// Notes that a part of a stream has ended.
    pub(super) fn settle(&mut self, now: Instant, id: StreamId) {
        if let Some(stream) = self.streams.get_mut(&id)
            && stream.recv.peer_ended
            && stream.local_ended
            && !std::mem::replace(&mut stream.closed, true)
        {
            self.open -= 1;
            self.offer_opened();
            if self.open == 0 {
                self.idle_since = Some(now);
            }
        }
        self.remove_if_done(id);
    }
}

/// Credit in both directions.
impl Http2 {
    /// Lets the peer have this many streams open, up to [`STREAMS_MAX`].
    pub fn grant_streams(&mut self, limit: u32) {
        let limit = limit.min(STREAMS_MAX);
        if limit > self.config.streams {
            self.config.streams = limit;
            self.settings_due = true;
            self.offer_opened();
        }
    }

    /// Tells the application that streams which have waited may be accepted.
    fn offer_opened(&mut self) {
        if !self.opened.is_empty() {
            self.events.note_opened();
        }
    }

    /// Returns the number of streams that have not ended in both directions.
    pub fn open_streams(&self) -> u32 {
        self.open
    }

    /// Returns the number of streams with bytes, or an end, that were not written to the transport. Streams that are open
    /// for writing count.
    pub fn unsettled_streams(&self) -> usize {
        self.streams
            .values()
            .filter(|stream| !stream.local_ended)
            .count()
    }

    /// Notes how many of the bytes that were read off a stream its application has not taken. The peer gets credit for
    /// those that it has taken.
    pub fn note_held(&mut self, id: StreamId, bytes: u64) {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.recv.note_held(bytes);
            self.announce(id);
        }
    }

    /// Schedules the announcement of a stream's limit, if it is to grow.
    pub(super) fn announce(&mut self, id: StreamId) {
        let most = self.stream_window();
        if let Some(stream) = self.streams.get(&id)
            && stream.recv.wanted_limit(most).is_some()
        {
            self.schedule_control(id);
        }
    }

    /// Returns the most that one stream may send. Half of the connection's window is left to the others.
    pub(super) fn stream_window(&self) -> u64 {
        self.config
            .stream_window
            .min(self.receive_credit.window() / 2)
    }

    /// Sets the number of bytes that the peer may send beyond those that were read. Growth is announced at once. Credit
    /// that the peer has already cannot be taken back.
    pub fn set_window(&mut self, bytes: u64) {
        self.receive_credit.set_window(bytes);
    }

    /// Returns the bytes that the peer may send beyond those that were read.
    pub fn granted(&self) -> u64 {
        self.receive_credit.granted()
    }

    /// Limits the bytes that wait to be written to the transport.
    pub fn set_kept(&mut self, bytes: u64) {
        self.send_credit.set_kept(bytes);
    }

    /// Returns the bytes that wait to be written to the transport.
    pub fn queued(&self) -> u64 {
        self.send_credit.queued()
    }
}
