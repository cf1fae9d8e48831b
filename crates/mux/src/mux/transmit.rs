//! Records that leave: control frames first, then datagrams, then stream data.

use std::time::Instant;

use quictun_flow::StreamId;

use super::{DATAGRAM_COST, Mux, State};
use crate::frame::{Frame, put_stream_header, stream_header_len};
use crate::parameters::TransportParameters;
use crate::record::RecordWriter;
use crate::recv::RecvState;
use crate::send::{SendPart, SendState};
use crate::streams::Stream;

/// Length below which a slot takes no record, bytes. The longest control frame, a close with its reason, fits.
pub const SLOT_MIN: usize = 512;

/// Room below which the end of a record is left empty rather than filled with a part of a stream's data, bytes. The next
/// record takes the data in one piece.
const FRAGMENT_MIN: usize = 256;

impl Mux {
    /// Writes one record to the start of `slot`, and returns its length. 0 means that there is nothing to write, or that the
    /// slot is shorter than [`SLOT_MIN`]. Bytes beyond [`RECORD_MAX`](crate::RECORD_MAX) stay unused.
    ///
    /// The record counts as sent: the caller writes all of it to the transport before anything else.
    pub fn poll_transmit(&mut self, now: Instant, slot: &mut [u8]) -> usize {
        if slot.len() < SLOT_MIN || self.is_idle() {
            return 0;
        }
        let mut record = RecordWriter::new(slot);
        self.put_parameters(&mut record);
        match std::mem::replace(&mut self.state, State::Closed) {
            State::Open => {
                self.state = State::Open;
                if self.put_control(now, &mut record) {
                    self.put_datagrams(&mut record);
                    self.put_streams(&mut record);
                }
            }
            State::Closing(frame) => {
                record.put(&frame);
            }
            State::Closed => {}
        }
        record.finish()
    }

    /// Returns whether a frame is due.
    pub(super) fn has_frames(&self) -> bool {
        let queues = [&self.control, &self.preferred, &self.ready];
        !self.parameters_sent
            || queues.iter().any(|queue| !queue.is_empty())
            || !self.datagrams.is_empty()
            || self.next_control().is_some()
    }

    fn put_parameters(&mut self, record: &mut RecordWriter<'_>) {
        if std::mem::replace(&mut self.parameters_sent, true) {
            return;
        }
        let config = &self.config;
        let parameters = TransportParameters {
            initial_max_data: config.window,
            initial_max_stream_data_bidi_local: config.stream_window,
            initial_max_stream_data_bidi_remote: config.stream_window,
            initial_max_streams_bidi: config.streams.into(),
            max_datagram_frame_size: config.datagram_frame_max,
            reset_stream_at: true,
            ..TransportParameters::default()
        };
        let mut encoded = Vec::new();
        parameters.encode(&mut encoded);
        record.put(&Frame::TransportParameters(encoded.into()));
    }

    /// Writes the frames that are no data. Returns false if they do not all fit.
    fn put_control(&mut self, now: Instant, record: &mut RecordWriter<'_>) -> bool {
        while let Some(frame) = self.next_control() {
            if !record.put(&frame) {
                return false;
            }
            self.note_control(now, &frame);
        }
        while let Some(&id) = self.control.front() {
            while let Some(frame) = self.next_stream_control(id) {
                if !record.put(&frame) {
                    return false;
                }
                self.note_stream_control(id, &frame);
            }
            self.control.pop_front();
            if let Some(stream) = self.streams.get_mut(id) {
                stream.has_control = false;
            }
        }
        true
    }

    /// Returns a frame of the connection that is due.
    fn next_control(&self) -> Option<Frame> {
        let (pings, bidirectional) = (&self.pings, true);
        let response = pings.answer().map(|sequence| Frame::Ping {
            sequence,
            response: true,
        });
        response
            .or_else(|| {
                pings.due().map(|sequence| Frame::Ping {
                    sequence,
                    response: false,
                })
            })
            .or_else(|| {
                let more = self.receive_credit.wanted()?;
                Some(Frame::MaxData(self.receive_credit.limit() + more))
            })
            .or_else(|| {
                let limit = self.streams.wanted_limit()?;
                Some(Frame::MaxStreams {
                    bidirectional,
                    limit,
                })
            })
            .or_else(|| self.send_credit.blocked.due().map(Frame::DataBlocked))
            .or_else(|| {
                let limit = self.streams.blocked.due()?;
                Some(Frame::StreamsBlocked {
                    bidirectional,
                    limit,
                })
            })
    }

    /// Notes that a frame of the connection is written.
    fn note_control(&mut self, now: Instant, frame: &Frame) {
        match frame {
            Frame::Ping { response: true, .. } => self.pings.note_answered(),
            Frame::Ping {
                response: false, ..
            } => self.pings.note_sent(now),
            Frame::MaxData(limit) => {
                let more = limit - self.receive_credit.limit();
                self.receive_credit.note_announced(more);
            }
            Frame::MaxStreams { limit, .. } => self.streams.note_announced(*limit),
            Frame::DataBlocked(_) => self.send_credit.blocked.withdraw(),
            Frame::StreamsBlocked { .. } => self.streams.blocked.withdraw(),
            _ => {}
        }
    }

