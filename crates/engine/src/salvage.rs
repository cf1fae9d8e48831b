//! Flows that outlive their connection until what has arrived whole is delivered (PROTOCOL CLOSE-12), and
//! sockets that send all they hold before they are reset.
//!
//! ```text
//! connection lost ─► whole, up to the FIN ─► salvaged: written as the application reads ─► FIN ─┐
//!                └─► a byte is missing ─► reset                                                │
//!                        STOP_SENDING after the FIN ─► parting: the socket sends its rest ◄────┘ (the other
//!                                                         │                                       direction was cut)
//!                                                         └─► reset
//! ```

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use quictun_flow::{Ending, Flow, LostStream, Socket};
use quictun_wire::code::FlowCode;

use crate::ConnectionId;
use crate::engine::Engine;
use crate::flow_entry::{FlowEntry, Phase};
use crate::flows::stream_number;
use crate::quic_stream::QuicStream;

/// Time between two looks at a socket that has not sent everything: no event tells when it has. Local
/// applications have it at once.
const LOOK_AGAIN: Duration = Duration::from_millis(10);
const LOOK_AGAIN_MAX: Duration = Duration::from_secs(2);

/// An application that takes nothing for so long is taken for dead, as a silent peer is.
const IDLE_MAX: Duration = Duration::from_mins(1);

/// A flow without a connection holds memory for no longer than this, however slowly it is read.
const SALVAGE_MAX: Duration = Duration::from_mins(10);

/// A flow's time without its connection.
#[derive(Debug)]
pub(crate) struct Salvage {
    pub(crate) carried: Carried,
    until: Instant,
    idle_until: Instant,
    delivered: u64,
    /// What it holds, as charged.
    pub(crate) charged: u64,
}

/// Where a flow was carried, for the line at its end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Carried {
    pub(crate) connection: ConnectionId,
    pub(crate) stream_id: u64,
    pub(crate) remote: SocketAddr,
}

impl<S: Socket> Engine<S> {
    /// The flow's connection is gone; whether it goes on without.
    pub(crate) fn lose_flow(&mut self, now: Instant, key: usize) -> bool {
        if let Some(FlowEntry {
            phase: Phase::Bridged {
                answered: false, ..
            },
            ..
        }) = self.flows.get(key)
        {
            // The answer may be among what has arrived, with everything that follows it.
            self.read_answer(now, key);
        }
        let Some((entry, connection)) = self.entry_and_connection(key) else {
            return false;
        };
        let Some(place) = entry.place else {
            return false;
        };
        let mut stream = QuicStream {
            quic: &mut connection.quic,
            id: place.stream,
        };
        let Phase::Bridged {
            flow,
            answered: true,
        } = &mut entry.phase
        else {
            if let Some(flow) = entry.flow_mut() {
                flow.cut(FlowCode::ConnectionLost);
            }
            self.remove_flow(now, key, Ending::Abandoned(FlowCode::ConnectionLost));
            return false;
        };
        flow.handle_connection_lost(&mut stream, FlowCode::ConnectionLost);
        if flow.ending().is_none() {
            connection.holding -= std::mem::take(&mut entry.holding);
            entry.salvage = Some(Salvage {
                carried: Carried {
                    connection: connection.id,
                    stream_id: stream_number(place.stream),
                    remote: connection.remote,
                },
                until: now + SALVAGE_MAX,
                idle_until: now + IDLE_MAX,
                delivered: flow.bytes_to_app(),
                charged: 0,
            });
            entry.place = None;
            entry.queued = false;
            self.pump_salvaged(now, key);
        } else {
            self.settle_flow(now, key);
        }
        self.flows.contains(key)
    }

    /// A salvaged flow's socket has news.
    pub(crate) fn handle_salvaged_socket(
        &mut self,
        now: Instant,
        key: usize,
        writable: bool,
        failed: bool,
    ) {
        let Some(flow) = self.flows[key].flow_mut() else {
            return;
        };
        flow.handle_socket_ready(false, writable);
        if failed {
            flow.handle_socket_error(&mut LostStream);
        }
        self.pump_salvaged(now, key);
    }

    /// Writes what the application takes, and enters when to look again.
    fn pump_salvaged(&mut self, now: Instant, key: usize) {
        let entry = &mut self.flows[key];
        let (Some(flow), Some(salvage)) = (
            match &mut entry.phase {
                Phase::Bridged { flow, .. } => Some(flow),
                Phase::Waiting(_) | Phase::Reading(_) | Phase::Dialing(_) => None,
            },
            &mut entry.salvage,
        ) else {
            return;
        };
        flow.pump_to_app(&mut LostStream);
        self.lease.adjust(&mut salvage.charged, flow.held() as u64);
        if flow.bytes_to_app() > salvage.delivered {
            salvage.delivered = flow.bytes_to_app();
            salvage.idle_until = now + IDLE_MAX;
        }
        let until = salvage.until.min(salvage.idle_until);
        if now >= until {
            flow.abandon(&mut LostStream, FlowCode::ConnectionLost);
        }
        self.flow_timers
            .set(key, &mut self.flows[key].deadline, Some(until));
        self.settle_flow(now, key);
    }

    /// The time has come to look at a bridged flow again; `false`: it is neither salvaged nor parting.
    pub(crate) fn look_again(&mut self, now: Instant, key: usize) -> bool {
        let parting = self.flows[key].flow().is_some_and(Flow::is_parting);
        let salvaged = self.flows[key].salvage.is_some();
        let late = self.flows[key].part_by.is_some_and(|by| by <= now);
        if let Some(flow) = self.flows[key].flow_mut() {
            flow.poll_parting();
            if late {
                flow.end_parting();
            }
        }
        if salvaged {
            self.pump_salvaged(now, key);
        } else if parting {
            self.settle_flow(now, key);
        }
        parting || salvaged
    }

    /// A flow that has not ended may only wait for its socket.
    pub(crate) fn watch_parting(&mut self, now: Instant, key: usize) {
        if let Some(entry) = self.flows.get_mut(key)
            && entry.flow().is_some_and(Flow::is_parting)
        {
            let by = *entry.part_by.get_or_insert(now + IDLE_MAX);
            // Thousands of flows may wait for applications that do not read, so the interval grows with the wait.
            let waited = IDLE_MAX.saturating_sub(by.saturating_duration_since(now));
            let at = by.min(now + (waited / 4).clamp(LOOK_AGAIN, LOOK_AGAIN_MAX));
            self.flow_timers.set(key, &mut entry.deadline, Some(at));
        }
    }

    /// Ends all salvaged flows: the process goes away.
    pub(crate) fn abandon_salvaged(&mut self, now: Instant) {
        let keys: Vec<usize> = self
            .flows
            .iter()
            .filter(|(_, entry)| entry.salvage.is_some())
            .map(|(key, _)| key)
            .collect();
        for key in keys {
            if let Some(flow) = self.flows[key].flow_mut() {
                flow.abandon(&mut LostStream, FlowCode::ShuttingDown);
            }
            self.settle_flow(now, key);
        }
    }
}
