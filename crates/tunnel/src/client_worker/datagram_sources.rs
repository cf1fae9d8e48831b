//! The sources of datagrams that arrive at the UDP sockets of forwards: a flow for each.
//!
//! A source keeps its flow, whatever other sources do, and whatever it sends (endpoint-independent mapping, RFC 4787): the
//! forward has one target. The flow ends when it is idle (PROTOCOL UDP-8). The next datagram then begins another.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use quictun_engine::{Ending, FlowId};
use tracing::warn;

use crate::app_socket::AppSocket;
use crate::datagram_socket::{DatagramSocket, Inbox, ReceivedFromSource, put, receive_from};
use crate::flow_source::FlowToOpen;
use crate::listener::Listener;
use crate::rate_limited_warning::RateLimitedWarning;
use crate::refused_sources::RefusedSources;
use crate::reload::forwards::ForwardNumber;
use crate::role::ClientContext;
use quictun_control::settings::Phrases;

/// Datagrams taken from one socket before other sockets have their turn.
pub(super) const BURST: usize = 64;

/// Bytes taken from one socket in that time: as many as the engine takes of one flow. The socket keeps the rest.
pub(super) const BURST_BYTES: usize = 32 * 1024;

/// Sources of all forwards: as many as a server permits a client on one of its workers.
pub(super) const SOURCES_MAX: usize = 1024;

/// Number of sources from which on each new one ends the flow of the source that would be idle next. A resolver takes a new
/// port for each query. The rest is for flows whose end is on its way.
pub(super) const SOURCES_MANY: usize = SOURCES_MAX / 4 * 3;

/// A forward, the address of a program that sends datagrams there, and the address of this host to which it sends.
type Source = (ForwardNumber, SocketAddr, Option<IpAddr>);

#[derive(Debug, Default)]
pub(super) struct DatagramSources {
    /// The forwards whose sockets this worker has.
    own: BTreeSet<ForwardNumber>,
    flows: BTreeMap<Source, (FlowId, Inbox)>,
    of_flows: BTreeMap<FlowId, Source>,
    refused: RefusedSources<Source>,
    overflow: RateLimitedWarning,
}

impl DatagramSources {
    /// Returns whether this worker watches the listener. One worker has all sources of a UDP socket.
    pub(super) fn watches(&mut self, number: ForwardNumber, listener: &Listener) -> bool {
        self.own.contains(&number) || listener.claim() && self.own.insert(number)
    }

    /// Takes the datagrams that have arrived at the socket of a forward. They lead to the target `token`.
    pub(super) fn receive(
        &mut self,
        cx: &mut ClientContext<'_>,
        (number, listener, token): (ForwardNumber, &Arc<Listener>, &str),
        (phrases, sends_sources): (Phrases, bool),
    ) {
        let Listener::Udp(socket, _) = &**listener else {
            return;
        };
        let mut flows = BTreeSet::new();
        let (mut taken, mut dropped) = (0, 0);
        for _ in 0..BURST {
            if taken >= BURST_BYTES {
                break;
            }
            let received = match receive_from(socket) {
                Ok(received) => received,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // A source has refused an earlier datagram. It may have ended.
                Err(_) => continue,
            };
            let ReceivedFromSource {
                payload,
                source: address,
                local,
            } = received;
            taken += payload.len();
            let source = (number, address, local);
            if let Some((flow, inbox)) = self.flows.get(&source) {
                dropped += put(inbox, payload);
                flows.insert(*flow);
            } else if self.refused.contains(cx.now, &source) {
                // The datagram is lost, as it would be at a port without a program.
                dropped += 1;
            } else if self.flows.len() >= SOURCES_MAX {
                dropped += 1;
                self.warn_of_overflow(cx);
            } else {
                if self.flows.len() >= SOURCES_MANY {
                    cx.engine.end_spare_datagram_flow(cx.now);
                }
                let opened = open(
                    cx,
                    (listener, token),
                    (address, local),
                    payload,
                    (phrases, sends_sources),
                );
                if let Some((flow, inbox)) = opened {
                    self.of_flows.insert(flow, source);
                    self.flows.insert(source, (flow, inbox));
                }
            }
        }
        cx.engine.note_dropped_datagrams(dropped);
        for flow in flows {
            cx.engine.handle_socket(cx.now, flow, true, false, false);
        }
    }

    pub(super) fn handle_closed(&mut self, now: Instant, flow: FlowId, ending: Ending) {
        if let Some(source) = self.of_flows.remove(&flow) {
            self.flows.remove(&source);
            if ending != Ending::Finished {
                self.refused.insert(now, source);
            }
        }
    }

    fn warn_of_overflow(&mut self, cx: &ClientContext<'_>) {
        if let Some(datagrams) = self.overflow.count(cx.now) {
            warn!(target: "quictun", datagrams, most = SOURCES_MAX, "too many programs send datagrams to forwards: those of further ones are dropped until some are idle");
        }
    }
}

/// Opens a flow for a source. Its first datagram waits in the inbox.
fn open(
    cx: &mut ClientContext<'_>,
    (listener, token): (&Arc<Listener>, &str),
    (source, local): (SocketAddr, Option<IpAddr>),
    payload: Bytes,
    (phrases, sends_sources): (Phrases, bool),
) -> Option<(FlowId, Inbox)> {
    let inbox: Inbox = Rc::new(RefCell::new(VecDeque::from([payload])));
    let socket = DatagramSocket::of_source((source, local), listener, inbox.clone());
    let socket = AppSocket::Datagrams(Box::new(socket));
    let told = sends_sources.then_some(source);
    let flow = FlowToOpen::new(socket, token.to_owned()).open(cx, phrases, told)?;
    Some((flow, inbox))
}