    /// Returns a frame of a stream, other than STREAM, that is due.
    fn next_stream_control(&self, id: StreamId) -> Option<Frame> {
        let Stream { send, recv, .. } = self.streams.get(id)?;
        let stream = id.number();
        if let SendState::Resetting(code) = send.state {
            return Some(Frame::ResetStream {
                stream,
                code,
                final_size: send.sent(),
                reliable_size: None,
            });
        }
        if let Some(code) = recv.stop_due.filter(|_| recv.state == RecvState::Stopped) {
            return Some(Frame::StopSending { stream, code });
        }
        if recv.limit_due && recv.state == RecvState::Open {
            let limit = recv.wanted_limit(self.config.stream_window);
            return Some(Frame::MaxStreamData { stream, limit });
        }
        let limit = send
            .notice
            .due()
            .filter(|_| send.state == SendState::Open)?;
        Some(Frame::StreamDataBlocked { stream, limit })
    }

    /// Notes that a frame of a stream is written.
    fn note_stream_control(&mut self, id: StreamId, frame: &Frame) {
        let Some(stream) = self.streams.get_mut(id) else {
            return;
        };
        match frame {
            Frame::ResetStream { .. } => self.end_sending(id),
            Frame::StopSending { .. } => stream.recv.stop_due = None,
            Frame::MaxStreamData { limit, .. } => stream.recv.note_announced(*limit),
            Frame::StreamDataBlocked { .. } => stream.send.notice.withdraw(),
            _ => {}
        }
    }

    fn put_datagrams(&mut self, record: &mut RecordWriter<'_>) {
        while let Some(data) = self.datagrams.front() {
            let frame = Frame::Datagram {
                data: data.clone(),
                frame_len: 0,
            };
            // A datagram that does not fit even an empty record is dropped.
            if !record.put(&frame) && !record.is_empty() {
                return;
            }
            self.datagrams_queued -= data.len() + DATAGRAM_COST;
            self.datagrams.pop_front();
        }
    }

    /// Fills the record with data of the streams, in turn.
    fn put_streams(&mut self, record: &mut RecordWriter<'_>) {
        loop {
            let from_preferred = !self.preferred.is_empty();
            let queue = if from_preferred {
                &mut self.preferred
            } else {
                &mut self.ready
            };
            let Some(&id) = queue.front() else {
                return;
            };
            let Some(stream) = self.streams.get_mut(id) else {
                queue.pop_front();
                continue;
            };
            let mut ended = false;
            if stream.send.wants_frame() {
                let Some(written) = put_stream(id, &mut stream.send, record) else {
                    return;
                };
                self.send_credit.note_sent(written.bytes);
                ended = written.fin;
            }
            queue.pop_front();
            stream.scheduled = !ended && stream.send.wants_frame();
            if ended {
                self.end_sending(id);
            } else if stream.scheduled {
                queue.push_back(id);
            }
        }
    }

    /// Puts a stream that has data or an end into its queue.
    pub(super) fn schedule(&mut self, id: StreamId) {
        if let Some(stream) = self.streams.get_mut(id)
            && stream.send.wants_frame()
            && !std::mem::replace(&mut stream.scheduled, true)
        {
            let preferred = stream.preferred;
            let queue = if preferred {
                &mut self.preferred
            } else {
                &mut self.ready
            };
            queue.push_back(id);
        }
    }

    /// Puts a stream that has a frame other than STREAM into the queue of such streams.
    pub(super) fn schedule_control(&mut self, id: StreamId) {
        if let Some(stream) = self.streams.get_mut(id)
            && !std::mem::replace(&mut stream.has_control, true)
        {
            self.control.push_back(id);
        }
    }

    fn end_sending(&mut self, id: StreamId) {
        if let Some(stream) = self.streams.get_mut(id) {
            stream.send.state = SendState::Done;
            if std::mem::take(&mut stream.send.waits) {
                // A peer that gives no credit could fill the queue with streams that have ended.
                self.waiting.retain(|other| *other != id);
            }
            self.streams.note_send_done(id);
            self.streams.remove_if_done(id);
        }
    }
}

/// The contents of a STREAM frame that was written.
struct Written {
    bytes: u64,
    fin: bool,
}

/// Writes a STREAM frame with as much data as fits. `None` if the record is full.
fn put_stream(id: StreamId, send: &mut SendPart, record: &mut RecordWriter<'_>) -> Option<Written> {
    let (stream, offset) = (id.number(), send.sent());
    let room = record
        .room()
        .checked_sub(stream_header_len(stream, offset))?;
    let queued = usize::try_from(send.queue.len()).unwrap_or(usize::MAX);
    let length = queued.min(room);
    if length < queued && length < FRAGMENT_MIN {
        return None;
    }
    let fin = send.state == SendState::Finishing && length == queued;
    record.write(|out| {
        put_stream_header(out, stream, offset, length, fin);
        send.pull(length, out);
    });
    let bytes = length as u64;
    Some(Written { bytes, fin })
}
