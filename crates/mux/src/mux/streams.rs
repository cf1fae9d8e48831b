//! Streams, and the credit for them, as the application uses them.

use bytes::Bytes;
use quictun_flow::{ReadEnd, StreamId, WriteEnd};

use super::Mux;
use crate::recv::RecvState;
use crate::send::SendState;

/// Opening, writing and reading streams.
impl Mux {
    /// Opens a stream, of which the peer learns with its first bytes. `None` if the peer permits no more.
    pub fn open(&mut self) -> Option<StreamId> {
        let usable = self.is_open() && self.peer.is_some();
        usable.then(|| self.streams.open()).flatten()
    }

    /// Returns the next stream that the peer has opened.
    pub fn accept(&mut self) -> Option<StreamId> {
        self.streams.accept()
    }

    /// Hands over as much of `chunk` as credit allows, and advances it past the bytes that were taken.
    ///
    /// An empty chunk asks whether there is credit for one byte. On a closed connection every write is blocked.
    pub fn write(&mut self, id: StreamId, chunk: &mut Bytes) -> WriteEnd {
        if !self.is_open() {
            return WriteEnd::Blocked;
        }
        let Some(stream) = self.streams.get_mut(id) else {
            return WriteEnd::Gone;
        };
        if let Some(code) = stream.send.stopped {
            return WriteEnd::Stopped(code);
        }
        if stream.send.state != SendState::Open {
            return WriteEnd::Gone;
        }
        let room = stream.send.room().min(self.send_credit.room());
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
        self.send_credit.note_refused();
        let Some(stream) = self.streams.get_mut(id) else {
            return;
        };
        let notice = stream.send.note_refused();
        if stream.send.room() > 0 && !stream.send.waits {
            stream.send.waits = true;
            self.waiting.push_back(id);
        }
        if notice {
            self.schedule_control(id);
        }
    }

    /// Returns the next stream that was blocked and has credit.
    pub(super) fn next_writable(&mut self) -> Option<StreamId> {
        while self.is_open() && self.send_credit.room() > 0 {
            let id = self.waiting.pop_front()?;
            let Some(stream) = self.streams.get_mut(id) else {
                continue;
            };
            stream.send.waits = false;
            if stream.send.can_write() && std::mem::take(&mut stream.send.blocked) {
                return Some(id);
            }
        }
        None
    }

    /// Ends the sending part after the bytes written so far (FIN).
    pub fn finish(&mut self, id: StreamId) {
        if let Some(stream) = self.streams.get_mut(id)
            && stream.send.state == SendState::Open
        {
            stream.send.state = SendState::Finishing;
            self.schedule(id);
        }
    }

    /// Abandons the sending part (`RESET_STREAM`), and drops its queued bytes.
    pub fn reset(&mut self, id: StreamId, code: u64) {
        let Some(stream) = self.streams.get_mut(id) else {
            return;
        };
        if matches!(stream.send.state, SendState::Resetting(_) | SendState::Done) {
            return;
        }
        self.send_credit
            .note_discarded(stream.send.queue.truncate(0));
        stream.send.state = SendState::Resetting(code);
        self.schedule_control(id);
    }

    /// Takes at most `max` bytes that have arrived, and gives each piece to `sink` with its offset.
    pub fn read(&mut self, id: StreamId, max: usize, sink: &mut dyn FnMut(u64, Bytes)) -> ReadEnd {
        let Some(stream) = self.streams.get_mut(id) else {
            return ReadEnd::Gone;
        };
        let recv = &mut stream.recv;
        if matches!(recv.state, RecvState::Stopped | RecvState::Done) {
            return ReadEnd::Gone;
        }
        let mut left = max;
        while left > 0
            && let Some((offset, piece)) = recv.pull(left)
        {
            left -= piece.len();
            sink(offset, piece);
        }
        self.receive_credit.note_taken((max - left) as u64);
        let end = match recv.state {
            _ if left == 0 => ReadEnd::More,
            RecvState::Finished => ReadEnd::Finished,
            RecvState::Reset(code) => ReadEnd::Reset(code),
            RecvState::Open | RecvState::Stopped | RecvState::Done => ReadEnd::Blocked,
        };
        if matches!(end, ReadEnd::Finished | ReadEnd::Reset(_)) {
            recv.state = RecvState::Done;
            self.streams.remove_if_done(id);
        } else if recv.note_read(self.config.stream_window) {
            self.schedule_control(id);
        }
        end
    }

    /// Refuses the rest of the receiving part (`STOP_SENDING`).
    pub fn stop(&mut self, id: StreamId, code: u64) {
        if let Some(stream) = self.streams.get_mut(id) {
            self.receive_credit.note_taken(stream.recv.stop(code));
            if stream.recv.stop_due.is_some() {
                self.schedule_control(id);
            }
            self.streams.remove_if_done(id);
        }
    }

    /// Sets whether a stream's bytes precede those of other streams.
    pub fn prefer(&mut self, id: StreamId, preferred: bool) {
        if let Some(stream) = self.streams.get_mut(id)
            && stream.preferred != preferred
        {
            stream.preferred = preferred;
            if std::mem::take(&mut stream.scheduled) {
                self.preferred.retain(|other| *other != id);
                self.ready.retain(|other| *other != id);
                self.schedule(id);
            }
        }
    }
}

/// Credit in both directions.
impl Mux {
    /// Lets the peer have this many streams open. Streams that it may open already cannot be taken back.
    pub fn grant_streams(&mut self, limit: u32) {
        self.streams.set_concurrent(limit);
    }

    /// Returns the number of the peer's streams that have not ended in both directions.
    pub fn peer_streams(&self) -> u64 {
        self.streams.remote_open()
    }

    /// Returns the number of streams with bytes, or an end, that were not written to the transport. Streams that are open
    /// for writing count.
    pub fn unsettled_streams(&self) -> usize {
        self.streams.unsettled()
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
