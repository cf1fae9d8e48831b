//! Resets of streams by either side, and the frames that may follow them.

use std::time::Instant;

use quictun_flow::StreamId;

use super::receive::Handled;
use super::{Http2, Leaving, RESET_STREAMS_KEPT, ReplyFrame, Stream, id_of};
use crate::error::{BrokenRule, ErrorCode};
use crate::event::Event;
use crate::recv::RecvState;
use crate::send::SendState;

impl Http2 {
    pub(super) fn handle_reset(&mut self, now: Instant, stream: u32) -> Handled {
        let Some(known) = self.live_stream(stream) else {
            self.check_opened(stream)?;
            return self.count_idle_frame(now);
        };
        if !known.send.is_answered() {
            self.count_reset(now)?;
        }
        self.end_by_reset(now, id_of(stream), SendState::Done);
        Ok(())
    }

    /// Refuses a stream that is not in the table, or has ended in both directions.
    pub(super) fn refuse(&mut self, now: Instant, stream: u32, code: ErrorCode) -> Handled {
        self.count_reset(now)?;
        self.remember_reset(stream);
        self.reply(ReplyFrame::Reset(stream, code))
    }

    /// Resets a stream because the peer has broken a rule that concerns it alone.
    pub(super) fn fail_stream(&mut self, now: Instant, stream: u32, code: ErrorCode) -> Handled {
        self.count_reset(now)?;
        self.remember_reset(stream);
        let id = id_of(stream);
        let has_sent_end = self.streams.get(&id).is_some_and(|it| it.local_ended);
        self.end_by_reset(now, id, SendState::Resetting(code));
        if has_sent_end {
            // The sending part has ended, and writes no reset.
            self.settle(now, id);
            return self.reply(ReplyFrame::Reset(stream, code));
        }
        Ok(())
    }

    /// Ends both directions of a stream, of which `sending` is left to do.
    fn end_by_reset(&mut self, now: Instant, id: StreamId, sending: SendState) {
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        self.send_credit
            .note_discarded(stream.send.queue.truncate(0));
        if !stream.local_ended {
            stream.send.state = sending;
        }
        stream.recv.peer_ended = true;
        let is_new = self.opened.contains(&id);
        match stream.recv.state {
            _ if is_new => stream.recv.state = RecvState::Done,
            RecvState::Open | RecvState::Finished => {
                stream.recv.state = RecvState::Reset;
                self.note_readable(id);
            }
            RecvState::Done | RecvState::Stopped => self.events.push(Event::Stopped(id)),
            RecvState::Reset => {}
        }
        if is_new {
            // Nothing was done for it.
            self.opened.retain(|other| *other != id);
            if let Some(stream) = self.streams.get_mut(&id) {
                self.opened_heads -= stream.recv.head_len();
                self.receive_credit.note_taken(stream.recv.discard());
            }
        }
        if sending == SendState::Done {
            self.end_sending(now, id);
        } else {
            self.schedule_control(id);
        }
    }

    pub(super) fn remember_reset(&mut self, stream: u32) {
        if self.reset_streams.contains(&stream) {
            return;
        }
        if self.reset_streams.len() == RESET_STREAMS_KEPT {
            self.reset_streams.pop_front();
        }
        self.reset_streams.push_back(stream);
    }

    /// Returns whether the frames of a stream are ignored. The peer may have sent them before it learned of the stream's
    /// reset, or of the GOAWAY that has excluded the stream.
    pub(super) fn ignores(&self, stream: u32) -> bool {
        let excluded = matches!(self.leaving, Some(Leaving::After(last)) if stream > last);
        excluded || self.reset_streams.contains(&stream)
    }

    /// Returns a stream that has not ended in both directions. Frames for other streams change nothing, because the
    /// application may not have read the end of such a stream.
    pub(super) fn live_stream(&mut self, stream: u32) -> Option<&mut Stream> {
        let stream = self.streams.get_mut(&id_of(stream))?;
        (!stream.closed).then_some(stream)
    }

    /// Checks that the peer has opened a stream.
    pub(super) fn check_opened(&self, stream: u32) -> Handled {
        let opened = (stream <= self.last_stream).then_some(());
        opened.ok_or(BrokenRule::protocol(
            "a frame names a stream that was not opened",
        ))
    }
}
