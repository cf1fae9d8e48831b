//! The control stream of a connection: its bytes, and the memory that they take.

use std::time::Instant;

use quictun_flow::Inlet;
use quinn_proto::StreamId;

use super::Connection;
use crate::config::Prover;
use crate::holding::Holding;

impl Connection {
    /// Client: begins the control stream, if the server has one to spare.
    pub(crate) fn begin_control(&mut self, prover: Option<&Prover>, answer_by: Instant) -> bool {
        let Some(stream) = self.open_stream() else {
            return false;
        };
        let proof = self.prove(prover);
        self.control.begin(stream, proof);
        self.admission.expect_by(answer_by);
        self.prefer(stream, true);
        true
    }

    /// Server: a stream has begun with HELLO; `inlet` is where it arrives. `false`: it is not the first one.
    pub(crate) fn adopt_control(&mut self, stream: StreamId, inlet: Inlet) -> bool {
        let first = self.control.adopt(stream, inlet);
        if first {
            self.prefer(stream, true);
        }
        first
    }

    /// HELLO or `HELLO_ACK` of the peer has come.
    pub(crate) fn open_control(&mut self) {
        self.control.open();
        self.credit.set_obeys_hold(true);
    }

    /// Takes in what has arrived on the control stream: see [`Control::take_in`].
    pub(crate) fn take_in_control(&mut self) -> Option<bool> {
        self.control.take_in(&mut self.quic, self.packet_max)
    }

    /// Counts what the control stream holds.
    pub(crate) fn count_control(&mut self) {
        let (before, after) = self.control.count_received();
        self.note_control_held(before, after);
    }

    /// The control stream has ended; the peer is as one that never had it.
    pub(crate) fn lose_control(&mut self) {
        let held = self.control.end(&mut self.quic);
        self.note_control_held(held, 0);
        self.credit.set_obeys_hold(false);
    }

    fn note_control_held(&mut self, before: usize, after: usize) {
        let holding = |held| Holding {
            held,
            ..Holding::default()
        };
        self.credit.note_holding(holding(before), holding(after));
    }

    /// Hands frames to the control stream. `false`: the peer leaves too many untaken.
    pub(crate) fn flush_control(&mut self) -> bool {
        if !self.control.has_frames() || self.quic.is_closed() {
            return true;
        }
        let (written, too_many) = self.control.write(&mut self.quic);
        self.sending.note_written(written);
        !too_many
    }
}
