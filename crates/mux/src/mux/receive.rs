//! Records and frames that arrive.

use std::time::Instant;

use bytes::Bytes;
use quictun_flow::StreamId;

use super::{Mux, State};
use crate::error::{Error, TransportCode, Violation};
use crate::event::Event;
use crate::frame::Frame;
use crate::parameters::TransportParameters;
use crate::recv::{AFTER_END, RecvState};
use crate::send::SendState;
use crate::streams::PartKind;

impl Mux {
    /// Handles bytes of the transport, in pieces of any length. A closed connection drops them.
    ///
    /// A record that lies in one piece is not copied, except for short stream data.
    pub fn handle_bytes(&mut self, now: Instant, mut input: Bytes) {
        while self.is_open() {
            let handled = match self.reader.next(&mut input) {
                Ok(None) => return,
                Ok(Some(record)) => self.handle_record(now, record),
                Err(violation) => Err(violation),
            };
            if let Err(violation) = handled {
                self.fail(violation);
            }
        }
    }

    fn handle_record(&mut self, now: Instant, mut record: Bytes) -> Result<(), Violation> {
        while self.is_open()
            && let Some(frame) = Frame::decode(&mut record)?
        {
            if self.peer.is_none() && !matches!(frame, Frame::TransportParameters(_)) {
                return Err(Violation::protocol(
                    "the first frame is not QX_TRANSPORT_PARAMETERS",
                ));
            }
            self.handle_frame(now, frame)?;
        }
        Ok(())
    }

    fn handle_frame(&mut self, now: Instant, frame: Frame) -> Result<(), Violation> {
        match frame {
            Frame::TransportParameters(parameters) => self.handle_parameters(&parameters)?,
            Frame::Stream {
                stream,
                offset,
                fin,
                data,
            } => {
                self.handle_stream(stream, offset, fin, data)?;
            }
            Frame::ResetStream {
                stream,
                code,
                final_size,
                reliable_size,
            } => {
                self.handle_reset(stream, code, final_size, reliable_size.unwrap_or(0))?;
            }
            Frame::StopSending { stream, code } => self.handle_stop(stream, code)?,
            Frame::MaxData(limit) => self.send_credit.raise(limit),
            Frame::MaxStreamData { stream, limit } => self.handle_max_stream_data(stream, limit)?,
            Frame::MaxStreams {
                bidirectional,
                limit,
            } => {
                if bidirectional && self.streams.raise_local_limit(limit) {
                    self.events.note_available();
                }
            }
            // A peer that is blocked has used its limit, and half of a limit is enough for an announcement.
            Frame::DataBlocked(_) | Frame::StreamsBlocked { .. } | Frame::Padding => {}
            Frame::StreamDataBlocked { stream, .. } => {
                self.streams
                    .of_frame(stream, PartKind::Receiving, &mut self.events)?;
            }
            Frame::Ping {
                sequence,
                response: false,
            } => self.pings.handle_ping(sequence)?,
            Frame::Ping {
                sequence,
                response: true,
            } => {
                if let Some(time) = self.pings.handle_response(now, sequence)? {
                    self.events.push(Event::Pong(time));
                }
            }
            Frame::Datagram { data, frame_len } => {
                if frame_len as u64 > self.config.datagram_frame_max {
                    return Err(Violation::protocol("a datagram is longer than the limit"));
                }
                self.events.push_datagram(data);
            }
            Frame::ConnectionClose {
                application,
                code,
                reason,
            } => {
                self.handle_close(application, code, reason);
            }
        }
        Ok(())
    }

    fn handle_parameters(&mut self, encoded: &[u8]) -> Result<(), Violation> {
        if self.peer.is_some() {
            return Err(Violation::protocol("QX_TRANSPORT_PARAMETERS occurs twice"));
        }
        let peer = TransportParameters::decode(encoded)?;
        self.streams.handle_parameters(&peer);
        self.send_credit.raise(peer.initial_max_data);
        self.peer = Some(peer);
        self.events.push(Event::Connected);
        Ok(())
    }

    fn handle_stream(
        &mut self,
        number: u64,
        offset: u64,
        fin: bool,
        data: Bytes,
    ) -> Result<(), Violation> {
        let found = self
            .streams
            .of_frame(number, PartKind::Receiving, &mut self.events)?;
        let Some((id, stream)) = found else {
            return Err(AFTER_END);
        };
        let len = data.len() as u64;
        stream.recv.check(offset, len, fin)?;
        if stream.recv.state == RecvState::Finished {
            return Ok(());
        }
        if !self.receive_credit.note_received(len) {
            return Err(OVER_CREDIT);
        }
        self.receive_credit
            .note_taken(stream.recv.insert(data, fin));
        if len > 0 || fin {
            self.note_readable(id);
        }
        Ok(())
    }

    fn handle_reset(
        &mut self,
        number: u64,
        code: u64,
        final_size: u64,
        reliable: u64,
    ) -> Result<(), Violation> {
        let found = self
            .streams
            .of_frame(number, PartKind::Receiving, &mut self.events)?;
        let Some((id, stream)) = found else {
            return Ok(());
        };
        let absent = stream.recv.check_reset(final_size, reliable)?;
        if !self.receive_credit.note_received(absent) {
            return Err(OVER_CREDIT);
        }
        let dropped = stream.recv.reset(code, final_size, reliable);
        self.receive_credit.note_taken(dropped);
        self.note_readable(id);
        Ok(())
    }

    /// Tells the caller that a stream is readable, unless it cannot read or was told. Forgets a stream that has ended.
    fn note_readable(&mut self, id: StreamId) {
        let accepted = self.streams.is_accepted(id);
        if let Some(stream) = self.streams.get_mut(id) {
            let recv = &mut stream.recv;
            let readable = !matches!(recv.state, RecvState::Stopped | RecvState::Done);
            if accepted && readable && !recv.noted {
                recv.noted = true;
                self.events.push(Event::Readable(id));
            }
        }
        self.streams.remove_if_done(id);
    }

    fn handle_stop(&mut self, number: u64, code: u64) -> Result<(), Violation> {
        let found = self
            .streams
            .of_frame(number, PartKind::Sending, &mut self.events)?;
        if let Some((id, stream)) = found
            && stream.send.stopped.is_none()
            && matches!(stream.send.state, SendState::Open | SendState::Finishing)
        {
            stream.send.stopped = Some(code);
            self.events.push(Event::Stopped(id, code));
        }
        Ok(())
    }

    fn handle_max_stream_data(&mut self, number: u64, limit: u64) -> Result<(), Violation> {
        let found = self
            .streams
            .of_frame(number, PartKind::Sending, &mut self.events)?;
        if let Some((id, stream)) = found
            && stream.send.raise(limit)
            && stream.send.blocked
            && !stream.send.waits
        {
            stream.send.waits = true;
            self.waiting.push_back(id);
        }
        Ok(())
    }

    fn handle_close(&mut self, application: bool, code: u64, reason: Bytes) {
        self.state = State::Closed;
        self.events.push(Event::Lost(if application {
            Error::ClosedByPeer { code, reason }
        } else {
            let code = TransportCode(code);
            Error::ReportedByPeer { code, reason }
        }));
    }
}

const OVER_CREDIT: Violation = Violation::new(
    TransportCode::FLOW_CONTROL_ERROR,
    "the peer sends more data than it has credit for",
);
