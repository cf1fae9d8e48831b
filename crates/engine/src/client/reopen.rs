//! Flows that nobody has answered begin again on another connection (PROTOCOL CLOSE-10).
//!
//! A connection may turn out to be stuck after flows were opened on it: its peer has fallen silent, or is
//! an original server that dials a dead target first. A flow of which the server can have seen no more
//! than the request loses nothing by asking again elsewhere. One that has sent bytes stays: they may have
//! been acted upon.

use std::time::Instant;

use quictun_flow::{Inlet, Socket, Stream};
use quictun_wire::code::FlowCode;

use crate::engine::{Engine, Role};
use crate::flow_entry::{Phase, Place};
use crate::quic_stream::QuicStream;

impl<S: Socket> Engine<S> {
    /// Takes flows without an answer off a stuck connection: all, or those opened after the stream with
    /// the index `behind`.
    pub(crate) fn reopen_unanswered(&mut self, now: Instant, handle: usize, behind: Option<u64>) {
        let here = |place: Option<Place>| {
            let place = place.filter(|place| place.handle == handle)?;
            let index = place.stream.index();
            behind.is_none_or(|behind| index > behind).then_some(index)
        };
        let mut found: Vec<(u64, usize)> = self
            .flows
            .iter()
            .filter_map(|(key, entry)| Some((here(entry.place)?, key)))
            .filter(|&(_, key)| self.flows[key].may_reopen())
            .collect();
        // In the order in which they were opened.
        found.sort_unstable();
        for &(_, key) in &found {
            self.reopen(now, key);
        }
        if !found.is_empty() {
            self.want_transmit(handle);
            // First the stuck connection leaves its slot: then another one is coming.
            self.drive_client(now);
            self.place_waiting(now);
        }
    }

    /// Takes a flow off its connection and lets it wait for another.
    fn reopen(&mut self, now: Instant, key: usize) {
        // Not sooner than it would have ended where it was.
        let idle_timeout = self.transport.idle_timeout;
        let Role::Client(client) = &mut self.role else {
            return;
        };
        let Some(wait_timeout) = client.wait_again(key) else {
            return;
        };
        let entry = &mut self.flows[key];
        let Some(Place { handle, stream }) = entry.place.take() else {
            return;
        };
        if let Some(Some(connection)) = self.connections.get_mut(handle) {
            let mut left = QuicStream {
                quic: &mut connection.quic,
                id: stream,
            };
            left.reset(FlowCode::AppReset);
            left.stop(FlowCode::AppReset);
            connection.streams.remove(&stream);
            connection.control.gone(stream, FlowCode::AppReset);
            if connection.streams.is_empty() {
                connection.idle_since = Some(now);
            }
        }
        // Its place in the old connection's queue is void.
        entry.queued = false;
        entry.reopened += 1;
        let phase = std::mem::replace(&mut entry.phase, Phase::Reading(Inlet::new()));
        if let Phase::Bridged { flow, .. } = phase {
            entry.phase = Phase::Waiting(flow.into_socket());
        }
        let deadline = now + wait_timeout.max(idle_timeout);
        self.flow_timers
            .set(key, &mut self.flows[key].deadline, Some(deadline));
    }
}
