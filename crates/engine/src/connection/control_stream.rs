//! The control stream of a connection: its bytes, and the memory that they take.

use std::time::Instant;

use quictun_flow::{Holding, Inlet, StreamId};
use quictun_wire::bond::BondRequest;
use quictun_wire::code::FlowCode;

use super::Connection;
use crate::config::{Joiner, Prover};

/// The content of a client's HELLO, except for the bond.
#[derive(Clone, Copy)]
pub(crate) struct Hello<'a> {
    /// Computes the proof of the pre-shared secret.
    pub(crate) prover: Option<&'a Prover>,
    /// Makes the JOIN of an invited client.
    pub(crate) joiner: Option<&'a Joiner>,
    /// True if the client asks the server to listen for it.
    pub(crate) reverse: bool,
}

impl Connection {
    /// Client: opens the control stream. Returns false if the server permits no further stream.
    pub(crate) fn begin_control(
        &mut self,
        hello: Hello<'_>,
        bond: Option<BondRequest>,
        answer_by: Instant,
    ) -> bool {
        let Some(stream) = self.open_stream() else {
            return false;
        };
        let proof = self.prove(hello.prover);
        let join = hello
            .joiner
            .and_then(|joiner| Some(joiner(&self.exporter()?)));
        self.control
            .begin(stream.number(), proof, join, bond, hello.reverse);
        self.admission.deadline = Some(answer_by);
        self.carrier.prefer(stream, true);
        true
    }

    /// Server: takes a stream that has begun with HELLO as the control stream. `inlet` holds its received data. Returns
    /// false if there is a control stream already.
    pub(crate) fn adopt_control(&mut self, stream: StreamId, inlet: Inlet) -> bool {
        let first = self.control.adopt(stream.number(), inlet);
        if first {
            self.carrier.prefer(stream, true);
        }
        first
    }

    pub(crate) fn open_control(&mut self) {
        self.control.open();
        self.credit.stops_flows = true;
    }

    /// Takes in the data that has arrived on the control stream: see [`ControlStream::take_in`].
    pub(crate) fn take_in_control(&mut self) -> Option<bool> {
        let id = self.control.stream().and_then(StreamId::from_number)?;
        let packet_max = self.carrier.packet_max();
        let mut stream = self.carrier.stream(id);
        Some(self.control.take_in(&mut stream, packet_max))
    }

    pub(crate) fn count_control(&mut self) {
        let (before, after) = self.control.count_received();
        self.note_control_held(before, after);
    }

    /// Handles the end of the control stream. The peer is then treated as one that never had a control stream.
    pub(crate) fn lose_control(&mut self) {
        if let Some(stream) = self.control.stream().and_then(StreamId::from_number) {
            self.reset_stream(stream, FlowCode::AppReset);
        }
        let held = self.control.end();
        self.note_control_held(held, 0);
        self.credit.stops_flows = false;
    }

    fn note_control_held(&mut self, before: usize, after: usize) {
        let holding = |held| Holding {
            held,
            ..Holding::default()
        };
        self.credit.note_holding(holding(before), holding(after));
    }

    /// Hands frames to the control stream. Returns false if the peer leaves too many of them unread.
    pub(crate) fn flush_control(&mut self) -> bool {
        if !self.control.has_frames() || self.is_closed() {
            return true;
        }
        let Some(id) = self.control.stream().and_then(StreamId::from_number) else {
            return true;
        };
        let (written, too_many) = self.control.write(&mut self.carrier.stream(id));
        self.carrier.note_written(written);
        !too_many
    }

    /// Server: returns whether the client may send LISTEN (PROTOCOL REVERSE-1).
    pub(crate) fn is_asked_to_listen(&self) -> bool {
        self.control.may_listen() && self.control.is_answered()
    }

    pub(crate) fn is_control(&self, stream: StreamId) -> bool {
        self.control.stream() == Some(stream.number())
    }
}
